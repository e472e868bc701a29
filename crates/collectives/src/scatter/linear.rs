//! Scatter directly from the root, for blocks of any size.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.one_round(), (case.ranks() - 1.0) * case.n())
        .with_further(case.others_but_one())
        .of_one_rank()
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, root) = (Schedule::default(), task.root_rank());
    if task.rank != root {
        schedule.push_round([receive(root, task.output.block(0))]);
        return schedule;
    }
    schedule.push_round((0..task.size).map(|rank| match rank == root {
        true => copy(task.input.block(rank), task.output.block(0)),
        false => send(rank, task.input.block(rank)),
    }));
    schedule
}
