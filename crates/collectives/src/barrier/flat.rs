//! Barrier by a flat tree: all ranks notify rank 0, which notifies all. The fewest messages, `2(p - 1)`, and the fewest waits: for
//! messages that overlap within a round at little cost, and for ranks that share cores.
//!
//! Cost: `2 alpha + 2 (p - 2) gap`.

use super::{hear, tell};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(2.0 * case.one_round(), 0.0).and_further(2.0 * case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    if task.rank == 0 {
        schedule.round((1..task.size).map(hear));
        schedule.round((1..task.size).map(tell));
    } else {
        schedule.round([tell(0)]);
        schedule.round([hear(0)]);
    }
    schedule
}
