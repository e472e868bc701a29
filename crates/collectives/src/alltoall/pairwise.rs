//! Alltoall in pairs: in round `r` each rank sends to the rank `r` after it and receives from the rank `r` before it, so that no
//! rank ever gets two messages in one round. Blocks of any size and type; no byte is copied.
//!
//! Cost: `(p - 1) (alpha + n beta)`.

use crate::alltoall::staged;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let others = case.ranks() - 1.0;
    Cost::of(others, others * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let task = staged(&mut schedule, task);
    schedule.round([copy(task.input.of(rank), task.output.of(rank))]);
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        schedule.round([send(to, task.input.of(to)), receive(from, task.output.of(from))]);
    }
    schedule
}
