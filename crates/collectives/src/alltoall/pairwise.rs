//! Alltoall in pairs: in round `r` each rank sends to the rank `r` after it and receives from the rank `r` before it, so that no
//! rank ever gets two messages in one round. Blocks of any size and type; no byte is copied.
//!
//! Cost: `(p - 1) (alpha + n beta)`.

use crate::alltoall::with_separate_input;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let others = case.ranks() - 1.0;
    Cost::new(others, others * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let task = with_separate_input(&mut schedule, task);
    schedule.push_round([copy(task.input.block(rank), task.output.block(rank))]);
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        schedule.push_round([send(to, task.input.block(to)), receive(from, task.output.block(from))]);
    }
    schedule
}
