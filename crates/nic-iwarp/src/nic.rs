//! The NIC thread: sleeps until a socket has an event, and drives the connections that no other thread polls.
//!
//! It establishes connections, detects peers that fall silent or close, and checks, at least once per millisecond,
//! whether pollers still poll. `connection::poll_owner` describes how a connection moves between the NIC thread and
//! pollers.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use host::{Span, Time};
use rustix::event::epoll::EventFlags;
use verbs::Result;

use crate::config::IwarpConfig;
use crate::connect::handshake;
use crate::connection::end_reason::EndReason;
use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use crate::wake::reactor::{ATTEMPT, LINGERING, LISTENER, STREAM, SocketEvent, decode};

/// The first and the longest pause between two checks whether a poller still polls.
const CHECK_PAUSE_MIN: Span = Span::from_us(50);
const CHECK_PAUSE_MAX: Span = Span::from_ms(1);

/// Starts a device's thread.
pub(crate) fn start(device: &Arc<DeviceInner>) -> Result<()> {
    let (shared, weak) = (device.shared.clone(), Arc::downgrade(device));
    device.thread.start(&device.shared.host, "nicety-iwarp", move || run(&shared, &weak))
}

fn run(shared: &DeviceShared, device: &Weak<DeviceInner>) {
    let (mut state, mut spin_policy) = (ThreadState::default(), SpinPolicy::default());
    let (mut pause, mut awake_until) = (None, None);
    let (epoll_set, host) = (&shared.reactor.epoll_set, &shared.host);
    let mut events = Vec::with_capacity(64);
    while !epoll_set.is_stopping() {
        let is_awake = || awake_until.is_some_and(|until| host.now() < until);
        let mut any = false;
        while !any && is_awake() {
            any = epoll_set.sleep(&mut events, Some(Span::ZERO));
        }
        if !any {
            epoll_set.sleep(&mut events, pause);
        }
        if epoll_set.is_stopping() {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        let (began, woken) = (host.now(), shared.wake_count());
        device.thread.set_current();
        for event in &events {
            state.on_event(&device, &decode(event));
        }
        let next = state.run_due(&device);
        let now = host.now();
        pause = next.map(|at| at.since(now));
        awake_until = spin_policy.on_work(began, now, shared.wake_count() != woken);
    }
}

/// Work of this length has copied a lot of data.
const LONG_WORK: Span = Span::from_us(8);
/// Work that follows within this time belongs to the same stream.
const STREAM_GAP: Span = Span::from_us(200);
/// How long the thread polls for more of a stream before it sleeps.
const SPIN_TIME: Span = Span::from_us(50);

/// How densely work follows on work. While a lot of data arrives in quick succession, the thread polls for a moment
/// before it sleeps: waking it would take longer than the next arrival, and the sender would pay for it, too. A
/// stream may arrive one small segment at a time, so recent work is added up. Work that woke another thread does not
/// count: that thread handles the next data, often on this very core.
#[derive(Default)]
struct SpinPolicy {
    /// When the last work ended.
    ended: Option<Time>,
    /// Recent working time, weighted by age; work older than [`SPIN_TIME`] does not count.
    busy: Span,
}

impl SpinPolicy {
    /// Records work; `woken` means that it woke another thread. Returns until when to stay awake for more.
    fn on_work(&mut self, began: Time, ended: Time, woken: bool) -> Option<Time> {
        let gap = self.ended.replace(ended).map(|before| began.since(before));
        let left = SPIN_TIME.as_ps().saturating_sub(gap.unwrap_or(SPIN_TIME).as_ps());
        let recent =
            (u128::from(self.busy.as_ps()) * u128::from(left) / u128::from(SPIN_TIME.as_ps())) as u64;
        self.busy =
            if woken { Span::ZERO } else { (Span::from_ps(recent) + ended.since(began)).min(SPIN_TIME) };
        (gap.is_some_and(|gap| gap <= STREAM_GAP) && self.busy >= LONG_WORK).then(|| ended + SPIN_TIME)
    }
}

/// The connections that the NIC thread watches because other threads poll them.
#[derive(Default)]
struct WatchList {
    list: BTreeMap<u32, Weak<QpInner>>,
    /// The poll count of the pollers' epoll set at the last check.
    set_polls: u32,
    pause: Option<Span>,
    due: Option<Time>,
}

impl WatchList {
    fn add(&mut self, qp: &Arc<QpInner>, now: Time) {
        self.list.insert(qp.num(), Arc::downgrade(qp));
        self.pause = Some(CHECK_PAUSE_MIN);
        self.due = Some(now + CHECK_PAUSE_MIN);
    }

    /// Checks all watched connections if it is time.
    fn check(&mut self, shared: &DeviceShared, now: Time) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let polls = shared.ready_set.poll_count();
        let polls_continue = std::mem::replace(&mut self.set_polls, polls) != polls;
        // With many connections, a poll of the pollers' epoll set covers them all: while polls continue, none
        // needs a check.
        if !(polls_continue && shared.has_many_connections()) {
            // If another thread holds the lock it is working on the connection: waiting for the lock would only slow
            // it down.
            let stays = |qp: Arc<QpInner>| qp.try_with(|conn| conn.check_polls(&qp.queues)).unwrap_or(true);
            self.list.retain(|_, qp| qp.upgrade().is_some_and(stays));
        }
        let pause = self.pause.map_or(CHECK_PAUSE_MIN, |pause| (pause * 2).min(CHECK_PAUSE_MAX));
        self.pause = Some(pause);
        self.due = (!self.list.is_empty()).then(|| now + pause);
    }
}

