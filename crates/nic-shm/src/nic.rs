//! The NIC thread: sleeps until a socket or a peer needs it, and makes progress on work that no program
//! thread polls for.
//!
//! It handles the connection protocol, detects dead peers (their sockets close), retries waiting requests,
//! copies for peers that may not copy themselves, and fails queue pairs whose peers failed. A kick names its
//! queue pair, so that the work does not grow with the number of queue pairs. It is never on the path of a
//! message between running processes.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use host::{Span, Time};
use verbs::Result;

use crate::connect::state_machine::{expire_handshakes, on_socket, resume_listeners};
use crate::device_inner::DeviceInner;
use crate::memory::layout::state;
use crate::qp::QpInner;
use crate::send::send_half::ProgressCaller;
use crate::shared::DeviceShared;
use crate::wake::reactor::ReactorEvent;

/// Interval of checks while a queue pair waits for something that may come without notification.
const RETRY_INTERVAL: Span = Span::from_ms(1);
/// Interval of checks whether a peer that was inside when its connection ended has left.
const DEPARTURE_INTERVAL: Span = Span::from_ms(20);
/// Shortest interval of checks of all queue pairs, when peers signal the wake socket without naming one.
const CHECK_ALL_INTERVAL: Span = Span::from_ms(100);

/// Starts a device's thread.
pub(crate) fn start(device: &Arc<DeviceInner>) -> Result<()> {
    let (shared, weak) = (device.shared.clone(), Arc::downgrade(device));
    device.thread.start(&device.shared.host, "nicety-shm", move || run(&shared, &weak))
}

