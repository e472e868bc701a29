//! Allreduce by a flat tree: all ranks send to rank 0, which reduces in rank order and sends the result to all. One round more than
//! reducing everywhere, but the fewest messages: for ranks that share cores.
//!
//! Cost: `2 alpha + 2 (p - 2) gap + 2 (p - 1) n beta + (p - 1) n gamma`.

use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::{Root, Task};
use crate::{bcast, reduce};

pub(crate) fn cost(case: &Case) -> Cost {
    let all = (case.ranks() - 1.0) * case.n();
    Cost::with_reduction(2.0 * case.one_round(), 2.0 * all, all)
        .with_further(2.0 * case.others_but_one())
        .of_one_rank()
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let task = Task { root: Root::Rank(0), ..task.clone() };
    let mut schedule: Schedule = reduce::flat::plan(&task);
    schedule.append(&bcast::flat::plan(&task));
    schedule
}
