//! Allreduce by Rabenseifner's algorithm: reduces parts by recursive halving, and gathers them by recursive doubling. For long
//! vectors: the bytes that each rank sends do not grow with the number of ranks, and the rounds only with its logarithm. The
//! operator must be commutative.
//!
//! Cost: `2 log2 p alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma` for a power of two; otherwise plus a fold: `2 alpha + 2 n beta +
//! n gamma`.

use crate::cost::{Case, Cost};
use crate::fold::Fold;
use crate::halving;
use crate::schedule::{Schedule, copy};
use crate::task::Task;
use crate::vector::{Vector, cut};

pub(crate) fn cost(case: &Case) -> Cost {
    let power = case.power();
    let (part, folds) = (case.n() * (1.0 - 1.0 / power), case.folds());
    Cost::reducing(2.0 * (case.log_down() + folds), 2.0 * (part + folds * case.n()), part + folds * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.of(0), task.output.of(0));
    if task.size == 1 {
        schedule.round([copy(input, sum)]);
        return schedule;
    }
    let (mut vector, fold) = (Vector::new(input, sum), Fold::of(task.size));
    if let Some(number) = halving::fold(&mut schedule, &mut vector, task.rank, task.size) {
        let cuts = |part: usize| cut(input.count, part, fold.power);
        halving::scatter(&mut schedule, &mut vector, number, fold, &cuts);
        halving::gather_all(&mut schedule, sum, number, fold, &cuts);
    }
    halving::unfold(&mut schedule, sum, task.rank, task.size);
    schedule
}
