//! Barrier by dissemination: in round `k` each rank notifies the rank `2^k` after it. After `ceil(log2 p)` rounds each rank was
//! notified, directly or indirectly, by all. It is the shortest barrier where a message costs the same between any two ranks.
//!
//! Cost: `ceil(log2 p) alpha`.

use super::{send_signal, wait_signal};
use crate::cost::{Case, Cost, log2_up};
use crate::schedule::Schedule;
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    Cost::new(case.log(), 0.0)
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, size) = (Schedule::default(), task.size);
    for distance in (0..log2_up(size)).map(|round| 1 << round) {
        schedule.push_round([
            send_signal((task.rank + distance) % size),
            wait_signal((task.rank + size - distance) % size),
        ]);
    }
    schedule
}
