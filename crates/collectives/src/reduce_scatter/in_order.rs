//! Reduce-scatter in rank order, for operators that are not commutative: a binomial tree reduces to rank 0, which sends each rank
//! its block.
//!
//! Cost: `(ceil(log2 p) + 1) alpha + (p - 2) gap + (ceil(log2 p) + (p - 1)/p) n beta + ceil(log2 p) n gamma`.

use crate::cost::{Case, Cost};
use crate::reduce::binomial::up;
use crate::reduce_scatter::vector;
use crate::schedule::Schedule;
use crate::task::{Blocks, Root, Task};

pub(crate) fn cost(case: &Case) -> Cost {
    let part = 1.0 - 1.0 / case.ranks();
    Cost::reducing(case.log() + case.one_round(), (case.log() + part) * case.n(), case.log() * case.n())
        .and_further(case.others_but_one())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, (whole, cuts)) = (Schedule::default(), vector(task));
    let reduce = Task { input: Blocks::one(whole), root: Root::Rank(0), ..task.clone() };
    let sum = up(&mut schedule, &reduce, 0, None);
    let input = Blocks::Cut { whole: sum, cuts: cuts.into() };
    let scattered = crate::scatter::linear::plan(&Task { input, root: Root::Rank(0), ..task.clone() });
    schedule.then(&scattered);
    schedule
}
