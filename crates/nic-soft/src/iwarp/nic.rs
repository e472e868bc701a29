//! The device's thread: sleeps until a socket wants something, and works on connections that nobody polls.
//!
//! It makes connections, notices peers that fall silent or away, and looks, up to once in a millisecond, whether those who
//! polled still do; `stream` says how a connection goes back and forth between it and them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;

use host::{Span, Task, Time};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use verbs::{Error, Result};

use super::device::{Inner, unpoisoned};
use super::handshake::{Registry, Wish};
use super::patrol::Patrol;
use super::qp::QpInner;
use super::stream::End;
use crate::fork::Fd;

/// The first and the longest pause between two looks at whether a poller still polls.
const LOOK_MIN: Span = Span::from_us(50);
const LOOK_MAX: Span = Span::from_ms(1);
/// How long a closed connection waits for the peer to close its side.
const LINGER: Span = Span::from_secs(2);
/// Closed connections that wait at once; the oldest gives way.
const LINGERING_MAX: usize = 256;

/// What an epoll event is about: a kind, and a number of that kind.
const KIND_SHIFT: u32 = 56;
pub(super) const KICK: u64 = 0;
pub(super) const LISTENER: u64 = 1 << KIND_SHIFT;
pub(super) const ATTEMPT: u64 = 2 << KIND_SHIFT;
const STREAM: u64 = 3 << KIND_SHIFT;
const LINGERING: u64 = 4 << KIND_SHIFT;
const KIND: u64 = 0xff << KIND_SHIFT;

/// What the thread needs even while the device goes away.
struct Core {
    epoll: Fd,
    kick: Fd,
    stop: AtomicBool,
    thread: OnceLock<ThreadId>,
}

/// A connection that is over for its queue pair, until the peer has seen it.
struct Lingerer {
    id: u64,
    socket: Fd,
    /// What is still to be said.
    rest: Vec<u8>,
    until: Time,
}

/// The thread's handle.
pub(super) struct Nic {
    core: Arc<Core>,
    pub(super) registry: Registry,
    task: Mutex<Option<Task>>,
    timers: Mutex<Vec<(Time, Weak<QpInner>)>>,
    lingering: Mutex<VecDeque<Lingerer>>,
    /// Connections that a poller has taken over, for the thread to watch.
    taken_over: Mutex<Vec<Weak<QpInner>>>,
    /// Sockets of connections, where they are many, for whoever polls.
    pub(super) ready: Fd,
    next_id: AtomicU64,
}

