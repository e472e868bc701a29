//! Alltoall by Bruck's algorithm: a block for the rank `d` after this one moves by the bits of `d`, in one message with all others
//! that have the same bit. Few messages, but every byte is sent `log2 p / 2` times; for short blocks of one size.
//!
//! Cost: `ceil(log2 p) (alpha + n p/2 beta)`, less if the number of ranks is no power of two.

use crate::alltoall::staged;
use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, Step, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let blocks: usize = rounds(case.size).map(|bit| count(case.size, bit)).sum();
    Cost::of(case.log(), blocks as f64 * case.n())
}

fn rounds(size: usize) -> impl Iterator<Item = usize> {
    (0..log2_up(size)).map(|round| 1 << round)
}

/// The distances whose blocks move by a bit.
fn travellers(size: usize, bit: usize) -> impl Iterator<Item = usize> {
    (0..size).filter(move |distance| distance & bit != 0)
}

/// The number of these distances.
fn count(size: usize, bit: usize) -> usize {
    size / (2 * bit) * bit + (size % (2 * bit)).saturating_sub(bit)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let task = staged(&mut schedule, task);
    let bytes = task.input.of(0).bytes;
    // Blocks ordered by their remaining distance, and the buffers to send and receive.
    let waiting = schedule.bytes(bytes * size as u64);
    let most = bytes * rounds(size).map(|bit| count(size, bit)).max().unwrap_or(0) as u64;
    let (goes, comes) = (schedule.bytes(most), schedule.bytes(most));
    let slot = |span: crate::Span, at: usize| span.window(bytes * at as u64, bytes * (at as u64 + 1));
    schedule.round((0..size).map(|d| copy(task.input.of((rank + d) % size), slot(waiting, d))));
    for bit in rounds(size) {
        let moving: Vec<usize> = travellers(size, bit).collect();
        let length = bytes * moving.len() as u64;
        let packs = |pack: &dyn Fn(usize, usize) -> Option<Step>| -> Vec<Option<Step>> {
            moving.iter().enumerate().map(|(at, &distance)| pack(at, distance)).collect()
        };
        schedule.round(packs(&|at, distance| copy(slot(waiting, distance), slot(goes, at))));
        let (to, from) = ((rank + bit) % size, (rank + size - bit) % size);
        schedule.round([send(to, goes.window(0, length)), receive(from, comes.window(0, length))]);
        schedule.round(packs(&|at, distance| copy(slot(comes, at), slot(waiting, distance))));
    }
    // The block that moved the distance d came from the rank d before this one.
    schedule.round((0..size).map(|d| copy(slot(waiting, d), task.output.of((rank + size - d) % size))));
    schedule
}
