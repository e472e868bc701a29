//! Allreduce around a ring: each part is reduced on its way around the ring, and its result is sent around once more. As few bytes
//! as Rabenseifner's for any number of ranks, and only between neighbours, but the rounds grow with the ranks. The operator must be
//! commutative.
//!
//! Cost: `2 (p - 1) alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma`.

use crate::accumulator::{Accumulator, part_start};
use crate::allgather::ring::forward_blocks;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, send};
use crate::task::{Blocks, Task};

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, part) = (case.ranks() - 1.0, case.n() * (1.0 - 1.0 / case.ranks()));
    Cost::with_reduction(2.0 * others, 2.0 * part, part)
}

/// The reduction of a part ends at the rank that starts to forward the result.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.block(0), task.output.block(0));
    let (rank, size) = (task.rank, task.size);
    if size == 1 {
        schedule.push_round([copy(input, sum)]);
        return schedule;
    }
    let cuts: Vec<i64> = (0..=size).map(|part| part_start(input.count, part, size)).collect();
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut accumulator = Accumulator::new(input, sum);
    for round in 1..size {
        let (sent_part, received_part) = ((rank + size - round) % size, (rank + 2 * size - round - 1) % size);
        // Each part is reduced here once: before that its operand is in the input, afterwards in the sum.
        let from = if round == 1 { accumulator.operand() } else { sum };
        let (receives, reduces) = accumulator.receive_and_reduce(
            &mut schedule,
            (previous, true),
            (cuts[received_part], cuts[received_part + 1]),
        );
        schedule.push_round([send(next, from.elements(cuts[sent_part], cuts[sent_part + 1])), receives]);
        schedule.push_round([reduces]);
    }
    forward_blocks(&mut schedule, rank, size, &Blocks::Split { whole: sum, cuts: cuts.into() });
    schedule
}
