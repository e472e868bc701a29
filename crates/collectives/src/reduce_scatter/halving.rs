//! Reduce-scatter by recursive halving: in each round a rank gives half of its range away. The fewest rounds; the operator must be
//! commutative.
//!
//! Cost: `log2 p alpha + n (p - 1)/p (beta + gamma)` for a power of two; otherwise plus two rounds, one with a whole vector and one
//! with a block, and the halves differ by the blocks of the folded ranks.

use crate::accumulator::Accumulator;
use crate::cost::{Case, Cost};
use crate::fold::{Fold, FoldRole};
use crate::halving;
use crate::reduce_scatter::vector_and_starts;
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let (fold, folds, block) = (Fold::new(case.size), case.folds(), case.n() / case.ranks());
    // Number 0 keeps the most: the blocks of all ranks below the middle.
    let kept: usize = (0..fold.participants.ilog2()).map(|round| fold.first_rank(1 << round)).sum();
    let reduced = kept as f64 * block + folds * case.n();
    let (power, folded) = (case.power(), case.folded());
    Cost::with_reduction(case.log_down() + 2.0 * folds, reduced + folds * block, reduced)
        .with_all(power * case.log_down() + 2.0 * folded, (power - 1.0 + folded) * case.n() + folded * block)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, fold, output) = (Schedule::default(), Fold::new(task.size), task.output.block(0));
    let (input, cuts) = vector_and_starts(task);
    if task.size == 1 {
        schedule.push_round([copy(input, output)]);
        return schedule;
    }
    let sum = schedule.scratch_like(input);
    let mut accumulator = Accumulator::new(input, sum);
    let block = |rank: usize| sum.elements(cuts[rank], cuts[rank + 1]);
    if let Some(number) = halving::fold(&mut schedule, &mut accumulator, task.rank, task.size) {
        halving::reduce_scatter(&mut schedule, &mut accumulator, number, fold, &|part| {
            cuts[fold.first_rank(part)]
        });
    }
    match fold.role(task.rank) {
        FoldRole::Sender(to) => schedule.push_round([receive(to, output)]),
        FoldRole::Receiver(_, from) => {
            schedule.push_round([send(from, block(from)), copy(block(task.rank), output)])
        }
        FoldRole::Unpaired(_) => schedule.push_round([copy(block(task.rank), output)]),
    }
    schedule
}
