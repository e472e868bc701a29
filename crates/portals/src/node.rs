//! [`Node`]: the Portals state of a process, behind its lock; [`Ni`]: one of its interfaces (Portals 4.3, sections
//! 3.6 and 3.9). Threads wait and make progress here.
//!
//! [`Matcher`] chooses which thread matches messages: the caller's, or a thread that acts as the NIC. The engine,
//! its connections and the lock are the same in all cases; only the thread that polls the device differs.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use auth::{Key, Seed};
use verbs::host::{EventCount, Host, Lock, Source, Span, Task, Time, WaitSet, Wakes};
use verbs::{Device, Result};

use crate::engine::Engine;
use crate::exchange::{Exchange, Interface, TryRecv};
use crate::link::trust::Trust;
use crate::objects::command::Transfer;
use crate::objects::entry::Entry;
use crate::objects::limits::Limits;
use crate::objects::process::Process;

/// The kind of an interface (`PTL_NI_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiKind {
    /// Whether entries have match bits.
    pub is_matching: bool,
    /// Whether processes are addressed by rank.
    pub is_logical: bool,
}

impl NiKind {
    /// The index of this kind among the four interfaces of a process.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.is_matching as u8 | (self.is_logical as u8) << 1
    }
}

/// Which thread polls the device, matches messages and moves their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matcher {
    /// Each thread that calls or waits, on behalf of all. In real time a helper thread keeps this process's
    /// memory reachable while the program does something else: it sleeps until the device has events. While
    /// the program polls, the thread leaves the device to the program and checks periodically that the
    /// polling continues.
    #[default]
    Caller,
    /// A dedicated thread, as a NIC would have; it sleeps until the device has events. Callers only read
    /// events and counters.
    Thread,
    /// As [`Matcher::Thread`], but the thread never sleeps: it occupies a core.
    Busy,
}

impl Matcher {
    /// All matchers, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Caller, "caller"), (Self::Thread, "thread"), (Self::Busy, "spin")];

    /// The matcher with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(matcher, known)| (known == name).then_some(matcher))
    }
}

/// How often the helper thread checks whether the program still polls.
const POLL_CHECK_EVERY: Span = Span::from_ms(1);
/// Number of brief polls at the start of a wait, before the waiter could sleep.
const BRIEF_POLLS: u32 = 24;
/// How long closing an interface waits for its sent messages to arrive.
const CLOSE_TIMEOUT: Span = Span::from_secs(5);

#[derive(Debug)]
struct Inner {
    host: Host,
    uid: u32,
    me: Process,
    matcher: Matcher,
    exchange: Lock<Exchange>,
    /// Everything that can wake the polling thread: the device and the event count.
    sources: WaitSet,
    /// Rung by a thread whose progress produced events that another thread may wait for.
    wakeup: Arc<EventCount>,
    /// Threads that sleep or are about to; in virtual time, where threads do not sleep, ranks that wait.
    waiting: AtomicU32,
    /// A thread is about to sleep on the node as a [`Source`].
    is_armed: AtomicBool,
    /// Number of polls by the program.
    polls: AtomicU64,
    /// How the helper thread waits: it goes to sleep soon, whatever is known about the program's waits. On a
    /// core of its own a waiter polls for long; on the program's core that would keep the program from
    /// polling.
    helper_host: Host,
    /// Rung to end the thread.
    end_wakeup: EventCount,
    is_stopping: AtomicBool,
}

