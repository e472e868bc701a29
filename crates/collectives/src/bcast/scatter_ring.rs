//! Broadcast by scattering parts over a binomial tree and gathering them around a ring (van de Geijn). For long messages: every
//! byte passes twice over the busiest link, for any number of ranks.
//!
//! Cost: `(ceil(log2 p) + p - 1) alpha + 2 n (p - 1)/p beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, receive, send};
use crate::task::Task;
use crate::tree;
use crate::vector::cut_bytes;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::of(case.log() + case.ranks() - 1.0, 2.0 * case.n() * (1.0 - 1.0 / case.ranks()))
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, data, number, size) =
        (Schedule::default(), task.output.of(0), task.number(), task.size);
    // The parts from `first` to `end`, numbered from the root on.
    let parts = |first: usize, end: usize| {
        data.window(cut_bytes(data.bytes, first, size), cut_bytes(data.bytes, end, size))
    };
    let below = |number: usize| parts(number, tree::end(number, size));
    schedule.round([tree::parent(number).and_then(|parent| receive(task.at(parent), below(number)))]);
    for child in tree::children(number, size).into_iter().rev() {
        schedule.round([send(task.at(child), below(child))]);
    }
    for round in 0..size - 1 {
        let part = |behind: usize| {
            let number = (number + size - behind) % size;
            parts(number, number + 1)
        };
        let (next, previous) = (task.at(number + 1), task.at(number + size - 1));
        schedule.round([send(next, part(round)), receive(previous, part(round + 1))]);
    }
    schedule
}
