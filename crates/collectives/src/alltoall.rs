//! Alltoall algorithms.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod pairwise;

use crate::schedule::{Schedule, SpanBuffer, copy};
use crate::task::{Blocks, Task};

/// The task with a separate input: for an in-place call, the data to send are copied first.
pub(crate) fn with_separate_input(schedule: &mut Schedule, task: &Task) -> Task {
    let blocks: Vec<_> = (0..task.input.count()).map(|rank| task.input.block(rank)).collect();
    if blocks.iter().all(|block| block.buffer != SpanBuffer::Output || block.bytes == 0) {
        return task.clone();
    }
    let packed = schedule.scratch_bytes(blocks.iter().map(|block| block.bytes).sum());
    let mut start = 0;
    let spans: Vec<_> = blocks
        .iter()
        .map(|block| {
            start += block.bytes;
            // Each block is a span of its own, as it would be in an input.
            crate::Span::of_bytes(packed.buffer, (start - block.bytes) as i64, block.bytes)
        })
        .collect();
    schedule.push_round(blocks.iter().zip(&spans).map(|(&from, &to)| copy(from, to)));
    let input = if task.input.have_equal_sizes() {
        Blocks::Equal { first: spans[0], count: spans.len() }
    } else {
        Blocks::Separate(spans.into())
    };
    Task { input, ..task.clone() }
}