impl Inner {
    /// Runs `act` on the state; wakes other waiters if it produced events.
    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Exchange) -> T) -> T {
        let (done, has_events) = self.with_events(act);
        if has_events {
            self.notify(0);
        }
        done
    }

    /// Runs `act` on the state; also returns whether it produced events.
    #[inline]
    fn with_events<T>(&self, act: impl FnOnce(&mut Exchange) -> T) -> (T, bool) {
        let mut exchange = self.exchange.lock(&self.host);
        (act(&mut exchange), exchange.take_events())
    }

    /// Wakes waiters, if there are others than the `own` registrations of this thread.
    #[inline]
    fn notify(&self, own: u32) {
        // A sleeper sets its flag before its last poll. If that poll missed these events, the lock orders the
        // flag before this load.
        let is_armed = || self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > own || is_armed() {
            self.host.notify(&self.wakeup);
        }
    }

    /// Polls the device, if callers do that with this matcher. Returns whether that changed anything.
    #[inline]
    fn progress(&self, exchange: &mut Exchange, brief: bool) -> bool {
        // If messages remain, `news` is set too, so the event count keeps a waiter that is about to sleep awake.
        self.matcher == Matcher::Caller && exchange.progress(brief).changed
    }

    /// What a calling thread sleeps on.
    fn source(&self) -> &dyn Source {
        if self.matcher == Matcher::Caller { &self.sources } else { &self.wakeup }
    }

    /// Makes progress until `look` returns true, or until the deadline; returns whether `look` did.
    #[inline]
    fn wait(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut look: impl FnMut(&mut Exchange) -> bool,
    ) -> bool {
        let mut step = |brief: bool, waiting: bool| {
            self.count_poll();
            let mut exchange = self.exchange.lock(&self.host);
            // The condition may hold already; then the device need not be polled.
            let mut is_met = look(&mut exchange);
            if !is_met && self.progress(&mut exchange, brief) {
                is_met = look(&mut exchange);
            }
            let has_events = exchange.take_events();
            drop(exchange);
            if has_events {
                // A waiter that has found its event need not be woken.
                self.notify(u32::from(is_met && waiting));
            }
            is_met.then_some(())
        };
        if step(true, false).is_some() {
            return true;
        }
        let waiter = Waiter { inner: self, is_registered: Cell::new(false) };
        if self.host.node().is_some() {
            waiter.register();
        }
        let mut polls = 0;
        let step = || {
            polls += 1;
            step(polls < BRIEF_POLLS, waiter.is_registered.get())
        };
        self.host.wait(call, &waiter, deadline, step).is_some()
    }

    /// Counts a poll of the program. A concurrent call may lose an increment, which does no harm.
    #[inline]
    fn count_poll(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Processes everything that has arrived.
    fn process_all(&self) {
        loop {
            let more = self.with(|exchange| exchange.progress(false).more);
            if !more || self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Body of the thread.
    fn run_thread(&self) {
        let is_stopping = || self.is_stopping.load(Ordering::SeqCst).then_some(());
        let step = || {
            self.process_all();
            is_stopping()
        };
        let spin = || {
            self.with(|exchange| exchange.progress(true));
            is_stopping()
        };
        match self.matcher {
            Matcher::Caller => self.run_helper(),
            Matcher::Thread => drop(self.host.wait("portals thread", &self.sources, None, step)),
            Matcher::Busy => drop(self.host.poll("portals thread", None, spin)),
        }
    }

    /// Makes progress while the program does not poll.
    fn run_helper(&self) {
        let is_stopping = || self.is_stopping.load(Ordering::SeqCst).then_some(());
        let mut seen = self.polls.load(Ordering::Relaxed);
        while is_stopping().is_none() {
            let polls = self.polls.load(Ordering::Relaxed);
            if polls != seen {
                seen = polls;
                self.helper_host.wait(
                    "portals thread",
                    &self.end_wakeup,
                    self.helper_host.after(POLL_CHECK_EVERY),
                    is_stopping,
                );
                continue;
            }
            // A poll by the program ends this wait at the next event.
            self.helper_host.wait("portals thread", &self.sources, None, || {
                self.process_all();
                let is_unchanged = self.polls.load(Ordering::Relaxed) == seen && is_stopping().is_none();
                (!is_unchanged).then_some(())
            });
        }
    }
}

/// What a waiting thread sleeps on. Most waits end without sleeping, so the thread registers as a waiter only
/// when it is about to sleep.
struct Waiter<'a> {
    inner: &'a Inner,
    /// The thread is registered as a waiter.
    is_registered: Cell<bool>,
}

impl Waiter<'_> {
    fn register(&self) {
        if !self.is_registered.replace(true) {
            self.inner.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Source for Waiter<'_> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.inner.source().prepare_wait(wakes);
        self.register();
    }

    fn progress_count(&self) -> u64 {
        self.inner.source().progress_count()
    }

    fn begin_polling(&self) {
        self.inner.source().begin_polling();
    }

    fn end_polling(&self) {
        self.inner.source().end_polling();
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_registered.get() {
            self.inner.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The Portals state of a process on one device: up to four interfaces at one address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node(Arc<NodeOwner>);

/// Ends the thread when the last handle is dropped.
struct NodeOwner {
    inner: Arc<Inner>,
    /// Locked only to make nodes `Sync`; the last handle takes the thread.
    thread: Mutex<Option<Task>>,
}

impl std::fmt::Debug for NodeOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({:?})", self.inner.me)
    }
}

impl Drop for NodeOwner {
    fn drop(&mut self) {
        self.inner.is_stopping.store(true, Ordering::SeqCst);
        self.inner.host.notify(&self.inner.end_wakeup);
        self.inner.host.notify(&self.inner.wakeup);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        thread.take().into_iter().for_each(Task::join);
    }
}

impl Node {
    /// Listens on a device as process `pid`, or as any free one with `None`; the node ID is the address.
    /// Connects only to processes that prove to hold the same key. In virtual time there is no thread, and
    /// callers match.
    ///
    /// # Safety
    /// Memory that is given to an engine of this node's interfaces, by an entry or by an operation on a
    /// memory descriptor, must be readable, and writable where messages or answers may write, until the entry
    /// is unlinked or the operation has completed. Meanwhile it must not be accessed in a way that Portals
    /// forbids.
    ///
    /// # Errors
    /// The device's; [`verbs::Error::Invalid`] for a number above 65,535. A number in use is an error of the
    /// listener.
    pub unsafe fn open(
        host: &Host,
        device: &Device,
        address: Ipv4Addr,
        pid: Option<u32>,
        uid: u32,
        matcher: Matcher,
        key: &Key,
    ) -> Result<Self> {
        let matcher = if host.node().is_some() { Matcher::Caller } else { matcher };
        let exchange = Exchange::new(device, address, pid, Trust::new(key, host, device)?)?;
        let (me, wakeup) = (exchange.connections.me(), Arc::new(EventCount::new()));
        let mut sources = WaitSet::new();
        sources.add(wakeup.clone());
        sources.add(exchange.connections.nic().cq.clone());
        sources.add(exchange.connections.nic().cm.clone());
        let inner = Arc::new(Inner {
            host: host.clone(),
            uid,
            me,
            matcher,
            exchange: Lock::fair(exchange),
            sources,
            wakeup,
            waiting: AtomicU32::new(0),
            is_armed: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            helper_host: if host.node().is_some() { host.clone() } else { verbs::host::real::host() },
            end_wakeup: EventCount::new(),
            is_stopping: AtomicBool::new(false),
        });
        // In virtual time a rank that computes is not interrupted; waiting ranks make progress.
        let thread = match host.node() {
            Some(_) => None,
            None => {
                let attends = inner.clone();
                let system = |error: std::io::Error| {
                    verbs::Error::Invalid(format!("the thread cannot be started: {error}"))
                };
                Some(host.spawn("portals", None, move || attends.run_thread()).map_err(system)?)
            }
        };
        Ok(Self(Arc::new(NodeOwner { inner, thread: Mutex::new(thread) })))
    }

    /// The seed of this process's challenges, which need not be secret. Processes that [know it](Node::learn_seed) connect to this
    /// one with one request instead of two. `None` on devices where one request is enough anyway.
    #[must_use]
    pub fn seed(&self) -> Option<Seed> {
        self.0.inner.with(|exchange| exchange.connections.seed())
    }

    /// Learns the [seed](Node::seed) of another process. A wrong seed costs one request, as an unknown one does.
    pub fn learn_seed(&self, process: Process, seed: Seed) {
        self.0.inner.with(|exchange| exchange.connections.learn(process, seed));
    }

    /// This process's identity on physical interfaces.
    #[must_use]
    pub fn me(&self) -> Process {
        self.0.inner.me
    }

    /// Opens the interface of a kind.
    #[must_use]
    pub fn interface(&self, kind: NiKind, limits: Limits) -> Ni {
        let engine = Engine::new(self.me(), self.0.inner.uid, kind.is_matching, limits);
        let map = kind.is_logical.then(Vec::new);
        self.0.inner.with(|exchange| exchange.open(kind.number(), Interface { engine, map }));
        Ni { node: self.clone(), kind }
    }
}

/// A source for waits that poll the node's interfaces themselves, by [`Ni::poll`], before they sleep.
impl Source for Node {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        // Register with the event count before setting the flag: a notifier that clears the flag notifies only once.
        self.0.inner.source().prepare_wait(wakes);
        self.0.inner.is_armed.store(true, Ordering::SeqCst);
    }

    fn progress_count(&self) -> u64 {
        self.0.inner.source().progress_count()
    }

    fn begin_polling(&self) {
        self.0.inner.source().begin_polling();
    }

    fn end_polling(&self) {
        self.0.inner.source().end_polling();
    }
}

/// An open interface. Calls on a closed interface do nothing.
#[derive(Clone, Debug)]
pub struct Ni {
    node: Node,
    kind: NiKind,
}

impl Ni {
    fn inner(&self) -> &Inner {
        &self.node.0.inner
    }

    /// The kind of this interface.
    #[must_use]
    pub const fn kind(&self) -> NiKind {
        self.kind
    }

    /// The process that owns this interface.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Runs `act` on the engine, and sends the resulting messages; `None` if the interface is closed.
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.inner().with(|exchange| {
            let done = act(&mut exchange.interface(self.kind.number())?.engine);
            exchange.flush();
            // Another thread may wait for this change.
            exchange.mark_event();
            Some(done)
        })
    }

    /// Sends a put immediately, if it needs no acknowledgement and its memory descriptor neither reports nor
    /// counts successful sends; the memory may be reused on return. False if the message cannot leave now or
    /// is no such put; then nothing has happened, and the caller uses [`Engine::transfer`].
    #[inline]
    #[must_use]
    pub fn try_put(&self, transfer: &Transfer) -> bool {
        self.inner().with(|exchange| exchange.try_put(self.kind.number(), transfer))
    }

    /// Starts an operation, as [`Engine::transfer`]; takes the fast path if it can be [put at
    /// once](Ni::try_put). `None` if the interface is closed.
    #[inline]
    pub fn transfer(&self, transfer: &Transfer) -> Option<crate::Result<()>> {
        self.inner().with(|exchange| {
            if exchange.try_put(self.kind.number(), transfer) {
                return Some(Ok(()));
            }
            let begun = exchange.interface(self.kind.number())?.engine.transfer(transfer);
            exchange.flush();
            exchange.mark_event();
            Some(begun)
        })
    }

    /// Receives a put into the memory of `entry` without appending it: a fast path with the effect of appending
    /// it to the priority list and waiting for its event. Polls at most `polls` times. Returns
    /// [`TryRecv::NotApplicable`], and has done nothing, unless all of these hold:
    /// - this process does the matching ([`Matcher::Caller`]);
    /// - the interface is logical, its priority list is empty, and no unexpected message waits;
    /// - the entry is for one use, accepts one source, and does not truncate;
    /// - the source's next message is a put without acknowledgement that the entry accepts.
    #[inline]
    #[must_use]
    pub fn try_recv(&self, pt_index: u32, entry: &Entry, polls: u32) -> TryRecv {
        let inner = self.inner();
        if inner.matcher != Matcher::Caller {
            return TryRecv::NotApplicable;
        }
        inner.count_poll();
        inner.with(|exchange| exchange.try_recv(self.kind.number(), pt_index, entry, polls))
    }

    /// Runs `act` on the engine, sends the resulting messages, then runs `then` on the engine; `None` if the
    /// interface is closed.
    pub fn with_engine_then<T, U>(
        &self,
        act: impl FnOnce(&mut Engine) -> T,
        then: impl FnOnce(&mut Engine, T) -> U,
    ) -> Option<U> {
        self.inner().with(|exchange| {
            let done = act(&mut exchange.interface(self.kind.number())?.engine);
            exchange.flush();
            exchange.mark_event();
            Some(then(&mut exchange.interface(self.kind.number())?.engine, done))
        })
    }

    /// Makes progress, then runs `act` on the engine; `None` if the interface is closed.
    pub fn test<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.inner().host.charge_poll();
        self.poll(act)
    }

    /// As [`Ni::test`], for callers that hold a lock: in virtual time it does not yield to other ranks.
    pub fn poll<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let inner = self.inner();
        inner.count_poll();
        // A thread that is about to sleep needs a full poll.
        let brief = !inner.is_armed.load(Ordering::SeqCst);
        inner.with(|exchange| {
            inner.progress(exchange, brief);
            Some(act(&mut exchange.interface(self.kind.number())?.engine))
        })
    }

    /// Makes progress until `look` returns a value; `None` if the deadline passes first or the interface is
    /// closed.
    pub fn wait<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut look: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let number = self.kind.number();
        // The value may be large; it is written to its final place.
        let mut found = None;
        self.inner().wait(call, deadline, |exchange| match exchange.interface(number) {
            Some(interface) => {
                found = look(&mut interface.engine);
                found.is_some()
            }
            None => true,
        });
        found
    }

    /// Whether no operation of this process or on its memory is in flight, and all its messages have left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner().with(|exchange| exchange.is_idle(self.kind.number()))
    }

    /// The deadline `span` from now; `None` if there is none.
    #[must_use]
    pub fn after(&self, span: Span) -> Option<Time> {
        self.inner().host.after(span)
    }

    /// Sets the process of each rank (`PtlSetMap`; Portals 4.3, section 3.6). Returns false and does nothing if the
    /// map was set before, does not contain this process, or the interface is physical.
    #[must_use]
    pub fn set_map(&self, processes: &[Process]) -> bool {
        let Some(rank) = processes.iter().position(|process| *process == self.node.me()) else {
            return false;
        };
        self.inner().with(|exchange| match exchange.interface(self.kind.number()) {
            Some(Interface { engine, map: Some(map) }) if map.is_empty() => {
                *map = processes.to_vec();
                engine.set_process(Process::rank(rank as u32));
                true
            }
            _ => false,
        })
    }

    /// The processes by rank (`PtlGetMap`; Portals 4.3, section 3.6); empty before the map is set.
    #[must_use]
    pub fn map(&self) -> Vec<Process> {
        let map = |exchange: &mut Exchange| exchange.interface(self.kind.number())?.map.clone();
        self.inner().with(map).unwrap_or_default()
    }

    /// This process as this interface addresses it (`PtlGetId`; Portals 4.3, section 3.9): by rank, once there is a map.
    #[must_use]
    pub fn id(&self) -> Option<Process> {
        if !self.kind.is_logical {
            return Some(self.node.me());
        }
        let rank = self.map().iter().position(|process| *process == self.node.me())?;
        Some(Process::rank(rank as u32))
    }

    /// Closes the interface (`PtlNIFini`; Portals 4.3, section 3.6), once its sent messages have arrived or five
    /// seconds have passed.
    pub fn close(&self) {
        let (inner, number) = (self.inner(), self.kind.number());
        let deadline = inner.host.after(CLOSE_TIMEOUT);
        inner.wait("PtlNIFini", deadline, |exchange| exchange.is_idle(number));
        inner.with(|exchange| exchange.connections.request_idle());
        inner.wait("PtlNIFini", deadline, |exchange| exchange.connections.is_idle());
        inner.with(|exchange| {
            exchange.close(number);
            exchange.mark_event();
        });
    }
}
