//! Allgather by Bruck's algorithm: in round `k` each rank gets what the one `2^k` behind it has. As few rounds as can be for any
//! number of ranks, for the price of copying everything once; for short blocks.
//!
//! Cost: `ceil(log2 p) alpha + (p - 1) n beta`.

use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(case.log(), (case.ranks() - 1.0) * case.n())
}

/// Blocks are packed in the order of ranks from this one on, so that what is sent is always the front.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, size) = (Schedule::default(), task.size);
    let rank_of = |number: usize| (task.rank + number) % size;
    let mut starts = vec![0];
    for number in 0..size {
        starts.push(starts[number] + task.output.of(rank_of(number)).bytes);
    }
    // What a peer sends is as long as the blocks that it stands for are here.
    let packed = schedule.bytes(starts[size]);
    schedule.round([copy(task.input.of(0), packed.window(0, starts[1]))]);
    for distance in (0..log2_up(size)).map(|round| 1 << round) {
        let blocks = distance.min(size - distance);
        let (to, from) = ((task.rank + size - distance) % size, rank_of(distance));
        let comes = packed.window(starts[distance], starts[distance + blocks]);
        schedule.round([send(to, packed.window(0, starts[blocks])), receive(from, comes)]);
    }
    schedule.round((0..size).map(|number| {
        let to = task.output.of(rank_of(number));
        // In place, the own block is there.
        if number == 0 {
            copy(task.input.of(0), to)
        } else {
            copy(packed.window(starts[number], starts[number + 1]), to)
        }
    }));
    schedule
}
