//! Barrier by recursive doubling: in round `k` ranks that differ in bit `k` notify each other. As short as dissemination, with half
//! the peers, which other recursive algorithms use, too: fewer connections. For powers of two.
//!
//! Cost: `log2 p alpha`.

use super::{send_signal, wait_signal};
use crate::cost::{Case, Cost};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.log(), 0.0)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let mut schedule = Schedule::default();
    for peer in (0..task.size.ilog2()).map(|round| task.rank ^ (1 << round)) {
        schedule.push_round([send_signal(peer), wait_signal(peer)]);
    }
    schedule
}
