//! Broadcast by a binomial tree: in each round, every rank that has the data sends it to one that does not. Best for short
//! messages.
//!
//! Cost: `ceil(log2 p) (alpha + n beta)`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, receive, send};
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    let others = case.ranks() - 1.0;
    Cost::new(case.log(), case.log() * case.n()).with_all(others, others * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    broadcast(&mut schedule, task, task.output.block(0));
    schedule
}

/// Sends a buffer of the root to the same buffer of all ranks.
pub(crate) fn broadcast(schedule: &mut Schedule, task: &Task, data: Span) {
    let number = task.relative_rank();
    schedule.push_round([tree::parent(number).and_then(|parent| receive(task.rank_of(parent), data))]);
    for child in tree::children(number, task.size).into_iter().rev() {
        schedule.push_round([send(task.rank_of(child), data)]);
    }
}
