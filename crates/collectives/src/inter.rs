//! Collectives of an intercommunicator, between two groups, with one algorithm each.
//!
//! Operations that concern all of a group use its rank 0, with binomial trees inside the group. Blocks from each rank to each other
//! are sent directly, in pairs.

use crate::barrier::tree::{down, up as gather_signals};
use crate::bcast::binomial::spread;
use crate::reduce::binomial::up;
use crate::reduce_scatter::vector;
use crate::schedule::{Peer, Schedule, Span, Step, receive_remote, send_remote};
use crate::task::{Blocks, Kind, Root, Task};

/// This rank's schedule. Lists of blocks are indexed by ranks of the other group; only the vector of a reduce-scatter is divided
/// among the ranks of the local group. `None` for scans, which intercommunicators do not have.
pub fn plan(kind: Kind, task: &Task) -> Option<Schedule> {
    let mut schedule = Schedule::default();
    let by_zero = Task { root: Root::Rank(0), ..task.clone() };
    match kind {
        Kind::Barrier => barrier(&mut schedule, task),
        Kind::Bcast => match task.root {
            Root::Me => schedule.round([send_remote(0, task.output.of(0))]),
            Root::Other => {}
            Root::Rank(root) => {
                if task.rank == 0 {
                    schedule.round([receive_remote(root, task.output.of(0))]);
                }
                spread(&mut schedule, &by_zero, task.output.of(0));
            }
        },
        Kind::Gather => match task.root {
            Root::Me => {
                schedule.round((0..task.remote).map(|rank| receive_remote(rank, task.output.of(rank))))
            }
            Root::Other => {}
            Root::Rank(root) => schedule.round([send_remote(root, task.input.of(0))]),
        },
        Kind::Scatter => match task.root {
            Root::Me => schedule.round((0..task.remote).map(|rank| send_remote(rank, task.input.of(rank)))),
            Root::Other => {}
            Root::Rank(root) => schedule.round([receive_remote(root, task.output.of(0))]),
        },
        Kind::Allgather => in_pairs(&mut schedule, task, |_| task.input.of(0)),
        Kind::Alltoall => in_pairs(&mut schedule, task, |rank| task.input.of(rank)),
        Kind::Reduce => match task.root {
            Root::Me => schedule.round([receive_remote(0, task.output.of(0))]),
            Root::Other => {}
            Root::Rank(root) => {
                let sum = up(&mut schedule, task, 0, None);
                if task.rank == 0 {
                    schedule.round([send_remote(root, sum)]);
                }
            }
        },
        Kind::Allreduce => {
            let sum = up(&mut schedule, task, 0, None);
            if task.rank == 0 {
                schedule.round([send_remote(0, sum), receive_remote(0, task.output.of(0))]);
            }
            spread(&mut schedule, &by_zero, task.output.of(0));
        }
        Kind::ReduceScatter => reduce_scatter(&mut schedule, &by_zero),
        Kind::Scan | Kind::Exscan => return None,
    }
    Some(schedule)
}

fn barrier(schedule: &mut Schedule, task: &Task) {
    gather_signals(schedule, task.rank, task.size);
    if task.rank == 0 {
        let (peer, span) = (Peer::Remote(0), Span::EMPTY);
        schedule.round([Some(Step::Send { peer, span }), Some(Step::Receive { peer, span })]);
    }
    down(schedule, task.rank, task.size);
}

/// In round `r` rank `i` sends to rank `i + r` of the other group, modulo the size of the larger group.
fn in_pairs(schedule: &mut Schedule, task: &Task, block: impl Fn(usize) -> Span) {
    let around = task.size.max(task.remote);
    for round in 0..around {
        let (to, from) = ((task.rank + round) % around, (task.rank + around - round) % around);
        schedule.round([
            (to < task.remote).then(|| send_remote(to, block(to))).flatten(),
            (from < task.remote).then(|| receive_remote(from, task.output.of(from))).flatten(),
        ]);
    }
}

fn reduce_scatter(schedule: &mut Schedule, task: &Task) {
    let (whole, cuts) = vector(task);
    let sum = up(schedule, &Task { input: Blocks::one(whole), ..task.clone() }, 0, None);
    let theirs = schedule.like(whole);
    if task.rank == 0 {
        schedule.round([send_remote(0, sum), receive_remote(0, theirs)]);
    }
    let input = Blocks::Cut { whole: theirs, cuts: cuts.into() };
    schedule.then(&crate::scatter::linear::plan(&Task { input, ..task.clone() }));
}
