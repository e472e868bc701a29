//! Allgather in one round: each rank sends its block to every other. For few ranks, where further messages are cheap, and blocks of
//! any size; no byte is copied.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.one_round(), (case.ranks() - 1.0) * case.n()).with_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, mine) = (Schedule::default(), task.input.block(0));
    let sends = task.others().map(|rank| send(rank, mine));
    let receives = task.others().map(|rank| receive(rank, task.output.block(rank)));
    schedule.push_round(sends.chain(receives).chain([copy(mine, task.output.block(task.rank))]));
    schedule
}
