//! Allreduce by recursive doubling: in round `k` ranks that differ in bit `k` exchange their partial results. The fewest rounds,
//! for short vectors. Both ranks of a pair put the lower rank's operand on the left, so that operators need not be commutative, and
//! all ranks have the same bits.
//!
//! Cost: `log2 p (alpha + n beta + n gamma)` for a power of two; otherwise two more rounds, one with a reduction.

use crate::cost::{Case, Cost};
use crate::fold::Fold;
use crate::halving;
use crate::schedule::{Schedule, copy, send};
use crate::task::Task;
use crate::vector::Vector;

pub(crate) fn cost(case: &Case) -> Cost {
    let (rounds, folds) = (case.log_down(), case.folds());
    Cost::reducing(rounds + 2.0 * folds, (rounds + 2.0 * folds) * case.n(), (rounds + folds) * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.of(0), task.output.of(0));
    if task.size == 1 {
        schedule.round([copy(input, sum)]);
        return schedule;
    }
    let (mut vector, fold) = (Vector::new(input, sum), Fold::of(task.size));
    if let Some(number) = halving::fold(&mut schedule, &mut vector, task.rank, task.size) {
        for distance in (0..fold.power.ilog2()).map(|round| 1 << round) {
            let (peer, is_below) = (fold.rank(number ^ distance), number & distance != 0);
            let goes = send(peer, vector.now());
            let (comes, reduces) = vector.take(&mut schedule, (peer, is_below), (0, input.count));
            schedule.round([goes, comes]);
            schedule.round([reduces]);
            vector.taken();
        }
    }
    halving::unfold(&mut schedule, sum, task.rank, task.size);
    schedule
}
