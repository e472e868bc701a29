//! Broadcast by scattering parts over a binomial tree and gathering them around a ring (van de Geijn). For long messages: every
//! byte passes twice over the busiest link, for any number of ranks.
//!
//! Cost: `(ceil(log2 p) + p - 1) alpha + 2 n (p - 1)/p beta`.

use crate::accumulator::part_start_bytes;
use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, receive, send};
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    let (others, part) = (case.ranks() - 1.0, case.n() / case.ranks());
    let all = case.blocks_up_a_tree() + case.ranks() * others;
    Cost::new(case.log() + others, 2.0 * part * others).with_all(others + case.ranks() * others, all * part)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, data, number, size) =
        (Schedule::default(), task.output.block(0), task.relative_rank(), task.size);
    // The parts from `first` to `end`, numbered from the root on.
    let parts = |first: usize, end: usize| {
        data.window(part_start_bytes(data.bytes, first, size), part_start_bytes(data.bytes, end, size))
    };
    let below = |number: usize| parts(number, tree::subtree_end(number, size));
    schedule
        .push_round([tree::parent(number).and_then(|parent| receive(task.rank_of(parent), below(number)))]);
    for child in tree::children(number, size).into_iter().rev() {
        schedule.push_round([send(task.rank_of(child), below(child))]);
    }
    for round in 0..size - 1 {
        let part = |behind: usize| {
            let number = (number + size - behind) % size;
            parts(number, number + 1)
        };
        let (next, previous) = (task.rank_of(number + 1), task.rank_of(number + size - 1));
        schedule.push_round([send(next, part(round)), receive(previous, part(round + 1))]);
    }
    schedule
}
