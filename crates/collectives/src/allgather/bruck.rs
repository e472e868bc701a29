//! Allgather by Bruck's algorithm: in round `k` each rank receives all blocks of the rank `2^k` after it. The fewest rounds for any
//! number of ranks, at the price of copying everything once; for short blocks.
//!
//! Cost: `ceil(log2 p) alpha + (p - 1) n beta`.

use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.log(), (case.ranks() - 1.0) * case.n())
}

/// Blocks are packed in rank order, starting with this rank's, so that the sent part is always at the front.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, size) = (Schedule::default(), task.size);
    let rank_of = |number: usize| (task.rank + number) % size;
    let mut starts = vec![0];
    for number in 0..size {
        starts.push(starts[number] + task.output.block(rank_of(number)).bytes);
    }
    // The blocks that a peer sends have the same sizes as the corresponding blocks here.
    let packed = schedule.scratch_bytes(starts[size]);
    schedule.push_round([copy(task.input.block(0), packed.window(0, starts[1]))]);
    for distance in (0..log2_up(size)).map(|round| 1 << round) {
        let blocks = distance.min(size - distance);
        let (to, from) = ((task.rank + size - distance) % size, rank_of(distance));
        let receives = packed.window(starts[distance], starts[distance + blocks]);
        schedule.push_round([send(to, packed.window(0, starts[blocks])), receive(from, receives)]);
    }
    schedule.push_round((0..size).map(|number| {
        let to = task.output.block(rank_of(number));
        // In place, this rank's block is in the output already.
        if number == 0 {
            copy(task.input.block(0), to)
        } else {
            copy(packed.window(starts[number], starts[number + 1]), to)
        }
    }));
    schedule
}
