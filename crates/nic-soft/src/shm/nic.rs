//! The NIC thread: sleeps until a socket or a peer wants something; carries on what nobody polls for.
//!
//! It answers the connection protocol, notices peers that die (their sockets close), retries requests that wait,
//! copies for peers that may not copy themselves, and fails queue pairs whose peers failed. Kicks say which queue pair is
//! meant, so that its work does not grow with their number. Never on the path of a message between running processes.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use host::{Span, Time};
use rustix::event::epoll;
use verbs::{Error, Result};

use super::conns::Registry;
use super::device::Inner;
use super::doorbell::{Doorbell, Rung};
use super::layout::state;
use super::qp::QpInner;
use crate::thread::{Ear, Thread};

/// Looks again after this while something waits that may not announce itself.
const RETRY: Span = Span::from_ms(1);
/// Looks this often whether a peer has left that was inside when its connection ended.
const DEPARTURE: Span = Span::from_ms(20);

/// Looks at all queue pairs this often at most, when peers ring without naming one.
const LOOK_AT_ALL: Span = Span::from_ms(100);

/// The token of the doorbell, which no socket has.
const DOORBELL: u64 = u64::MAX;

/// The NIC thread's handle.
pub(super) struct Nic {
    ear: Arc<Ear>,
    doorbell: Doorbell,
    pub(super) registry: Registry,
    thread: Thread,
    /// Who had the turn at atomics at the last look.
    pub(super) turn_seen: AtomicU64,
    /// The doorbell is broken: it looks again and again instead.
    deaf: AtomicBool,
}

impl Nic {
    pub(super) fn new() -> Result<Self> {
        let (ear, doorbell) = (Arc::new(Ear::new()?), Doorbell::new()?);
        ear.watch(doorbell.ear(), DOORBELL, epoll::EventFlags::IN)
            .map_err(|e| Error::system("cannot create the device's event descriptors", e))?;
        Ok(Self {
            ear,
            doorbell,
            registry: Registry::default(),
            thread: Thread::default(),
            turn_seen: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        })
    }

    pub(super) fn start(&self, device: &Arc<Inner>) -> Result<()> {
        let (ear, weak) = (self.ear.clone(), Arc::downgrade(device));
        self.thread.start(&device.host, "nicety-shm", move || run(&ear, &weak))
    }

    /// Ends the thread; returns when it has ended, unless it is the caller.
    pub(super) fn stop(&self) {
        self.thread.stop(&self.ear);
    }

    /// Makes the thread look at what it was told, and at the time.
    pub(super) fn wake(&self) {
        self.ear.wake();
    }

    /// What a peer rings to wake the thread.
    pub(super) fn button(&self) -> BorrowedFd<'_> {
        self.doorbell.button()
    }

    fn answer_doorbell(&self) {
        if self.doorbell.take() == Rung::Broken {
            // A peer has cut the wire that it shares with others; it would wake us without end.
            self.unwatch(self.doorbell.ear());
            self.deaf.store(true, Ordering::Release);
        }
    }

    /// A number for a socket to be watched.
    pub(super) fn fresh_id(&self) -> u64 {
        self.ear.fresh_id()
    }

    /// Watches a socket under a number.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        self.ear.watch(fd, id, flags).map_err(|e| Error::system("cannot watch a connection's socket", e))
    }

    /// Is told of a listener, or for a while not.
    pub(super) fn rewatch(&self, fd: BorrowedFd<'_>, id: u64, told: bool) {
        let flags = if told { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        // It fails only for a socket that is not watched, and that is being closed then.
        let _ = self.ear.rewatch(fd, id, flags);
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.ear.unwatch(fd);
    }
}

/// What the thread goes on with from one round to the next.
#[derive(Default)]
struct Agenda {
    /// Queue pairs that wait for something that may not announce itself.
    waiting: BTreeSet<usize>,
    /// A peer has rung since the last round.
    is_rung: bool,
    /// When to look at all queue pairs, and when that was done last.
    all_at: Option<Time>,
    saw_all: Time,
}

