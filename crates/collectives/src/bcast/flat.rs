//! Broadcast by a flat tree: the root sends to all ranks in one round. For few ranks, where further messages are cheap.
//!
//! Cost: `alpha + (p - 2) gap + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.one_round(), (case.ranks() - 1.0) * case.n())
        .with_further(case.others_but_one())
        .of_one_rank()
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, data, root) = (Schedule::default(), task.output.block(0), task.root_rank());
    if task.rank == root {
        schedule.push_round(task.others().map(|rank| send(rank, data)));
    } else {
        schedule.push_round([receive(root, data)]);
    }
    schedule
}
