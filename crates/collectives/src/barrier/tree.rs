//! Barrier by a binomial tree, up and down: twice the rounds of dissemination, but only `2(p - 1)` messages in total, for ranks
//! that share one link or one core.
//!
//! Cost: `2 ceil(log2 p) alpha`.

use super::{hear, tell};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(2.0 * case.log(), 0.0)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    up(&mut schedule, task.rank, task.size);
    down(&mut schedule, task.rank, task.size);
    schedule
}

/// Notifies rank 0 of all other ranks, through the tree.
pub(crate) fn up(schedule: &mut Schedule, rank: usize, size: usize) {
    for child in tree::children(rank, size) {
        schedule.round([hear(child)]);
    }
    schedule.round([tree::parent(rank).and_then(tell)]);
}

/// Notifies all ranks of rank 0, through the tree.
pub(crate) fn down(schedule: &mut Schedule, rank: usize, size: usize) {
    schedule.round([tree::parent(rank).and_then(hear)]);
    for child in tree::children(rank, size).into_iter().rev() {
        schedule.round([tell(child)]);
    }
}