fn run(shared: &DeviceShared, device: &Weak<DeviceInner>) {
    let (mut pause, mut work) = (None, PendingWork::default());
    let mut events = Vec::with_capacity(64);
    let reactor = &shared.reactor;
    while !reactor.epoll.is_stopping() {
        reactor.epoll.sleep(&mut events, pause);
        if reactor.epoll.is_stopping() {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        device.thread.set_current();
        for event in &events {
            match reactor.decode(event) {
                ReactorEvent::WokenByPeer => work.peer_woke_thread = true,
                ReactorEvent::Socket(id) => on_socket(&device, id),
            }
        }
        let next = work.run_round(&device);
        let now = shared.host.now();
        pause = next.map(|at| at.since(now));
    }
}

/// The thread's work that remains from one round to the next.
#[derive(Default)]
struct PendingWork {
    /// Queue pairs that wait for something that may come without notification.
    waiting: BTreeSet<usize>,
    /// A peer has woken the thread since the last round.
    peer_woke_thread: bool,
    /// When to check all queue pairs next, and when that was done last.
    check_all_at: Option<Time>,
    checked_all_at: Time,
}

impl PendingWork {
    /// Checks the queue pairs that were kicked since the last round, and the `waiting` ones. Returns when to
    /// run the next round. The cost does not grow with the number of queue pairs that nobody kicked.
    fn run_round(&mut self, device: &Arc<DeviceInner>) -> Option<Time> {
        device.handle_requested_failures();
        let (shared, objects) = (&device.shared, &device.objects);
        let now = shared.host.now();
        let woken = std::mem::take(&mut self.peer_woke_thread);
        let kicked = &shared.header.kicked;
        if kicked.any() {
            kicked.drain_each(|index| {
                self.waiting.insert(index);
            });
        } else if woken && self.check_all_at.is_none() {
            // An earlier round has handled it, or a faulty peer removed the kick of another one.
            self.check_all_at = Some(self.checked_all_at + CHECK_ALL_INTERVAL);
        }
        if self.check_all_at.is_some_and(|at| at <= now) {
            (self.check_all_at, self.checked_all_at) = (None, now);
            self.waiting.extend(objects.live_qps().iter().map(|qp| qp.index()));
        }
        self.waiting.retain(|&index| objects.qp(index).is_some_and(|qp| check_qp(&qp)));
        let atomics_locked = device.check_atomic_lock();
        let impatient = atomics_locked || !self.waiting.is_empty() || shared.reactor.is_wake_socket_broken();
        let retry = impatient.then(|| now + RETRY_INTERVAL);
        let departures = objects.free_lingering(shared).then(|| now + DEPARTURE_INTERVAL);
        let handshakes = expire_handshakes(device, now);
        let listeners = resume_listeners(device, now);
        let heap_trim = shared.heap_trim.trim_when_quiet(now);
        [retry, self.check_all_at, departures, handshakes, listeners, heap_trim].into_iter().flatten().min()
    }
}

/// Checks a queue pair; returns whether it must be checked again.
fn check_qp(qp: &QpInner) -> bool {
    let connection = &qp.connection;
    if connection.state() != state::ERROR {
        let must_recheck = qp.serve_peer();
        qp.progress(ProgressCaller::NicThread);
        return must_recheck || qp.sending.is_stalled();
    }
    if !connection.has_failed() {
        qp.fail();
    }
    if connection.peer_is_inside() {
        return true;
    }
    // Receives that the peer left unconsumed can be flushed now.
    qp.receiving.completions.wake_all(connection.index);
    qp.report_last_receive();
    false
}

#[cfg(test)]
mod tests {
    use crate::device::device_inner_of;
    use verbs::{Device, QpInit};

    use super::*;

    /// Goal: a kick costs the NIC thread work for the named queue pairs only. Method: a device whose thread
    /// has ended, so that the test runs the rounds; queue pairs that fail without notification show which
    /// ones were checked.
    #[test]
    fn round_checks_kicked_queue_pairs_only() {
        let device: Device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = device_inner_of(&device).expect("a device of this NIC");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..100).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        inner.stop();
        for qp in inner.objects.live_qps() {
            assert!(qp.connection.advance(state::INIT, state::ERROR), "without a notification");
        }
        let mut work = PendingWork::default();
        let checked = |work: &mut PendingWork| {
            assert_eq!(work.run_round(&inner), None, "nothing to wait for");
            let dealt_with = |qp: &Arc<QpInner>| qp.connection.has_failed();
            inner
                .objects
                .live_qps()
                .iter()
                .filter(|qp| dealt_with(qp))
                .map(|qp| qp.index())
                .collect::<Vec<_>>()
        };
        assert_eq!(checked(&mut work), [0; 0], "no queue pair was kicked");
        [7, 64, 99, 7].iter().for_each(|&index| inner.shared.kick_qp(index));
        assert_eq!(checked(&mut work), [7, 64, 99]);
        // A ring that names no queue pair, as when a third process has removed the name, is still handled,
        // some time after the last check of all: the clock starts with the process.
        let later = || (inner.shared.host.now() > Time::ZERO + CHECK_ALL_INTERVAL).then_some(());
        inner
            .shared
            .host
            .poll("a later time", inner.shared.host.after(Span::from_secs(30)), later)
            .expect("a running clock");
        work.peer_woke_thread = true;
        assert_eq!(checked(&mut work).len(), 100);
        drop(qps);
    }
    /// Goal: the NIC thread returns the memory of many freed objects. Method: many queue pairs are created
    /// and destroyed; the test runs the rounds instead of the thread, which has ended, until the memory is
    /// returned.
    #[test]
    fn rounds_continue_until_freed_memory_is_returned() {
        let device: Device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = device_inner_of(&device).expect("a device of this NIC");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        inner.stop();
        let mut work = PendingWork::default();
        let crowd: Vec<_> =
            (0..1024).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        assert_eq!(work.run_round(&inner), None, "nothing was freed");
        drop(crowd);
        assert!(work.run_round(&inner).is_some(), "many objects were freed");
        let calm = || work.run_round(&inner).is_none().then_some(());
        let patience = inner.shared.host.after(Span::from_secs(30));
        assert!(
            inner.shared.host.poll("the end of freeing", patience, calm).is_some(),
            "memory was never returned"
        );
    }
}
