//! Scans: reduce the vectors of all ranks up to each, in rank order.
//!
//! In round `k` each rank receives the partial sum of the rank `2^k` before it, which doubles the number of vectors in its own sum.
//! An exclusive scan is a scan over the vectors of the preceding ranks.
//!
//! Cost: `ceil(log2 p) (alpha + n (beta + gamma))`; for an exclusive scan, `alpha + n beta` plus the same for `p - 1` ranks.

use crate::accumulator::Accumulator;
use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let all = messages_of(case.size);
    Cost::with_reduction(case.log(), case.log() * case.n(), case.log() * case.n())
        .with_all(all, all * case.n())
}

/// The messages of all ranks of a scan: in each round, one for each rank that has a rank so far before it.
fn messages_of(size: usize) -> f64 {
    (0..log2_up(size)).map(|round| (size - (1 << round)) as f64).sum()
}

pub(crate) fn cost_exclusive(case: &Case) -> Cost {
    if case.size == 1 {
        return Cost::new(0.0, 0.0);
    }
    let rounds = f64::from(log2_up(case.size - 1));
    let all = case.ranks() - 1.0 + messages_of(case.size - 1);
    Cost::with_reduction(rounds + 1.0, (rounds + 1.0) * case.n(), rounds * case.n())
        .with_all(all, all * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.block(0), task.output.block(0));
    if task.rank == 0 {
        schedule.push_round([copy(input, sum)]);
    }
    accumulate(&mut schedule, Accumulator::new(input, sum), task, 0);
    schedule
}

pub(crate) fn plan_exclusive(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.block(0), task.output.block(0));
    // In place, the vector to send must be copied before the received one overwrites it.
    let sends = if input == sum && task.rank > 0 && task.rank + 1 < task.size {
        schedule.scratch_like(input)
    } else {
        input
    };
    schedule.push_round([copy(input, sends)]);
    let (next, previous) = (task.rank + 1, task.rank.wrapping_sub(1));
    schedule.push_round([
        (next < task.size).then(|| send(next, sends)).flatten(),
        (task.rank > 0).then(|| receive(previous, sum)).flatten(),
    ]);
    if task.rank > 0 {
        accumulate(&mut schedule, Accumulator::new(sum, sum), task, 1);
    }
    schedule
}

/// Sums the vectors of the ranks from `first` up to each.
fn accumulate(schedule: &mut Schedule, mut accumulator: Accumulator, task: &Task, first: usize) {
    let (rank, size, whole) = (task.rank, task.size, (0, accumulator.sum.count));
    for distance in (0..log2_up(size - first)).map(|round| 1 << round) {
        let sends = (rank + distance < size).then(|| send(rank + distance, accumulator.operand())).flatten();
        let (receives, reduces) = match rank >= first + distance {
            true => accumulator.receive_and_reduce(schedule, (rank - distance, true), whole),
            false => (None, None),
        };
        schedule.push_round([sends, receives]);
        schedule.push_round([reduces]);
        if rank >= first + distance {
            accumulator.mark_filled();
        }
    }
}
