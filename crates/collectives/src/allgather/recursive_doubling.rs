//! Allgather by recursive doubling: in round `k` ranks that differ in bit `k` exchange all blocks they have. For powers of two, and
//! contiguous blocks; no byte is copied.
//!
//! Cost: `log2 p alpha + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.log(), (case.ranks() - 1.0) * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.push_round([copy(task.input.block(0), task.output.block(task.rank))]);
    for distance in (0..task.size.ilog2()).map(|round| 1 << round) {
        let peer = task.rank ^ distance;
        let have = |rank: usize| {
            let first = rank & !(distance - 1);
            task.output.range(first, first + distance)
        };
        let sends = have(task.rank).into_iter().map(|span| send(peer, span));
        schedule.push_round(sends.chain(have(peer).into_iter().map(|span| receive(peer, span))));
    }
    schedule
}
