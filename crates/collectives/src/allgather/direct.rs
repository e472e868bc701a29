//! Allgather in one round: each rank sends its block to every other. For few ranks, where further messages are cheap, and blocks of
//! any size; no byte is copied.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(case.one_round(), (case.ranks() - 1.0) * case.n()).and_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, mine) = (Schedule::default(), task.input.of(0));
    let goes = task.others().map(|rank| send(rank, mine));
    let comes = task.others().map(|rank| receive(rank, task.output.of(rank)));
    schedule.round(goes.chain(comes).chain([copy(mine, task.output.of(task.rank))]));
    schedule
}
