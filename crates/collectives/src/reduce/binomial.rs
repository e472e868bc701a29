//! Reduce by a binomial tree, for short vectors. A rank's subtree consists of the ranks that follow it, so operands keep the rank
//! order. If the operator is not commutative, rank 0 gets the result first, and sends it to another root.
//!
//! Cost: `ceil(log2 p) (alpha + n beta + n gamma)`, plus `alpha + n beta` for such an operator and a root other than 0.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, copy, receive, send};
use crate::task::Task;
use crate::tree;
use crate::vector::Vector;

pub(crate) fn cost(case: &Case) -> Cost {
    // The root is unknown when one choice serves many calls.
    let more = if case.commutative || case.size == 1 { 0.0 } else { 1.0 };
    Cost::reducing(case.log() + more, (case.log() + more) * case.n(), case.log() * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root) = (Schedule::default(), task.root_rank());
    let top = if task.commutative { root } else { 0 };
    let sum = up(&mut schedule, task, top, (task.rank == top && top == root).then(|| task.output.of(0)));
    if top != root && task.rank == top {
        schedule.round([send(root, sum)]);
    }
    if top != root && task.rank == root {
        schedule.round([receive(top, task.output.of(0))]);
    }
    schedule
}

/// Reduces to the rank `top`, and there into `output`, or into a new buffer if needed. Returns the span of this rank's sum.
pub(crate) fn up(schedule: &mut Schedule, task: &Task, top: usize, output: Option<Span>) -> Span {
    let (input, size) = (task.input.of(0), task.size);
    let number = (task.rank + size - top) % size;
    let at = |number: usize| (top + number) % size;
    let children = tree::children(number, size);
    if children.is_empty() {
        if let Some(output) = output {
            schedule.round([copy(input, output)]);
        }
        schedule.round([tree::parent(number).and_then(|parent| send(at(parent), input))]);
        return output.unwrap_or(input);
    }
    let sum = output.unwrap_or_else(|| schedule.like(input));
    let mut vector = Vector::new(input, sum);
    for child in children {
        let (comes, reduces) = vector.take(schedule, (at(child), false), (0, input.count));
        schedule.round([comes]);
        schedule.round([reduces]);
        vector.taken();
    }
    schedule.round([tree::parent(number).and_then(|parent| send(at(parent), sum))]);
    sum
}
