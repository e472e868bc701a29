//! Allreduce around a ring: each part is reduced on its way around the ring, and its result is sent around once more. As few bytes
//! as Rabenseifner's for any number of ranks, and only between neighbours, but the rounds grow with the ranks. The operator must be
//! commutative.
//!
//! Cost: `2 (p - 1) alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma`.

use crate::allgather::ring::pass_on;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, send};
use crate::task::{Blocks, Task};
use crate::vector::{Vector, cut};

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, part) = (case.ranks() - 1.0, case.n() * (1.0 - 1.0 / case.ranks()));
    Cost::reducing(2.0 * others, 2.0 * part, part)
}

/// The reduction of a part ends at the rank that starts to forward the result.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, input, sum) = (Schedule::default(), task.input.of(0), task.output.of(0));
    let (rank, size) = (task.rank, task.size);
    if size == 1 {
        schedule.round([copy(input, sum)]);
        return schedule;
    }
    let cuts: Vec<i64> = (0..=size).map(|part| cut(input.count, part, size)).collect();
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut vector = Vector::new(input, sum);
    for round in 1..size {
        let (goes, comes) = ((rank + size - round) % size, (rank + 2 * size - round - 1) % size);
        // Each part is reduced here once: before that its operand is in the input, afterwards in the sum.
        let from = if round == 1 { vector.now() } else { sum };
        let (takes, reduces) = vector.take(&mut schedule, (previous, true), (cuts[comes], cuts[comes + 1]));
        schedule.round([send(next, from.elements(cuts[goes], cuts[goes + 1])), takes]);
        schedule.round([reduces]);
    }
    pass_on(&mut schedule, rank, size, &Blocks::Cut { whole: sum, cuts: cuts.into() });
    schedule
}
