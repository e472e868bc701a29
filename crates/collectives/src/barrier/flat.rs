//! Barrier by a flat tree: all ranks notify rank 0, which notifies all. The fewest messages, `2(p - 1)`, and the fewest waits: for
//! messages that overlap within a round at little cost, and for ranks that share cores.
//!
//! Cost: `2 alpha + 2 (p - 2) gap`.

use super::{send_signal, wait_signal};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(2.0 * case.one_round(), 0.0).with_further(2.0 * case.others_but_one()).of_one_rank()
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    if task.rank == 0 {
        schedule.push_round((1..task.size).map(wait_signal));
        schedule.push_round((1..task.size).map(send_signal));
    } else {
        schedule.push_round([send_signal(0)]);
        schedule.push_round([wait_signal(0)]);
    }
    schedule
}
