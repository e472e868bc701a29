//! Reduce-scatter in pairs: in round `r` each rank sends the block of the rank `r` after it, and reduces the block it receives into
//! its own. The fewest bytes for any number of ranks. The operator must be commutative.
//!
//! Cost: `(p - 1) (alpha + n/p (beta + gamma))`.

use crate::cost::{Case, Cost};
use crate::reduce_scatter::vector_and_starts;
use crate::schedule::{Schedule, copy, receive, reduce_left, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, part) = (case.ranks() - 1.0, case.n() * (1.0 - 1.0 / case.ranks()));
    Cost::with_reduction(others, part, part)
}

/// The sum has its own buffer, because for an in-place call the output contains the input.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let (input, cuts) = vector_and_starts(task);
    let block = |rank: usize| input.elements(cuts[rank], cuts[rank + 1]);
    let mine = block(rank);
    if size == 1 {
        schedule.push_round([copy(mine, task.output.block(0))]);
        return schedule;
    }
    let (mut sum, mut other) = (schedule.scratch_like(mine), schedule.scratch_like(mine));
    let mut from = mine;
    for distance in 1..size {
        let (to, peer) = ((rank + distance) % size, (rank + size - distance) % size);
        schedule.push_round([send(to, block(to)), receive(peer, sum)]);
        schedule.push_round([reduce_left(from, sum)]);
        from = sum;
        (sum, other) = (other, sum);
    }
    schedule.push_round([copy(from, task.output.block(0))]);
    schedule
}
