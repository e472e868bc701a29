//! Reduce by a binomial tree, for short vectors. A rank's subtree consists of the ranks that follow it, so operands keep the rank
//! order. If the operator is not commutative, rank 0 gets the result first, and sends it to another root.
//!
//! Cost: `ceil(log2 p) (alpha + n beta + n gamma)`, plus `alpha + n beta` for such an operator and a root other than 0.

use crate::accumulator::Accumulator;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, copy, receive, send};
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    // The root is unknown when one choice serves many calls.
    let more = if case.commutative || case.size == 1 { 0.0 } else { 1.0 };
    let all = case.ranks() - 1.0 + more;
    Cost::with_reduction(case.log() + more, (case.log() + more) * case.n(), case.log() * case.n())
        .with_all(all, all * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root) = (Schedule::default(), task.root_rank());
    let top = if task.commutative { root } else { 0 };
    let sum =
        reduce_to(&mut schedule, task, top, (task.rank == top && top == root).then(|| task.output.block(0)));
    if top != root && task.rank == top {
        schedule.push_round([send(root, sum)]);
    }
    if top != root && task.rank == root {
        schedule.push_round([receive(top, task.output.block(0))]);
    }
    schedule
}

/// Reduces to the rank `top`, and there into `output`, or into a new buffer if needed. Returns the span of this rank's sum.
pub(crate) fn reduce_to(schedule: &mut Schedule, task: &Task, top: usize, output: Option<Span>) -> Span {
    let (input, size) = (task.input.block(0), task.size);
    let number = (task.rank + size - top) % size;
    let at = |number: usize| (top + number) % size;
    let children = tree::children(number, size);
    if children.is_empty() {
        if let Some(output) = output {
            schedule.push_round([copy(input, output)]);
        }
        schedule.push_round([tree::parent(number).and_then(|parent| send(at(parent), input))]);
        return output.unwrap_or(input);
    }
    let sum = output.unwrap_or_else(|| schedule.scratch_like(input));
    let mut accumulator = Accumulator::new(input, sum);
    for child in children {
        let (receives, reduces) =
            accumulator.receive_and_reduce(schedule, (at(child), false), (0, input.count));
        schedule.push_round([receives]);
        schedule.push_round([reduces]);
        accumulator.mark_filled();
    }
    schedule.push_round([tree::parent(number).and_then(|parent| send(at(parent), sum))]);
    sum
}
