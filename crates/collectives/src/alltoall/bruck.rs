//! Alltoall by Bruck's algorithm: a block for the rank `d` after this one moves by the bits of `d`, in one message with all others
//! that have the same bit. Few messages, but every byte is sent `log2 p / 2` times; for short blocks of one size.
//!
//! Cost: `ceil(log2 p) (alpha + n p/2 beta)`, less if the number of ranks is no power of two.

use crate::alltoall::with_separate_input;
use crate::cost::{Case, Cost, log2_up};
use crate::schedule::{Schedule, Step, copy, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    let blocks: usize = rounds(case.size).map(|bit| distances_with_bit_count(case.size, bit)).sum();
    Cost::new(case.log(), blocks as f64 * case.n())
}

fn rounds(size: usize) -> impl Iterator<Item = usize> {
    (0..log2_up(size)).map(|round| 1 << round)
}

/// The distances whose blocks move by a bit.
fn distances_with_bit(size: usize, bit: usize) -> impl Iterator<Item = usize> {
    (0..size).filter(move |distance| distance & bit != 0)
}

/// The number of these distances.
fn distances_with_bit_count(size: usize, bit: usize) -> usize {
    size / (2 * bit) * bit + (size % (2 * bit)).saturating_sub(bit)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, rank, size) = (Schedule::default(), task.rank, task.size);
    let task = with_separate_input(&mut schedule, task);
    let bytes = task.input.block(0).bytes;
    // Blocks ordered by their remaining distance, and the buffers to send and receive.
    let by_distance = schedule.scratch_bytes(bytes * size as u64);
    let most = bytes * rounds(size).map(|bit| distances_with_bit_count(size, bit)).max().unwrap_or(0) as u64;
    let (send_buffer, receive_buffer) = (schedule.scratch_bytes(most), schedule.scratch_bytes(most));
    let slot = |span: crate::Span, at: usize| span.window(bytes * at as u64, bytes * (at as u64 + 1));
    schedule.push_round((0..size).map(|d| copy(task.input.block((rank + d) % size), slot(by_distance, d))));
    for bit in rounds(size) {
        let moving: Vec<usize> = distances_with_bit(size, bit).collect();
        let length = bytes * moving.len() as u64;
        let packs = |pack: &dyn Fn(usize, usize) -> Option<Step>| -> Vec<Option<Step>> {
            moving.iter().enumerate().map(|(at, &distance)| pack(at, distance)).collect()
        };
        schedule.push_round(packs(&|at, distance| copy(slot(by_distance, distance), slot(send_buffer, at))));
        let (to, from) = ((rank + bit) % size, (rank + size - bit) % size);
        schedule.push_round([
            send(to, send_buffer.window(0, length)),
            receive(from, receive_buffer.window(0, length)),
        ]);
        schedule
            .push_round(packs(&|at, distance| copy(slot(receive_buffer, at), slot(by_distance, distance))));
    }
    // The block that moved the distance d came from the rank d before this one.
    schedule.push_round(
        (0..size).map(|d| copy(slot(by_distance, d), task.output.block((rank + size - d) % size))),
    );
    schedule
}
