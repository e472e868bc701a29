//! Allreduce in one round: each rank sends its vector to every other, and reduces the vectors it receives. For few ranks, where
//! further messages are cheap, and short vectors: each rank has a buffer for every other. All ranks reduce in rank order, so all
//! have the same bits, and the operator need not be commutative.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n (beta + gamma)`.

use crate::cost::{Case, Cost};
use crate::reduce::flat::receive_and_reduce_all;
use crate::schedule::{Schedule, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let all = (case.ranks() - 1.0) * case.n();
    Cost::with_reduction(case.one_round(), all, all).with_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    receive_and_reduce_all(&mut schedule, task, send);
    schedule
}
