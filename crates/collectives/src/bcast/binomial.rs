//! Broadcast by a binomial tree: in each round, every rank that has the data sends it to one that does not. Best for short
//! messages.
//!
//! Cost: `ceil(log2 p) (alpha + n beta)`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, receive, send};
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(case.log(), case.log() * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    spread(&mut schedule, task, task.output.of(0));
    schedule
}

/// Sends a buffer of the root to the same buffer of all ranks.
pub(crate) fn spread(schedule: &mut Schedule, task: &Task, data: Span) {
    let number = task.number();
    schedule.round([tree::parent(number).and_then(|parent| receive(task.at(parent), data))]);
    for child in tree::children(number, task.size).into_iter().rev() {
        schedule.round([send(task.at(child), data)]);
    }
}