/// The state that the thread keeps between rounds.
#[derive(Default)]
struct ThreadState {
    watch: WatchList,
    /// When the next check for silent peers is due.
    keepalive_due: Option<Time>,
}

impl ThreadState {
    fn on_event(&mut self, device: &Arc<DeviceInner>, &SocketEvent { kind, id, flags }: &SocketEvent) {
        match kind {
            LISTENER => handshake::on_listener(device, id),
            ATTEMPT => handshake::on_attempt(device, id),
            LINGERING => device.shared.lingering().on_event(&device.shared.reactor, id),
            STREAM => {
                let Some(qp) = device.qp(id as u32) else { return };
                let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                if qp.with(|conn| conn.on_event(&qp.queues, hung_up)) {
                    self.watch.add(&qp, device.shared.host.now());
                }
            }
            _ => {}
        }
    }

    /// Does the work that is due; returns when the next is.
    fn run_due(&mut self, device: &Arc<DeviceInner>) -> Option<Time> {
        let shared = &device.shared;
        handshake::handle_thread_requests(device);
        device.remove_ended();
        let overrun_cqs = shared.take_overrun_cqs();
        if !overrun_cqs.is_empty() {
            let is_user = |qp: &Arc<QpInner>| overrun_cqs.iter().any(|&cq| qp.queues.uses_cq(cq));
            device.live_qps().iter().filter(|qp| is_user(qp)).for_each(|qp| qp.end(&EndReason::Overrun));
        }
        let now = shared.host.now();
        for qp in shared.reactor.take_taken_over().into_iter().filter_map(|num| device.qp(num)) {
            self.watch.add(&qp, now);
        }
        self.watch.check(shared, now);
        let (due, timers) = shared.reactor.expired_timers(now);
        for qp in due.into_iter().filter_map(|num| device.qp(num)) {
            qp.with(|conn| conn.on_timer(&qp.queues, now));
        }
        let attempts = handshake::expire(device, now);
        let listeners = handshake::resume_listeners(device, now);
        let check_keepalives = self.check_keepalives(device, now);
        let lingering = shared.lingering().expire(now);
        let heap_trim = shared.heap_trim.trim_when_quiet(now);
        [self.watch.due, timers, attempts, listeners, check_keepalives, lingering, heap_trim]
            .into_iter()
            .flatten()
            .min()
    }

    /// Checks for silent peers if it is time; returns when the next check is due.
    fn check_keepalives(&mut self, device: &DeviceInner, now: Time) -> Option<Time> {
        let silence = device.shared.config.silence.max(IwarpConfig::SILENCE_MIN);
        match self.keepalive_due {
            Some(due) if now < due => {}
            due => {
                let connected = device.connected();
                if due.is_some() {
                    connected
                        .iter()
                        .for_each(|qp| qp.with(|conn| conn.check_keepalive(&qp.queues, now, silence)));
                }
                self.keepalive_due = (!connected.is_empty()).then(|| now + silence / 4);
            }
        }
        self.keepalive_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_stays_awake_during_dense_work() {
        let at = |us| Time::ZERO + Span::from_us(us);
        let mut spin_policy = SpinPolicy::default();
        assert_eq!(spin_policy.on_work(at(1000), at(1020), false), None, "the first");
        assert_eq!(spin_policy.on_work(at(1040), at(1060), false), Some(at(1110)));
        assert_eq!(
            spin_policy.on_work(at(1080), at(1083), false),
            Some(at(1133)),
            "little work, right after much"
        );
        assert_eq!(spin_policy.on_work(at(1283), at(1303), false), Some(at(1353)));
        assert_eq!(spin_policy.on_work(at(1504), at(1604), false), None, "late");
        assert_eq!(
            spin_policy.on_work(at(1624), at(1644), true),
            None,
            "another thread was woken and needs a core"
        );
        assert_eq!(spin_policy.on_work(at(1664), at(1684), false), Some(at(1734)));
    }

    /// Goal: a stream keeps the thread awake although each segment is little work, and a ping-pong of messages does
    /// not.
    #[test]
    fn small_segments_of_a_stream_keep_thread_awake() {
        let at = |us| Time::ZERO + Span::from_us(us);
        let mut spin_policy = SpinPolicy::default();
        let stream = [10, 20, 30].map(|us| spin_policy.on_work(at(us), at(us + 6), us == 30));
        assert_eq!(stream, [None, Some(at(76)), None], "the last one woke another thread");
        assert_eq!(spin_policy.on_work(at(40), at(46), false), None, "earlier work no longer counts");
        let mut spin_policy = SpinPolicy::default();
        let mut ping_pong = |k: u64| spin_policy.on_work(at(k * 30), at(k * 30 + 4), false).is_none();
        assert!((0..100).all(&mut ping_pong), "a ping-pong");
    }

    /// Goal: the thread learns that it has woken another thread. Method: a completion and a write without one, with a
    /// waiter and without.
    #[test]
    fn wake_count_counts_woken_waiters() {
        let fork_guard = nic_util::fork::ForkGuard::current().expect("handlers");
        let config = IwarpConfig::default();
        let shared =
            Arc::new(DeviceShared::new(&host::real::host(), fork_guard, &config).expect("descriptors"));
        let ring = crate::queues::completions::Completions::new(&shared, 0, 16, None);
        ring.wake();
        assert_eq!(shared.wake_count(), 0, "no thread sleeps");
        ring.wakeup().prepare_to_wait();
        ring.wake();
        ring.wakeup().finish_wait();
        ring.wake();
        assert_eq!(shared.wake_count(), 1);
    }
}
