//! Barrier by a binomial tree, up and down: twice the rounds of dissemination, but only `2(p - 1)` messages in total, for ranks
//! that share one link or one core.
//!
//! Cost: `2 ceil(log2 p) alpha`.

use super::{send_signal, wait_signal};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(2.0 * case.log(), 0.0).with_all(2.0 * (case.ranks() - 1.0), 0.0)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    signal_rank_zero(&mut schedule, task.rank, task.size);
    signal_from_rank_zero(&mut schedule, task.rank, task.size);
    schedule
}

/// Notifies rank 0 of all other ranks, through the tree.
pub(crate) fn signal_rank_zero(schedule: &mut Schedule, rank: usize, size: usize) {
    for child in tree::children(rank, size) {
        schedule.push_round([wait_signal(child)]);
    }
    schedule.push_round([tree::parent(rank).and_then(send_signal)]);
}

/// Notifies all ranks of rank 0, through the tree.
pub(crate) fn signal_from_rank_zero(schedule: &mut Schedule, rank: usize, size: usize) {
    schedule.push_round([tree::parent(rank).and_then(wait_signal)]);
    for child in tree::children(rank, size).into_iter().rev() {
        schedule.push_round([send_signal(child)]);
    }
}
