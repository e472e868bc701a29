//! Allreduce by Rabenseifner's algorithm: reduces parts by recursive halving, and gathers them by recursive doubling. For long
//! vectors: the bytes that each rank sends do not grow with the number of ranks, and the rounds only with its logarithm. The
//! operator must be commutative.
//!
//! Cost: `2 log2 p alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma` for a power of two; otherwise plus a fold: `2 alpha + 2 n beta +
//! n gamma`.

use crate::accumulator::{Accumulator, part_start};
use crate::cost::{Case, Cost};
use crate::fold::Fold;
use crate::halving;
use crate::schedule::{Schedule, copy};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let power = case.power();
    let (part, folds) = (case.n() * (1.0 - 1.0 / power), case.folds());
    Cost::with_reduction(
        2.0 * (case.log_down() + folds),
        2.0 * (part + folds * case.n()),
        part + folds * case.n(),
    )
    .with_all(
        2.0 * (power * case.log_down() + case.folded()),
        2.0 * (power * part + case.folded() * case.n()),
    )
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.block(0), task.output.block(0));
    if task.size == 1 {
        schedule.push_round([copy(input, sum)]);
        return schedule;
    }
    let (mut accumulator, fold) = (Accumulator::new(input, sum), Fold::new(task.size));
    if let Some(number) = halving::fold(&mut schedule, &mut accumulator, task.rank, task.size) {
        let cuts = |part: usize| part_start(input.count, part, fold.participants);
        halving::reduce_scatter(&mut schedule, &mut accumulator, number, fold, &cuts);
        halving::allgather(&mut schedule, sum, number, fold, &cuts);
    }
    halving::unfold(&mut schedule, sum, task.rank, task.size);
    schedule
}
