//! Alltoall with several ranks per round: each round handles a batch of the pairwise rounds. Blocks of any size and type; no byte
//! is copied.
//!
//! Cost: `ceil((p - 1)/batch) alpha + (p - 1 - ceil((p - 1)/batch)) gap + (p - 1) n beta`.

use crate::alltoall::with_separate_input;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

/// Number of peers per round: more would fill queues and gain little.
const BATCH: usize = 32;

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, rounds) = (case.size - 1, (case.size - 1).div_ceil(BATCH));
    Cost::new(rounds as f64, others as f64 * case.n()).with_further((others - rounds) as f64)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let task = with_separate_input(&mut schedule, task);
    schedule.push_round([copy(task.input.block(rank), task.output.block(rank))]);
    for first in (1..size).step_by(BATCH) {
        let batch = first..size.min(first + BATCH);
        let sends =
            batch.clone().map(|distance| (rank + distance) % size).map(|to| send(to, task.input.block(to)));
        let receives = batch
            .map(|distance| (rank + size - distance) % size)
            .map(|from| receive(from, task.output.block(from)));
        schedule.push_round(sends.chain(receives));
    }
    schedule
}
