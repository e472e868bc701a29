//! Checks how long a cache line takes between two cores. Short messages through shared memory take a small multiple of that, and on
//! virtual machines it may change from hour to hour, while copies within a core stay as fast as before.

use std::time::{Duration, Instant};

use nic_util::floor::{Lines, Region, Role};

use super::check::Check;

/// Round trips of a turn, and turns. The median turn counts.
const ROUNDS: u64 = 2000;
const TURNS: usize = 11;
/// How long a core may not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// From this time on, a line takes longer than between the sockets of the machines that were measured.
const SLOW_NS: f64 = 150.0;

/// Passes a line between the first two cores.
pub(super) fn lines(cores: &[usize]) -> Check {
    match cores {
        [near, far, ..] => check_time((*near, *far), one_way_ns(*near, *far)),
        _ => Check::ok("lines", "not measured: there is one core"),
    }
}

fn check_time((near, far): (usize, usize), ns: Option<f64>) -> Check {
    let id = "lines";
    let Some(ns) = ns else { return Check::ok(id, "could not be measured") };
    let found = format!("a cache line goes from core {near} to core {far} in {ns:.0} ns");
    if ns < SLOW_NS {
        return Check::ok(id, found);
    }
    Check::warn(
        id,
        found,
        "Short messages through shared memory take longer by that, in all libraries. On a virtual machine the host may have placed \
         the cores far from each other, and may move them during a run.",
        "compare results within one run only (nicety compare names floors that differ), repeat later, or pin to two cores of one \
         socket: --set cores=A,B",
    )
}

/// Half the median round trip of a line; `None` where threads cannot be pinned.
fn one_way_ns(near: usize, far: usize) -> Option<f64> {
    let page = Region::shared(4096).ok()?;
    let all = TURNS as u64 * ROUNDS;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host::real::pin_to_core(far).ok()?;
            let began = Instant::now();
            page.bounce((Role::Pong, Lines::One), 0, all, 0, &|| began.elapsed() > PATIENCE).ok()
        });
        let pinging = scope.spawn(|| {
            host::real::pin_to_core(near).ok()?;
            let (began, mut from, mut turns) = (Instant::now(), 0, Vec::with_capacity(TURNS));
            for _ in 0..TURNS {
                let turn = Instant::now();
                let gave_up = || began.elapsed() > PATIENCE;
                from = page.bounce((Role::Ping, Lines::One), from, ROUNDS, 0, &gave_up).ok()?;
                turns.push(turn.elapsed());
            }
            turns.sort_unstable();
            Some(turns[TURNS / 2].as_nanos() as f64 / (2 * ROUNDS) as f64)
        });
        pinging.join().ok()?
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::*;

    #[test]
    fn slow_lines_are_a_warning_with_their_time() {
        assert_eq!(check_time((0, 1), Some(50.0)).state, Severity::Ok);
        let slow = check_time((0, 3), Some(204.4));
        assert_eq!(slow.state, Severity::Warn);
        assert!(slow.found.contains("from core 0 to core 3 in 204 ns"), "{}", slow.found);
        assert_eq!(check_time((0, 1), None).state, Severity::Ok);
        assert_eq!(lines(&[0]).state, Severity::Ok);
    }

    /// A missing core is not an error of the check, and nothing waits for it forever.
    #[test]
    fn cores_that_do_not_exist_are_not_measured() {
        assert_eq!(one_way_ns(4000, 4001), None);
    }
}
