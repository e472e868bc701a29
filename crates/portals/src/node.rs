//! [`Node`]: what a process has of Portals, behind its lock; [`Ni`]: one of its interfaces. How threads wait, and who makes progress.
//!
//! Where messages are matched is one choice, [`Matcher`]: in the caller, or in a thread that stands for the NIC. The engine, and what
//! carries for it, is the same object in all of them, behind the same lock; what differs is who looks at the device.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use auth::{Key, Seed};
use verbs::host::{Bell, Host, Lock, Source, Span, Task, Time, WaitSet, Wakes};
use verbs::{Device, Result};

use crate::engine::Engine;
use crate::exchange::{Exchange, Interface, Taken};
use crate::link::trust::Trust;
use crate::objects::command::Transfer;
use crate::objects::entry::Entry;
use crate::objects::limits::Limits;
use crate::objects::process::Process;

/// What kind of interface: `PTL_NI_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Whether entries match.
    pub is_matching: bool,
    /// Whether processes are named by rank.
    pub is_logical: bool,
}

impl Kind {
    /// Its number among the four of a process.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.is_matching as u8 | (self.is_logical as u8) << 1
    }
}

/// Who matches messages, and moves their data: who looks at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matcher {
    /// Whoever calls or waits, for all. In real time there is a thread beside, so that others reach this process's memory whatever it
    /// does: it sleeps until the device has news. While the program looks for itself, it leaves the device to the program, and looks
    /// once in a while whether that goes on.
    #[default]
    Caller,
    /// A thread alone, as a NIC would, which sleeps until the device has news. Callers look at events and counters only.
    Thread,
    /// As [`Matcher::Thread`], but the thread never sleeps: it takes a processor.
    Busy,
}

impl Matcher {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Caller, "caller"), (Self::Thread, "thread"), (Self::Busy, "spin")];

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(matcher, known)| (known == name).then_some(matcher))
    }
}

/// How often the thread looks whether the program still looks for itself.
const WATCH: Span = Span::from_ms(1);
/// Looks of a wait at the beginning, before it could sleep, that are brief.
const BRIEF_LOOKS: u32 = 24;
/// How long an interface that is closed waits for what it sent to arrive.
const LINGER: Span = Span::from_secs(5);

#[derive(Debug)]
struct Inner {
    host: Host,
    uid: u32,
    me: Process,
    matcher: Matcher,
    exchange: Lock<Exchange>,
    /// Everything that can bring news to who matches: the device, and the bell.
    sources: WaitSet,
    /// Rung by a thread whose progress has found something that another one may wait for.
    bell: Arc<Bell>,
    /// Threads that sleep, or are about to; in virtual time, where nobody sleeps, ranks that wait.
    waiting: AtomicU32,
    /// Somebody is about to sleep on the node as a [`Source`].
    is_armed: AtomicBool,
    /// Looks of the program's.
    looks: AtomicU64,
    /// By what a thread waits that only helps: it sleeps soon, whatever is known of the program's own waits. Those who have a core each look
    /// for long, and on the program's core that would keep the program from looking.
    aside: Host,
    /// Rung to end the thread.
    end_bell: Bell,
    is_over: AtomicBool,
}

