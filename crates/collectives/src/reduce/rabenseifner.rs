//! Reduce by Rabenseifner's algorithm: reduces the vector in parts by recursive halving, and gathers the parts by a binomial tree.
//! For long vectors: each rank sends and reduces about as much as one vector, for any number of ranks. The operator must be
//! commutative.
//!
//! Cost: `2 log2 p alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma` for a power of two; otherwise plus a fold and a message to a
//! root that was folded away: `2 alpha + 2 n beta + n gamma`.

use crate::accumulator::{Accumulator, part_start};
use crate::cost::{Case, Cost};
use crate::fold::{Fold, FoldRole};
use crate::halving;
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let power = case.power();
    let part = case.n() * (1.0 - 1.0 / power);
    let folds = case.folds();
    Cost::with_reduction(
        2.0 * (case.log_down() + folds),
        2.0 * (part + folds * case.n()),
        part + folds * case.n(),
    )
    // Parts are exchanged among a power of two of ranks, and gathered up a tree.
    .with_all(
        power * (case.log_down() + 1.0) - 1.0 + case.folded(),
        (power - 1.0 + case.log_down() / 2.0 + case.folded()) * case.n(),
    )
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root, input) = (Schedule::default(), task.root_rank(), task.input.block(0));
    if task.size == 1 {
        schedule.push_round([copy(input, task.output.block(0))]);
        return schedule;
    }
    let fold = Fold::new(task.size);
    let top = match fold.role(root) {
        FoldRole::Sender(to) => to,
        FoldRole::Receiver(..) | FoldRole::Unpaired(_) => root,
    };
    let output = task.rank == root && top == root;
    let sum = if output { task.output.block(0) } else { schedule.scratch_like(input) };
    let mut accumulator = Accumulator::new(input, sum);
    if let Some(number) = halving::fold(&mut schedule, &mut accumulator, task.rank, task.size) {
        let cuts = |part: usize| part_start(input.count, part, fold.participants);
        halving::reduce_scatter(&mut schedule, &mut accumulator, number, fold, &cuts);
        let top_number = (0..fold.participants).find(|&number| fold.rank_of(number) == top).unwrap_or(0);
        // Numbers are combined with the top's by exclusive or, so that the top's becomes 0.
        let mine = number ^ top_number;
        for distance in (0..fold.participants.ilog2()).map(|round| 1 << round) {
            if mine & (distance - 1) != 0 {
                break;
            }
            let peer = number ^ distance;
            let have = |number: usize| {
                let first = number & !(distance - 1);
                sum.elements(cuts(first), cuts(first + distance))
            };
            schedule.push_round([match mine & distance != 0 {
                true => send(fold.rank_of(peer), have(number)),
                false => receive(fold.rank_of(peer), have(peer)),
            }]);
        }
    }
    if top != root && task.rank == top {
        schedule.push_round([send(root, accumulator.operand())]);
    }
    if top != root && task.rank == root {
        schedule.push_round([receive(top, task.output.block(0))]);
    }
    schedule
}
