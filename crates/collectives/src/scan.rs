//! Scans: reduce the vectors of all ranks up to each, in rank order.
//!
//! In round `k` each rank receives the partial sum of the rank `2^k` before it, which doubles the number of vectors in its own sum.
//! An exclusive scan is a scan over the vectors of the preceding ranks.
//!
//! Cost: `ceil(log2 p) (alpha + n (beta + gamma))`; for an exclusive scan, `alpha + n beta` plus the same for `p - 1` ranks.

use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;
use crate::vector::Vector;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::reducing(case.log(), case.log() * case.n(), case.log() * case.n())
}

pub(crate) fn cost_exclusive(case: &Case) -> Cost {
    if case.size == 1 {
        return Cost::of(0.0, 0.0);
    }
    let rounds = f64::from(log2_up(case.size - 1));
    Cost::reducing(rounds + 1.0, (rounds + 1.0) * case.n(), rounds * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.of(0), task.output.of(0));
    if task.rank == 0 {
        schedule.round([copy(input, sum)]);
    }
    accumulate(&mut schedule, Vector::new(input, sum), task, 0);
    schedule
}

pub(crate) fn plan_exclusive(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.of(0), task.output.of(0));
    // In place, the vector to send must be copied before the received one overwrites it.
    let goes =
        if input == sum && task.rank > 0 && task.rank + 1 < task.size { schedule.like(input) } else { input };
    schedule.round([copy(input, goes)]);
    let (next, previous) = (task.rank + 1, task.rank.wrapping_sub(1));
    schedule.round([
        (next < task.size).then(|| send(next, goes)).flatten(),
        (task.rank > 0).then(|| receive(previous, sum)).flatten(),
    ]);
    if task.rank > 0 {
        accumulate(&mut schedule, Vector::new(sum, sum), task, 1);
    }
    schedule
}

/// Sums the vectors of the ranks from `first` up to each.
fn accumulate(schedule: &mut Schedule, mut vector: Vector, task: &Task, first: usize) {
    let (rank, size, whole) = (task.rank, task.size, (0, vector.sum.count));
    for distance in (0..log2_up(size - first)).map(|round| 1 << round) {
        let goes = (rank + distance < size).then(|| send(rank + distance, vector.now())).flatten();
        let (comes, reduces) = match rank >= first + distance {
            true => vector.take(schedule, (rank - distance, true), whole),
            false => (None, None),
        };
        schedule.round([goes, comes]);
        schedule.round([reduces]);
        if rank >= first + distance {
            vector.taken();
        }
    }
}