impl Nic {
    pub(super) fn new() -> Result<Self> {
        let refused = |e: Errno| Error::system("cannot create the device's event descriptors", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        epoll::add(&epoll, &kick, epoll::EventData::new_u64(KICK), EventFlags::IN).map_err(refused)?;
        let core = Arc::new(Core {
            epoll: epoll.into(),
            kick: kick.into(),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        Ok(Self {
            core,
            registry: Registry::default(),
            task: Mutex::new(None),
            timers: Mutex::new(Vec::new()),
            lingering: Mutex::new(VecDeque::new()),
            taken_over: Mutex::new(Vec::new()),
            ready: ready.into(),
            next_id: AtomicU64::new(1),
        })
    }

    pub(super) fn start(&self, device: &Arc<Inner>) -> Result<()> {
        let (core, weak) = (self.core.clone(), Arc::downgrade(device));
        let task = device.host.spawn("nicety-iwarp", None, move || run(&core, &weak)).map_err(|e| {
            Error::system("cannot start the device's thread (are processes limited? see ulimit -u)", e)
        })?;
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

    /// Has the thread do something for a program.
    pub(super) fn ask(&self, wish: Wish) {
        unpoisoned(&self.registry.wishes).push(wish);
        self.wake();
    }

    pub(super) fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the thread told of a socket, as `token` says whose.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> Result<()> {
        epoll::add(&self.core.epoll, fd, epoll::EventData::new_u64(token), flags)
            .map_err(|e| Error::system("cannot watch a connection's socket", e))
    }

    pub(super) fn rewatch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) {
        // It fails only for a socket that is not watched, and that is being closed then.
        let _ = epoll::modify(&self.core.epoll, fd, epoll::EventData::new_u64(token), flags);
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It may be unwatched already, by the other of two reasons.
        let _ = epoll::delete(&self.core.epoll, fd);
    }

    /// Has the thread told once of a connection's socket.
    pub(super) fn arm(&self, fd: BorrowedFd<'_>, num: u32, flags: EventFlags) {
        let (epoll, token) = (&self.core.epoll, STREAM | u64::from(num));
        if epoll::modify(epoll, fd, epoll::EventData::new_u64(token), flags) == Err(Errno::NOENT) {
            // It was disarmed. Without memory for it, only pollers work on the connection.
            let _ = epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags);
        }
    }

    /// The thread is not to hear of a connection's socket until it is armed again. It is taken out altogether: otherwise
    /// every packet would pay for finding out that nobody wants to hear of it.
    pub(super) fn disarm(&self, fd: BorrowedFd<'_>) {
        self.unwatch(fd);
    }

    /// A poller has taken a connection over: the thread is to look whether it goes on.
    pub(super) fn ask_to_watch(&self, qp: &Arc<QpInner>) {
        unpoisoned(&self.taken_over).push(Arc::downgrade(qp));
        self.wake();
    }

    /// Has a queue pair look at its deadlines at this time.
    pub(super) fn at(&self, time: Time, qp: &Arc<QpInner>) {
        unpoisoned(&self.timers).push((time, Arc::downgrade(qp)));
        self.wake();
    }

    /// Closes a connection such that the peer hears what was said last: a socket that is closed with unread bytes in it
    /// resets the connection, and that overtakes everything.
    pub(super) fn linger(&self, device: &Inner, socket: Fd, rest: Vec<u8>) {
        let id = self.fresh_id();
        let mut lingerer = Lingerer { id, socket, rest, until: device.host.now() + LINGER };
        if lingerer.turn() {
            return;
        }
        if self.watch(lingerer.socket.as_fd(), LINGERING | id, lingerer.wanted()).is_err() {
            return;
        }
        let mut lingering = unpoisoned(&self.lingering);
        if lingering.len() == LINGERING_MAX {
            lingering.pop_front();
        }
        lingering.push_back(lingerer);
        drop(lingering);
        // The thread may be in a sleep without an end.
        self.wake();
    }

    fn on_lingerer(&self, id: u64) {
        let mut lingering = unpoisoned(&self.lingering);
        let Some(at) = lingering.iter().position(|lingerer| lingerer.id == id) else { return };
        if lingering[at].turn() {
            lingering.remove(at);
        } else {
            let lingerer = &lingering[at];
            self.rewatch(lingerer.socket.as_fd(), LINGERING | id, lingerer.wanted());
        }
    }
}

impl Lingerer {
    /// Says and hears what there is; whether it is over.
    fn turn(&mut self) -> bool {
        while !self.rest.is_empty() {
            match rustix::net::send(&self.socket, &self.rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => drop(self.rest.drain(..n)),
                Err(Errno::AGAIN) => break,
                Err(_) => return true,
            }
        }
        if self.rest.is_empty() {
            // Twice does no harm.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        let mut void = [0; 4096];
        // Bounded, so that a peer that never stops does not keep the thread.
        for _ in 0..64 {
            match rustix::net::recv(&self.socket, &mut void, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return true,
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(_) => return true,
            }
        }
        false
    }

    fn wanted(&self) -> EventFlags {
        if self.rest.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT }
    }
}

/// Connections that the thread looks at because somebody polls them, with their polls at the last look.
#[derive(Default)]
struct Watch {
    list: BTreeMap<u32, (Weak<QpInner>, u32)>,
    pause: Option<Span>,
    due: Option<Time>,
}

impl Watch {
    fn add(&mut self, qp: &Arc<QpInner>, now: Time) {
        self.list.insert(qp.num, (Arc::downgrade(qp), qp.polls.load(Ordering::Relaxed)));
        self.pause = Some(LOOK_MIN);
        self.due = Some(now + LOOK_MIN);
    }

    /// Looks at all of them if it is time.
    fn look(&mut self, now: Time) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.list.retain(|_, (qp, polls)| {
            let Some(qp) = qp.upgrade() else { return false };
            let stays = qp.with(|stream| stream.on_look(&qp, *polls));
            *polls = qp.polls.load(Ordering::Relaxed);
            stays
        });
        let pause = self.pause.map_or(LOOK_MIN, |pause| (pause * 2).min(LOOK_MAX));
        self.pause = Some(pause);
        self.due = (!self.list.is_empty()).then(|| now + pause);
    }
}

fn run(core: &Core, device: &Weak<Inner>) {
    let _ = core.thread.set(std::thread::current().id());
    let (mut watch, mut patrol) = (Watch::default(), Patrol::default());
    let mut timeout: Option<Timespec> = None;
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
            let (token, flags) = (event.data.u64(), event.flags);
            device.on_event(&mut watch, token, flags);
            if token == KICK {
                let mut count = [0; 8];
                // Empty already: another round has seen it.
                let _ = rustix::io::read(&core.kick, &mut count);
            }
        }
        let next = device.round(&mut watch, &mut patrol);
        let now = device.host.now();
        timeout = next.map(|at| {
            let pause = at.since(now).to_std();
            Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) }
        });
    }
}

