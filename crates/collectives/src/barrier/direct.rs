//! Barrier in one round: each rank notifies every other. For few ranks, where further messages are cheap.
//!
//! Cost: `alpha + (p - 2) gap`.

use super::{send_signal, wait_signal};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.one_round(), 0.0).with_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    let others = || task.others();
    schedule.push_round(others().map(send_signal).chain(others().map(wait_signal)));
    schedule
}
