//! Allgather around a ring: in each round every rank forwards the block it received last. For long blocks of any size: only
//! neighbours communicate, and no byte is copied.
//!
//! Cost: `(p - 1) (alpha + n beta)`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::{Blocks, Task};

pub(crate) fn cost(case: &Case) -> Cost {
    let others = case.ranks() - 1.0;
    Cost::new(others, others * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.push_round([copy(task.input.block(0), task.output.block(task.rank))]);
    forward_blocks(&mut schedule, task.rank, task.size, &task.output);
    schedule
}

/// Each rank has its own block at the start, and all blocks at the end.
pub(crate) fn forward_blocks(schedule: &mut Schedule, rank: usize, size: usize, blocks: &Blocks) {
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 1..size {
        let (sent_block, received_block) = ((rank + size - round + 1) % size, (rank + size - round) % size);
        schedule.push_round([
            send(next, blocks.block(sent_block)),
            receive(previous, blocks.block(received_block)),
        ]);
    }
}
