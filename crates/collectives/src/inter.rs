//! Collectives of an intercommunicator, between two groups, with one algorithm each.
//!
//! Operations that concern all of a group use its rank 0, with binomial trees inside the group. Blocks from each rank to each other
//! are sent directly, in pairs.

use crate::barrier::tree::{signal_from_rank_zero, signal_rank_zero};
use crate::bcast::binomial::broadcast;
use crate::reduce::binomial::reduce_to;
use crate::reduce_scatter::vector_and_starts;
use crate::schedule::{Peer, Schedule, Span, Step, receive_remote, send_remote};
use crate::task::{Blocks, CollKind, Root, Task};

/// This rank's schedule. Lists of blocks are indexed by ranks of the other group; only the vector of a reduce-scatter is divided
/// among the ranks of the local group. `None` for scans, which intercommunicators do not have.
pub fn plan(kind: CollKind, task: &Task) -> Option<Schedule> {
    let mut schedule = Schedule::default();
    let from_rank_zero = Task { root: Root::Rank(0), ..task.clone() };
    match kind {
        CollKind::Barrier => barrier(&mut schedule, task),
        CollKind::Bcast => match task.root {
            Root::Me => schedule.push_round([send_remote(0, task.output.block(0))]),
            Root::Other => {}
            Root::Rank(root) => {
                if task.rank == 0 {
                    schedule.push_round([receive_remote(root, task.output.block(0))]);
                }
                broadcast(&mut schedule, &from_rank_zero, task.output.block(0));
            }
        },
        CollKind::Gather => match task.root {
            Root::Me => schedule
                .push_round((0..task.remote_size).map(|rank| receive_remote(rank, task.output.block(rank)))),
            Root::Other => {}
            Root::Rank(root) => schedule.push_round([send_remote(root, task.input.block(0))]),
        },
        CollKind::Scatter => match task.root {
            Root::Me => schedule
                .push_round((0..task.remote_size).map(|rank| send_remote(rank, task.input.block(rank)))),
            Root::Other => {}
            Root::Rank(root) => schedule.push_round([receive_remote(root, task.output.block(0))]),
        },
        CollKind::Allgather => in_pairs(&mut schedule, task, |_| task.input.block(0)),
        CollKind::Alltoall => in_pairs(&mut schedule, task, |rank| task.input.block(rank)),
        CollKind::Reduce => match task.root {
            Root::Me => schedule.push_round([receive_remote(0, task.output.block(0))]),
            Root::Other => {}
            Root::Rank(root) => {
                let sum = reduce_to(&mut schedule, task, 0, None);
                if task.rank == 0 {
                    schedule.push_round([send_remote(root, sum)]);
                }
            }
        },
        CollKind::Allreduce => {
            let sum = reduce_to(&mut schedule, task, 0, None);
            if task.rank == 0 {
                schedule.push_round([send_remote(0, sum), receive_remote(0, task.output.block(0))]);
            }
            broadcast(&mut schedule, &from_rank_zero, task.output.block(0));
        }
        CollKind::ReduceScatter => reduce_scatter(&mut schedule, &from_rank_zero),
        CollKind::Scan | CollKind::Exscan => return None,
    }
    Some(schedule)
}

fn barrier(schedule: &mut Schedule, task: &Task) {
    signal_rank_zero(schedule, task.rank, task.size);
    if task.rank == 0 {
        let (peer, span) = (Peer::Remote(0), Span::EMPTY);
        schedule.push_round([Some(Step::Send { peer, span }), Some(Step::Receive { peer, span })]);
    }
    signal_from_rank_zero(schedule, task.rank, task.size);
}

/// In round `r` rank `i` sends to rank `i + r` of the other group, modulo the size of the larger group.
fn in_pairs(schedule: &mut Schedule, task: &Task, block: impl Fn(usize) -> Span) {
    let around = task.size.max(task.remote_size);
    for round in 0..around {
        let (to, from) = ((task.rank + round) % around, (task.rank + around - round) % around);
        schedule.push_round([
            (to < task.remote_size).then(|| send_remote(to, block(to))).flatten(),
            (from < task.remote_size).then(|| receive_remote(from, task.output.block(from))).flatten(),
        ]);
    }
}

fn reduce_scatter(schedule: &mut Schedule, task: &Task) {
    let (whole, cuts) = vector_and_starts(task);
    let sum = reduce_to(schedule, &Task { input: Blocks::single(whole), ..task.clone() }, 0, None);
    let theirs = schedule.scratch_like(whole);
    if task.rank == 0 {
        schedule.push_round([send_remote(0, sum), receive_remote(0, theirs)]);
    }
    let input = Blocks::Split { whole: theirs, cuts: cuts.into() };
    schedule.append(&crate::scatter::linear::plan(&Task { input, ..task.clone() }));
}
