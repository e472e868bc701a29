//! Reduce-scatter in rank order, for operators that are not commutative: a binomial tree reduces to rank 0, which sends each rank
//! its block.
//!
//! Cost: `(ceil(log2 p) + 1) alpha + (p - 2) gap + (ceil(log2 p) + (p - 1)/p) n beta + ceil(log2 p) n gamma`.

use crate::cost::{Case, Cost};
use crate::reduce::binomial::reduce_to;
use crate::reduce_scatter::vector_and_starts;
use crate::schedule::Schedule;
use crate::task::{Blocks, Root, Task};

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, part) = (case.ranks() - 1.0, 1.0 - 1.0 / case.ranks());
    Cost::with_reduction(case.log() + case.one_round(), (case.log() + part) * case.n(), case.log() * case.n())
        .with_further(case.others_but_one())
        .with_all(2.0 * others, (others + part) * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, (whole, cuts)) = (Schedule::default(), vector_and_starts(task));
    let reduce = Task { input: Blocks::single(whole), root: Root::Rank(0), ..task.clone() };
    let sum = reduce_to(&mut schedule, &reduce, 0, None);
    let input = Blocks::Split { whole: sum, cuts: cuts.into() };
    let scattered = crate::scatter::linear::plan(&Task { input, root: Root::Rank(0), ..task.clone() });
    schedule.append(&scattered);
    schedule
}
