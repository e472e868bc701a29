//! The NIC thread: sleeps until a socket or a peer wants something; carries on what nobody polls for.
//!
//! It answers the connection protocol, notices peers that die (their sockets close), retries requests that wait,
//! copies for peers that may not copy themselves, and fails queue pairs whose peers failed. Never on the path of
//! a message between running processes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;

use host::Task;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use verbs::{Error, Result};

use super::conns::Registry;
use super::device::{Inner, unpoisoned};
use super::doorbell::{Doorbell, Rung};
use super::layout::state;
use super::qp::QpInner;

/// Looks again after this while something waits that may not announce itself.
const RETRY_NS: i64 = 1_000_000;
/// Looks at connection time-outs this often while a connection is being made, and at whether a peer has left that was inside
/// when its connection ended.
const HANDSHAKE_NS: i64 = 20_000_000;

const KICK: u64 = 0;
const DOORBELL: u64 = 1;

/// What the thread needs even while the device goes away.
struct Core {
    epoll: OwnedFd,
    kick: OwnedFd,
    doorbell: Doorbell,
    stop: AtomicBool,
    thread: OnceLock<ThreadId>,
}

/// The NIC thread's handle.
pub(super) struct Nic {
    core: Arc<Core>,
    pub(super) registry: Registry,
    task: Mutex<Option<Task>>,
    /// A queue pair has failed while its peer was inside.
    unsettled: AtomicBool,
    /// Who had the turn at atomics at the last look.
    pub(super) turn_seen: AtomicU64,
    /// The doorbell is broken: it looks again and again instead.
    deaf: AtomicBool,
    next_id: AtomicU64,
}

impl Nic {
    pub(super) fn new() -> Result<Self> {
        let refused = |e: rustix::io::Errno| Error::system("cannot create the device's event descriptors", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        epoll::add(&epoll, &kick, epoll::EventData::new_u64(KICK), epoll::EventFlags::IN).map_err(refused)?;
        let doorbell = Doorbell::new()?;
        epoll::add(&epoll, doorbell.ear(), epoll::EventData::new_u64(DOORBELL), epoll::EventFlags::IN)
            .map_err(refused)?;
        let (stop, thread) = (AtomicBool::new(false), OnceLock::new());
        let core = Arc::new(Core { epoll, kick, doorbell, stop, thread });
        Ok(Self {
            core,
            registry: Registry::default(),
            task: Mutex::new(None),
            unsettled: AtomicBool::new(false),
            turn_seen: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
            next_id: AtomicU64::new(DOORBELL + 1),
        })
    }

    pub(super) fn start(&self, device: &Arc<Inner>) -> Result<()> {
        let (core, weak) = (self.core.clone(), Arc::downgrade(device));
        let task = device
            .host
            .spawn("nicety-shm", None, move || run(&core, &weak))
            .map_err(|e| Error::system("cannot start the device's thread", e))?;
        *unpoisoned(&self.task) = Some(task);
        Ok(())
    }

    /// Ends the thread; returns when it has ended, unless it is the caller.
    pub(super) fn stop(&self) {
        self.core.stop.store(true, Ordering::Release);
        self.wake();
        let task = unpoisoned(&self.task).take();
        if self.core.thread.get() != Some(&std::thread::current().id())
            && let Some(task) = task
        {
            task.join();
        }
    }

    /// Makes the thread look at everything.
    pub(super) fn wake(&self) {
        // A full counter means that it is awake already.
        let _ = rustix::io::write(&self.core.kick, &1_u64.to_ne_bytes());
    }

    /// What a peer rings to wake the thread.
    pub(super) fn button(&self) -> BorrowedFd<'_> {
        self.core.doorbell.button()
    }

    fn answer_doorbell(&self) {
        if self.core.doorbell.take() == Rung::Broken {
            // A peer has cut the wire that it shares with others; it would wake us without end.
            self.unwatch(self.core.doorbell.ear());
            self.deaf.store(true, Ordering::Release);
        }
    }

    pub(super) fn watch_unsettled(&self) {
        self.unsettled.store(true, Ordering::Release);
        self.wake();
    }

    /// Watches a socket under a new number.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.core.epoll, fd, epoll::EventData::new_u64(id), flags)
            .map_err(|e| Error::system("cannot watch a connection's socket", e))?;
        Ok(id)
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It may be unwatched already, by the other of two reasons.
        let _ = epoll::delete(&self.core.epoll, fd);
    }
}

fn run(core: &Core, device: &Weak<Inner>) {
    let _ = core.thread.set(std::thread::current().id());
    let mut timeout = None;
    let mut events = Vec::with_capacity(64);
    while !core.stop.load(Ordering::Acquire) {
        events.clear();
        // Interrupted by a signal, it just looks around.
        let _ = epoll::wait(&core.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        if core.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        for event in &events {
            match event.data.u64() {
                KICK => drain(&core.kick),
                DOORBELL => device.nic.answer_doorbell(),
                id => device.on_socket(id),
            }
        }
        timeout = device.round().map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
    }
}

fn drain(kick: &OwnedFd) {
    let mut count = [0; 8];
    // Empty already: another round has seen it.
    let _ = rustix::io::read(kick, &mut count);
}

impl Inner {
    /// Looks at everything once; after how many nanoseconds to look again without being asked.
    fn round(self: &Arc<Self>) -> Option<i64> {
        self.settle_failures();
        let unsettled = self.nic.unsettled.swap(false, Ordering::AcqRel);
        let mut retry = self.look_at_turn() | self.nic.deaf.load(Ordering::Acquire);
        for qp in self.live_qps() {
            if qp.state() == state::ERROR {
                self.look_at_failed(&qp, unsettled);
            } else {
                retry |= qp.serve_peer();
                qp.progress();
                retry |= qp.is_stalled();
            }
        }
        retry |= self.nic.unsettled.load(Ordering::Acquire);
        let handshakes = self.see_off_departed() | self.expire_handshakes();
        match (retry, handshakes) {
            (true, _) => Some(RETRY_NS),
            (_, true) => Some(HANDSHAKE_NS),
            _ => None,
        }
    }

    fn look_at_failed(&self, qp: &Arc<QpInner>, unsettled: bool) {
        if qp.failure.load(Ordering::Acquire) != 2 {
            qp.fail();
        } else if unsettled {
            if qp.peer_is_inside() {
                self.nic.unsettled.store(true, Ordering::Release);
            } else {
                qp.recv_cq.alarm(qp.index);
            }
        }
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
