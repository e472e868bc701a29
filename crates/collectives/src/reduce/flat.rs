//! Reduce by a flat tree: all ranks send to the root in one round, and the root reduces. For few ranks, where further messages are
//! cheap, and short vectors: the root has a buffer for each rank.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n (beta + gamma)`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, Span, Step, copy, receive, reduce_left, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let all = (case.ranks() - 1.0) * case.n();
    Cost::reducing(case.one_round(), all, all).and_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root) = (Schedule::default(), task.root_rank());
    if task.rank == root {
        take_all(&mut schedule, task, |_, _| None);
    } else {
        schedule.round([send(root, task.input.of(0))]);
    }
    schedule
}

/// Receives the vectors of all other ranks in one round, in which `tell` may send this rank's own vector to each, and reduces all
/// into the output. Every rank that calls this starts with the last rank's vector, so that the bits are the same everywhere.
pub(crate) fn take_all(schedule: &mut Schedule, task: &Task, tell: fn(usize, Span) -> Option<Step>) {
    let (input, sum, last) = (task.input.of(0), task.output.of(0), task.size - 1);
    // The last vector is received into the sum; an in-place operand must be copied before.
    let mine = if task.rank == last || input != sum { input } else { schedule.like(input) };
    schedule.round([copy(input, mine)]);
    let place = |rank: usize| match rank {
        rank if rank == task.rank => mine,
        rank if rank == last => sum,
        _ => schedule.like(input),
    };
    let places: Vec<Span> = (0..task.size).map(place).collect();
    let goes = task.others().map(|rank| tell(rank, mine));
    let comes = task.others().map(|rank| receive(rank, places[rank]));
    schedule.round(goes.chain(comes));
    schedule.round([copy(places[last], sum)]);
    for &next in places[..last].iter().rev() {
        schedule.round([reduce_left(next, sum)]);
    }
}
