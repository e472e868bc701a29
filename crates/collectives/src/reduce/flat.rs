//! Reduce by a flat tree: all ranks send to the root in one round, and the root reduces. For few ranks, where further messages are
//! cheap, and short vectors: the root has a buffer for each rank.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n (beta + gamma)`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, Step, copy, receive, reduce_left, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let all = (case.ranks() - 1.0) * case.n();
    Cost::with_reduction(case.one_round(), all, all).with_further(case.others_but_one()).of_one_rank()
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root) = (Schedule::default(), task.root_rank());
    if task.rank == root {
        receive_and_reduce_all(&mut schedule, task, |_, _| None);
    } else {
        schedule.push_round([send(root, task.input.block(0))]);
    }
    schedule
}

/// Receives the vectors of all other ranks in one round, in which `send_own` may send this rank's own vector to each, and reduces
/// all into the output. Every rank that calls this starts with the last rank's vector, so that the bits are the same everywhere.
pub(crate) fn receive_and_reduce_all(
    schedule: &mut Schedule,
    task: &Task,
    send_own: fn(usize, Span) -> Option<Step>,
) {
    let (input, sum, last) = (task.input.block(0), task.output.block(0), task.size - 1);
    // The last vector is received into the sum; an in-place operand must be copied before.
    let mine = if task.rank == last || input != sum { input } else { schedule.scratch_like(input) };
    schedule.push_round([copy(input, mine)]);
    let vector_of = |rank: usize| match rank {
        rank if rank == task.rank => mine,
        rank if rank == last => sum,
        _ => schedule.scratch_like(input),
    };
    let vectors: Vec<Span> = (0..task.size).map(vector_of).collect();
    let sends = task.others().map(|rank| send_own(rank, mine));
    let receives = task.others().map(|rank| receive(rank, vectors[rank]));
    schedule.push_round(sends.chain(receives));
    schedule.push_round([copy(vectors[last], sum)]);
    for &next in vectors[..last].iter().rev() {
        schedule.push_round([reduce_left(next, sum)]);
    }
}
