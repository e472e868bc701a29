//! Reduce-scatter by recursive halving: in each round a rank gives half of its range away. The fewest rounds; the operator must be
//! commutative.
//!
//! Cost: `log2 p alpha + n (p - 1)/p (beta + gamma)` for a power of two; otherwise plus two rounds, one with a whole vector and one
//! with a block, and the halves differ by the blocks of the folded ranks.

use crate::cost::{Case, Cost};
use crate::fold::{Fold, Part};
use crate::halving;
use crate::reduce_scatter::vector;
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;
use crate::vector::Vector;

pub(crate) fn cost(case: &Case) -> Cost {
    let (fold, folds, block) = (Fold::of(case.size), case.folds(), case.n() / case.ranks());
    // Number 0 keeps the most: the blocks of all ranks below the middle.
    let kept: usize = (0..fold.power.ilog2()).map(|round| fold.first(1 << round)).sum();
    let reduced = kept as f64 * block + folds * case.n();
    Cost::reducing(case.log_down() + 2.0 * folds, reduced + folds * block, reduced)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, fold, output) = (Schedule::default(), Fold::of(task.size), task.output.of(0));
    let (input, cuts) = vector(task);
    if task.size == 1 {
        schedule.round([copy(input, output)]);
        return schedule;
    }
    let sum = schedule.like(input);
    let mut vector = Vector::new(input, sum);
    let block = |rank: usize| sum.elements(cuts[rank], cuts[rank + 1]);
    if let Some(number) = halving::fold(&mut schedule, &mut vector, task.rank, task.size) {
        halving::scatter(&mut schedule, &mut vector, number, fold, &|part| cuts[fold.first(part)]);
    }
    match fold.part(task.rank) {
        Part::Gives(to) => schedule.round([receive(to, output)]),
        Part::Takes(_, from) => schedule.round([send(from, block(from)), copy(block(task.rank), output)]),
        Part::Alone(_) => schedule.round([copy(block(task.rank), output)]),
    }
    schedule
}
