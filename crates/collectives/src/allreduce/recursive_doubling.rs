//! Allreduce by recursive doubling: in round `k` ranks that differ in bit `k` exchange their partial results. The fewest rounds,
//! for short vectors. Both ranks of a pair put the lower rank's operand on the left, so that operators need not be commutative, and
//! all ranks have the same bits.
//!
//! Cost: `log2 p (alpha + n beta + n gamma)` for a power of two; otherwise two more rounds, one with a reduction.

use crate::accumulator::Accumulator;
use crate::cost::{Case, Cost};
use crate::fold::Fold;
use crate::halving;
use crate::schedule::{Schedule, copy, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let (rounds, folds) = (case.log_down(), case.folds());
    let all = case.power() * rounds + 2.0 * case.folded();
    Cost::with_reduction(rounds + 2.0 * folds, (rounds + 2.0 * folds) * case.n(), (rounds + folds) * case.n())
        .with_all(all, all * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.block(0), task.output.block(0));
    if task.size == 1 {
        schedule.push_round([copy(input, sum)]);
        return schedule;
    }
    let (mut accumulator, fold) = (Accumulator::new(input, sum), Fold::new(task.size));
    if let Some(number) = halving::fold(&mut schedule, &mut accumulator, task.rank, task.size) {
        for distance in (0..fold.participants.ilog2()).map(|round| 1 << round) {
            let (peer, from_lower_rank) = (fold.rank_of(number ^ distance), number & distance != 0);
            let sends = send(peer, accumulator.operand());
            let (receives, reduces) =
                accumulator.receive_and_reduce(&mut schedule, (peer, from_lower_rank), (0, input.count));
            schedule.push_round([sends, receives]);
            schedule.push_round([reduces]);
            accumulator.mark_filled();
        }
    }
    halving::unfold(&mut schedule, sum, task.rank, task.size);
    schedule
}