impl Inner {
    fn on_event(self: &Arc<Self>, watch: &mut Watch, token: u64, flags: EventFlags) {
        let id = token & !KIND;
        match token & KIND {
            LISTENER => self.on_listener(id),
            ATTEMPT => self.on_attempt(id),
            LINGERING => self.nic.on_lingerer(id),
            STREAM => {
                let Some(qp) = self.qp(id as u32) else { return };
                let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                if qp.with(|stream| stream.on_event(&qp, hung_up)) {
                    watch.add(&qp, self.host.now());
                }
            }
            _ => {}
        }
    }

    /// What is due; when the next thing will be.
    fn round(self: &Arc<Self>, watch: &mut Watch, patrol: &mut Patrol) -> Option<Time> {
        self.fulfil_wishes();
        let condemned = self.take_condemned();
        if !condemned.is_empty() {
            let users = self.live_qps().into_iter().filter(|qp| condemned.iter().any(|&cq| qp.uses_cq(cq)));
            users.for_each(|qp| qp.end(End::Overrun));
        }
        let now = self.host.now();
        let taken_over = std::mem::take(&mut *unpoisoned(&self.nic.taken_over));
        taken_over.iter().filter_map(Weak::upgrade).for_each(|qp| watch.add(&qp, now));
        watch.look(now);
        let timers = self.run_timers(now);
        let attempts = self.expire_attempts(now);
        let listeners = self.wake_listeners(now);
        let patrol = self.patrol(patrol, now);
        let lingering = {
            let mut lingering = unpoisoned(&self.nic.lingering);
            lingering.retain(|lingerer| now < lingerer.until);
            lingering.front().map(|lingerer| lingerer.until)
        };
        let ebb = self.tide.give_back(now);
        [watch.due, timers, attempts, listeners, patrol, lingering, ebb].into_iter().flatten().min()
    }

    /// Has queue pairs look at deadlines that have come; when the next one will.
    fn run_timers(&self, now: Time) -> Option<Time> {
        let mut due = Vec::new();
        let mut timers = unpoisoned(&self.nic.timers);
        timers.retain(|(time, qp)| {
            if now >= *time {
                due.push(qp.clone());
            }
            now < *time && qp.strong_count() > 0
        });
        let next = timers.iter().map(|(time, _)| *time).min();
        drop(timers);
        due.iter().filter_map(Weak::upgrade).for_each(|qp| qp.with(|stream| stream.on_time(&qp, now)));
        next
    }
}