fn run(ear: &Ear, device: &Weak<Inner>) {
    let (mut pause, mut agenda) = (None, Agenda::default());
    let mut events = Vec::with_capacity(64);
    while !ear.is_stopping() {
        ear.sleep(&mut events, pause);
        if ear.is_stopping() {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        device.nic.thread.is_me();
        for event in &events {
            match event.data.u64() {
                DOORBELL => {
                    device.nic.answer_doorbell();
                    agenda.is_rung = true;
                }
                id => device.on_socket(id),
            }
        }
        let next = device.round(&mut agenda);
        let now = device.host.now();
        pause = next.map(|at| at.since(now));
    }
}

impl Inner {
    /// Has the NIC thread look at a queue pair of this device.
    pub(super) fn look_at(&self, index: usize) {
        self.header.kicked.add(index);
        self.nic.wake();
    }

    /// Looks at the queue pairs that somebody has named since the last round, and at those that wait for something that may not
    /// announce itself; when to do so again without being asked. What it takes does not grow with the queue pairs that nobody
    /// named.
    fn round(self: &Arc<Self>, agenda: &mut Agenda) -> Option<Time> {
        self.settle_failures();
        let now = self.host.now();
        let rung = std::mem::take(&mut agenda.is_rung);
        if self.header.kicked.any() {
            self.header.kicked.take(|index| {
                agenda.waiting.insert(index);
            });
        } else if rung && agenda.all_at.is_none() {
            // A round before has dealt with it, or a peer that is wrong took back what another said.
            agenda.all_at = Some(agenda.saw_all + LOOK_AT_ALL);
        }
        if agenda.all_at.is_some_and(|at| at <= now) {
            (agenda.all_at, agenda.saw_all) = (None, now);
            agenda.waiting.extend(self.live_qps().iter().map(|qp| qp.index));
        }
        agenda.waiting.retain(|&index| self.qp(index).is_some_and(|qp| self.is_waiting(&qp)));
        let turn_is_held = self.look_at_turn();
        let impatient = turn_is_held || !agenda.waiting.is_empty() || self.nic.deaf.load(Ordering::Acquire);
        let retry = impatient.then(|| now + RETRY);
        let departures = self.see_off_departed().then(|| now + DEPARTURE);
        let handshakes = self.expire_handshakes(now);
        let listeners = self.wake_listeners(now);
        let ebb = self.tide.give_back(now);
        [retry, agenda.all_at, departures, handshakes, listeners, ebb].into_iter().flatten().min()
    }

    /// Looks at a queue pair; whether it has to be looked at again.
    fn is_waiting(&self, qp: &Arc<QpInner>) -> bool {
        if qp.state() != state::ERROR {
            let asks_again = qp.serve_peer();
            qp.progress();
            return asks_again || qp.is_stalled();
        }
        if qp.failure.load(Ordering::Acquire) != 2 {
            qp.fail();
        }
        if qp.peer_is_inside() {
            return true;
        }
        // What the peer has left can be flushed now.
        qp.recv_cq.alarm(qp.index);
        false
    }

    /// The peer of a queue pair takes no part any more; if it is `gone`, it is inside nothing.
    pub(super) fn bury_peer(&self, qp: &Arc<QpInner>, gone: bool) {
        qp.peer_dead.store(gone, Ordering::Release);
        qp.quiet.store(true, Ordering::Release);
        if gone {
            self.free_turn_of(qp.index);
        }
        qp.fail();
        qp.recv_cq.force_event();
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::of;
    use verbs::{Device, QpInit};

    use super::*;

    /// Goal: a kick costs the NIC thread what it says, however many queue pairs there are. Method: a device whose thread
    /// has ended, so that the rounds are ours; queue pairs that fail in secret show who was looked at.
    #[test]
    fn a_round_looks_at_those_who_were_named() {
        let device: Device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..100).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        inner.nic.stop();
        for qp in inner.live_qps() {
            assert!(qp.advance(state::INIT, state::ERROR), "in secret");
        }
        let mut agenda = Agenda::default();
        let looked_at = |agenda: &mut Agenda| {
            assert_eq!(inner.round(agenda), None, "nothing to wait for");
            let dealt_with = |qp: &Arc<QpInner>| qp.failure.load(Ordering::Acquire) == 2;
            inner.live_qps().iter().filter(|qp| dealt_with(qp)).map(|qp| qp.index).collect::<Vec<_>>()
        };
        assert_eq!(looked_at(&mut agenda), [0; 0], "nobody was named");
        [7, 64, 99, 7].iter().for_each(|&index| inner.look_at(index));
        assert_eq!(looked_at(&mut agenda), [7, 64, 99]);
        // Who rings without naming anybody, as when a third has taken the name back, is heard all the same, a while after
        // the last look at all: the clock begins with the process.
        let later = || (inner.host.now() > Time::ZERO + LOOK_AT_ALL).then_some(());
        inner
            .host
            .poll("a later time", inner.host.after(Span::from_secs(30)), later)
            .expect("a clock that goes");
        agenda.is_rung = true;
        assert_eq!(looked_at(&mut agenda).len(), 100);
        drop(qps);
    }
    /// Goal: this thread gives back what a crowd leaves. Method: a crowd comes and goes; the thread, which has ended, so that
    /// the rounds are ours, looks again until it has dealt with it.
    #[test]
    fn rounds_go_on_until_the_memory_of_a_crowd_is_given_back() {
        let device: Device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        inner.nic.stop();
        let mut agenda = Agenda::default();
        let crowd: Vec<_> =
            (0..1024).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        assert_eq!(inner.round(&mut agenda), None, "nobody has gone");
        drop(crowd);
        assert!(inner.round(&mut agenda).is_some(), "a crowd has gone");
        let calm = || inner.round(&mut agenda).is_none().then_some(());
        let patience = inner.host.after(Span::from_secs(30));
        assert!(inner.host.poll("the calm", patience, calm).is_some(), "it never ends");
    }
}
