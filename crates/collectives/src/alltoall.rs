//! Alltoall algorithms.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod pairwise;

use crate::schedule::{Buffer, Schedule, copy};
use crate::task::{Blocks, Task};

/// The task with a separate input: for an in-place call, the data to send are copied first.
pub(crate) fn staged(schedule: &mut Schedule, task: &Task) -> Task {
    let blocks: Vec<_> = (0..task.input.count()).map(|rank| task.input.of(rank)).collect();
    if blocks.iter().all(|block| block.buffer != Buffer::Output || block.bytes == 0) {
        return task.clone();
    }
    let packed = schedule.bytes(blocks.iter().map(|block| block.bytes).sum());
    let mut start = 0;
    let places: Vec<_> = blocks
        .iter()
        .map(|block| {
            start += block.bytes;
            // Each block is a span of its own, as it would be in an input.
            crate::Span::of_bytes(packed.buffer, (start - block.bytes) as i64, block.bytes)
        })
        .collect();
    schedule.round(blocks.iter().zip(&places).map(|(&from, &to)| copy(from, to)));
    let input = if task.input.is_even() {
        Blocks::Even { first: places[0], count: places.len() }
    } else {
        Blocks::Anywhere(places.into())
    };
    Task { input, ..task.clone() }
}