impl Inner {
    /// Does something with the state; others that wait hear if that brought news.
    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Exchange) -> T) -> T {
        let (done, has_news) = self.enter(act);
        if has_news {
            self.tell(0);
        }
        done
    }

    /// Does something with the state; with whether that brought news.
    #[inline]
    fn enter<T>(&self, act: impl FnOnce(&mut Exchange) -> T) -> (T, bool) {
        let mut exchange = self.exchange.lock(&self.host);
        (act(&mut exchange), exchange.take_news())
    }

    /// Wakes who waits for news, beside so many.
    #[inline]
    fn tell(&self, but: u32) {
        // Whoever sleeps has said so before its last look, and if that was too early for the news, the lock has ordered what it said
        // before this.
        let is_armed = || self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > but || is_armed() {
            self.host.ring(&self.bell);
        }
    }

    /// Looks at the device, if that is for callers to do. Whether that has changed something.
    #[inline]
    fn progress(&self, exchange: &mut Exchange, brief: bool) -> bool {
        // Of more than it took, the news tell who is about to sleep.
        self.matcher == Matcher::Caller && exchange.progress(brief).changed
    }

    /// What a caller sleeps on.
    fn source(&self) -> &dyn Source {
        if self.matcher == Matcher::Caller { &self.sources } else { &self.bell }
    }

    /// Makes progress until `look` says that it has seen what it wants; whether that is so, or the deadline has passed.
    #[inline]
    fn wait(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut look: impl FnMut(&mut Exchange) -> bool,
    ) -> bool {
        let mut step = |brief: bool, waiting: bool| {
            self.looked();
            let mut exchange = self.exchange.lock(&self.host);
            // What is there already needs no look at the device.
            let mut is_over = look(&mut exchange);
            if !is_over && self.progress(&mut exchange, brief) {
                is_over = look(&mut exchange);
            }
            let has_news = exchange.take_news();
            drop(exchange);
            if has_news {
                // Whoever has found what it waits for need not be woken.
                self.tell(u32::from(is_over && waiting));
            }
            is_over.then_some(())
        };
        if step(true, false).is_some() {
            return true;
        }
        let sleeper = Sleeper { inner: self, waits: Cell::new(false) };
        if self.host.node().is_some() {
            sleeper.wait();
        }
        let mut looks = 0;
        let step = || {
            looks += 1;
            step(looks < BRIEF_LOOKS, sleeper.waits.get())
        };
        self.host.wait(call, &sleeper, deadline, step).is_some()
    }

    /// The program has looked for itself. That another look is lost here does no harm.
    #[inline]
    fn looked(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes all that has come.
    fn look_at_all(&self) {
        loop {
            let more = self.with(|exchange| exchange.progress(false).more);
            if !more || self.is_over.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// The thread's life.
    fn attend(&self) {
        let is_over = || self.is_over.load(Ordering::SeqCst).then_some(());
        let step = || {
            self.look_at_all();
            is_over()
        };
        let spin = || {
            self.with(|exchange| exchange.progress(true));
            is_over()
        };
        match self.matcher {
            Matcher::Caller => self.help(),
            Matcher::Thread => drop(self.host.wait("portals thread", &self.sources, None, step)),
            Matcher::Busy => drop(self.host.poll("portals thread", None, spin)),
        }
    }

    /// Looks at the device while the program does not.
    fn help(&self) {
        let is_over = || self.is_over.load(Ordering::SeqCst).then_some(());
        let mut seen = self.looks.load(Ordering::Relaxed);
        while is_over().is_none() {
            let looks = self.looks.load(Ordering::Relaxed);
            if looks != seen {
                seen = looks;
                self.aside.wait("portals thread", &self.end_bell, self.aside.after(WATCH), is_over);
                continue;
            }
            // A look of the program's ends this wait with the next news.
            self.aside.wait("portals thread", &self.sources, None, || {
                self.look_at_all();
                let goes_on = self.looks.load(Ordering::Relaxed) == seen && is_over().is_none();
                (!goes_on).then_some(())
            });
        }
    }
}

/// What a wait of a thread sleeps on. Most waits end before they would sleep, and whoever has news need not hear of those.
struct Sleeper<'a> {
    inner: &'a Inner,
    /// It is among those that wait.
    waits: Cell<bool>,
}

impl Sleeper<'_> {
    fn wait(&self) {
        if !self.waits.replace(true) {
            self.inner.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Source for Sleeper<'_> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.inner.source().prepare_wait(wakes);
        self.wait();
    }

    fn stirs(&self) -> u64 {
        self.inner.source().stirs()
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if self.waits.get() {
            self.inner.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// What a process has of Portals on one device: up to four interfaces at one address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node(Arc<Keeper>);

/// Ends the thread with the last handle.
struct Keeper {
    inner: Arc<Inner>,
    /// Behind a lock only so that nodes can be shared; the last handle takes it.
    thread: Mutex<Option<Task>>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({:?})", self.inner.me)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::SeqCst);
        self.inner.host.ring(&self.inner.end_bell);
        self.inner.host.ring(&self.inner.bell);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        thread.take().into_iter().for_each(Task::join);
    }
}

impl Node {
    /// Listens on a device, as a process of this number or of any; its node is the address. It makes links to processes that prove that they
    /// have the same key, and to no others. In virtual time there is no thread, and callers match.
    ///
    /// # Safety
    /// All memory that is given to an engine of this node's interfaces, as that of an entry or as what an operation uses of a memory
    /// descriptor's, is readable, and writable where messages or answers may go, from then on until the entry is gone or the operation
    /// is over; nobody uses it meanwhile in a way that Portals forbids.
    ///
    /// # Errors
    /// The device's; [`verbs::Error::Invalid`] for a number above 65,535. A number that is taken is an error of the listener.
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
        let (me, bell) = (exchange.carrier.me(), Arc::new(Bell::new()));
        let mut sources = WaitSet::new();
        sources.add(bell.clone());
        sources.add(exchange.carrier.nic().cq.clone());
        sources.add(exchange.carrier.nic().cm.clone());
        let inner = Arc::new(Inner {
            host: host.clone(),
            uid,
            me,
            matcher,
            exchange: Lock::in_turn(exchange),
            sources,
            bell,
            waiting: AtomicU32::new(0),
            is_armed: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            aside: if host.node().is_some() { host.clone() } else { verbs::host::real::host() },
            end_bell: Bell::new(),
            is_over: AtomicBool::new(false),
        });
        // In virtual time a rank that computes is not disturbed, and whoever waits makes progress.
        let thread = match host.node() {
            Some(_) => None,
            None => {
                let attends = inner.clone();
                let system = |error: std::io::Error| verbs::Error::Invalid(format!("no thread: {error}"));
                Some(host.spawn("portals", None, move || attends.attend()).map_err(system)?)
            }
        };
        Ok(Self(Arc::new(Keeper { inner, thread: Mutex::new(thread) })))
    }

    /// The seed of this process's challenges, which need not be secret. Processes that [know it](Node::learn_seed) connect to this
    /// one with one request instead of two. `None` on devices where one request is enough anyway.
    #[must_use]
    pub fn seed(&self) -> Option<Seed> {
        self.0.inner.with(|exchange| exchange.carrier.seed())
    }

    /// Learns the [seed](Node::seed) of another process. A wrong seed costs one request, as an unknown one does.
    pub fn learn_seed(&self, process: Process, seed: Seed) {
        self.0.inner.with(|exchange| exchange.carrier.learn(process, seed));
    }

    /// Who this process is, on physical interfaces.
    #[must_use]
    pub fn me(&self) -> Process {
        self.0.inner.me
    }

    /// The interface of a kind, which this opens.
    #[must_use]
    pub fn interface(&self, kind: Kind, limits: Limits) -> Ni {
        let engine = Engine::new(self.me(), self.0.inner.uid, kind.is_matching, limits);
        let map = kind.is_logical.then(Vec::new);
        self.0.inner.with(|exchange| exchange.open(kind.number(), Interface { engine, map }));
        Ni { node: self.clone(), kind }
    }
}

/// What a wait sleeps on that looks at interfaces of the node between, by [`Ni::look`].
impl Source for Node {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        // The bell first: whoever takes the mark rings it, and a ring that finds nobody there yet would be the last.
        self.0.inner.source().prepare_wait(wakes);
        self.0.inner.is_armed.store(true, Ordering::SeqCst);
    }

    fn stirs(&self) -> u64 {
        self.0.inner.source().stirs()
    }
}

/// An open interface. Calls on one that has been closed do nothing.
#[derive(Clone, Debug)]
pub struct Ni {
    node: Node,
    kind: Kind,
}

impl Ni {
    fn inner(&self) -> &Inner {
        &self.node.0.inner
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The process that it is an interface of.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Does something at the engine, and carries what comes of it; `None` if the interface is closed.
    pub fn call<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.inner().with(|exchange| {
            let done = act(&mut exchange.interface(self.kind.number())?.engine);
            exchange.flush();
            // Another thread may wait for what this has changed.
            exchange.has_news();
            Some(done)
        })
    }

    /// Puts without an acknowledgement, from memory of which nothing is told or counted that succeeds, if the message can leave at once: the
    /// memory is free again. False if it cannot, or is no such put; then nothing has happened, and [`Engine::transfer`] is the way.
    #[inline]
    #[must_use]
    pub fn put_at_once(&self, transfer: &Transfer) -> bool {
        self.inner().with(|exchange| exchange.put_at_once(self.kind.number(), transfer))
    }

    /// Begins an operation, as [`Engine::transfer`]: by the shorter way, if it can be [put at once](Ni::put_at_once). `None` if the
    /// interface is closed.
    #[inline]
    pub fn transfer(&self, transfer: &Transfer) -> Option<crate::Result<()>> {
        self.inner().with(|exchange| {
            if exchange.put_at_once(self.kind.number(), transfer) {
                return Some(Ok(()));
            }
            let begun = exchange.interface(self.kind.number())?.engine.transfer(transfer);
            exchange.flush();
            exchange.has_news();
            Some(begun)
        })
    }

    /// On a logical interface: as appending an entry to the priority list and waiting for its event, for no longer than so many looks: if that list is empty, and
    /// no header waits; if the entry is used once, for one process, and does not truncate; and if the next message that the process stores
    /// is a put that the entry takes and no answer is wanted to. Otherwise nothing has happened.
    #[inline]
    #[must_use]
    pub fn take_at_once(&self, pt_index: u32, entry: &Entry, looks: u32) -> Taken {
        let inner = self.inner();
        if inner.matcher != Matcher::Caller {
            return Taken::Other;
        }
        inner.looked();
        inner.with(|exchange| exchange.take_at_once(self.kind.number(), pt_index, entry, looks))
    }

    /// Does something at the engine, carries what comes of it, and then does something else there; `None` if the interface is closed.
    pub fn call_then<T, U>(
        &self,
        act: impl FnOnce(&mut Engine) -> T,
        then: impl FnOnce(&mut Engine, T) -> U,
    ) -> Option<U> {
        self.inner().with(|exchange| {
            let done = act(&mut exchange.interface(self.kind.number())?.engine);
            exchange.flush();
            exchange.has_news();
            Some(then(&mut exchange.interface(self.kind.number())?.engine, done))
        })
    }

    /// Makes progress, and does something at the engine; `None` if the interface is closed.
    pub fn test<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.inner().host.glance();
        self.look(act)
    }

    /// As [`Ni::test`], for who holds a lock: in virtual time nobody else gets a turn.
    pub fn look<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let inner = self.inner();
        inner.looked();
        // Whoever is about to sleep looks at all.
        let brief = !inner.is_armed.load(Ordering::SeqCst);
        inner.with(|exchange| {
            inner.progress(exchange, brief);
            Some(act(&mut exchange.interface(self.kind.number())?.engine))
        })
    }

    /// Makes progress until `look` finds something at the engine; `None` when the deadline passes first, or the interface is closed.
    pub fn wait<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut look: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let number = self.kind.number();
        // What is found may be large, and is put where it stays.
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

    /// Whether no operation is under way, neither of this process nor at it, and all that was said has left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner().with(|exchange| exchange.is_idle(self.kind.number()))
    }

    /// A deadline so far from now.
    #[must_use]
    pub fn after(&self, span: Span) -> Option<Time> {
        self.inner().host.after(span)
    }

    /// Says which process has which rank (`PtlSetMap`). False, and nothing happens, if that was said before, this process is not among
    /// them, or the interface is physical.
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

    /// The processes by rank (`PtlGetMap`); none before the map is set.
    #[must_use]
    pub fn map(&self) -> Vec<Process> {
        let map = |exchange: &mut Exchange| exchange.interface(self.kind.number())?.map.clone();
        self.inner().with(map).unwrap_or_default()
    }

    /// This process, as this interface names it (`PtlGetId`): its rank, once there is a map.
    #[must_use]
    pub fn id(&self) -> Option<Process> {
        if !self.kind.is_logical {
            return Some(self.node.me());
        }
        let rank = self.map().iter().position(|process| *process == self.node.me())?;
        Some(Process::rank(rank as u32))
    }

    /// Closes it (`PtlNIFini`), when what it sent has arrived or five seconds have passed.
    pub fn close(&self) {
        let (inner, number) = (self.inner(), self.kind.number());
        let deadline = inner.host.after(LINGER);
        inner.wait("PtlNIFini", deadline, |exchange| exchange.is_idle(number));
        inner.with(|exchange| exchange.carrier.ask_idle());
        inner.wait("PtlNIFini", deadline, |exchange| exchange.carrier.is_idle());
        inner.with(|exchange| {
            exchange.close(number);
            exchange.has_news();
        });
    }
}
