//! Barrier in one round: each rank notifies every other. For few ranks, where further messages are cheap.
//!
//! Cost: `alpha + (p - 2) gap`.

use super::{hear, tell};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(case.one_round(), 0.0).and_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    let others = || task.others();
    schedule.round(others().map(tell).chain(others().map(hear)));
    schedule
}
