//! [`Core`]: a process's state behind its lock, and how its threads wait.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use host::{EventCount, Host, Lock, LockGuard, Source, Span, Time, WaitSet, Wakes, mix};

use crate::bootstrap::Bootstrap;
use crate::coll::check::CHECK_INTERVALS;
use crate::coll::shm::RetiredSlots;
use crate::coll::tuning::Tuning;
use crate::comm::context::{Context, SERIAL_MAX};
use crate::error::{Class, Error, Result};
use crate::memory::ScratchPool;
use crate::p2p::engine::{Engine, Started, StoredReceive};
use crate::p2p::operation::{Receive, Table};
use crate::p2p::over_portals::Portals;
use crate::peers::transport::Transport;
use crate::req::special::SpecialRequest;
use crate::rma::one_sided::OneSided;
use crate::status::Status;

/// Notes the calls that wait for long, so that a launcher can say what a job hangs in.
pub trait LongWaits: Send + Sync {
    /// A thread has waited in this call for a while, and waits on.
    fn begin(&self, call: &'static str);
    /// The wait has ended.
    fn end(&self, call: &'static str);
}

/// After this time a wait counts as long.
const LONG_WAIT: Span = Span::from_ms(50);

/// A noted long wait.
struct NotedWait<'a> {
    notes: &'a dyn LongWaits,
    call: &'static str,
}

impl Drop for NotedWait<'_> {
    fn drop(&mut self) {
        self.notes.end(self.call);
    }
}

/// A receiver of notes.
#[derive(Clone)]
pub struct LongWaitNotes(pub Arc<dyn LongWaits>);

impl std::fmt::Debug for LongWaitNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LongWaitNotes")
    }
}

/// How long a process that leaves waits for other processes.
pub(crate) const LEAVE_TIMEOUT: Span = Span::from_secs(5);

/// The state that all objects of a process share; cheap to clone. Any thread may use it: a waiting thread makes progress for all,
/// and releases the lock between two polls.
#[derive(Clone, Debug)]
pub(crate) struct Core(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: Host,
    engine: Lock<Engine>,
    /// Waiting threads share cores.
    oversubscribed: AtomicBool,
    /// Never locked while the engine's lock is held.
    specials: Lock<Table<SpecialRequest>>,
    bootstrap: BootstrapHandle,
    tuning: Tuning,
    one_sided: OneSided,
    /// All event sources: the devices, and the event count.
    sources: WaitSet,
    /// Notified by a thread whose progress completed an operation for which another may wait.
    wakeup: Arc<EventCount>,
    /// Threads that sleep, or are about to.
    waiting: AtomicU32,
    /// The next serial number for a communicator that this process names.
    serial: AtomicU32,
    /// The next number of an object.
    next_id: AtomicU64,
    /// Memory of freed communicators.
    retired: Lock<Vec<RetiredSlots>>,
    /// Scratch memory of collective calls.
    scratch: ScratchPool,
    /// The receiver of notes about long waits.
    long_waits: Option<LongWaitNotes>,
}

impl Drop for Inner {
    /// Other processes may still read NIC memory of this process: members of freed communicators, and peers that have not read the
    /// last message. A process that has left in order keeps that memory until they have finished, or until [`LEAVE_TIMEOUT`] has
    /// passed.
    fn drop(&mut self) {
        let mut engine = self.engine.lock(&self.host);
        if engine.transport.leaves() {
            let retired = self.retired.lock(&self.host);
            let mut is_needed =
                || engine.transport.is_needed() || !retired.iter().all(RetiredSlots::is_unused);
            let is_done = || (!is_needed()).then_some(());
            let _ = self.host.poll("MPI_Finalize", self.host.after(LEAVE_TIMEOUT), is_done);
        }
    }
}

struct BootstrapHandle(Arc<dyn Bootstrap>);

impl std::fmt::Debug for BootstrapHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bootstrap({} of {})", self.0.rank(), self.0.size())
    }
}

impl Core {
    /// The core of a process whose transport is set up.
    pub(crate) fn new(
        host: &Host,
        bootstrap: Arc<dyn Bootstrap>,
        transport: Transport,
        portals: Option<Portals>,
        (tuning, one_sided): (Tuning, OneSided),
        long_waits: Option<LongWaitNotes>,
    ) -> Self {
        let wakeup = Arc::new(EventCount::new());
        let mut sources = WaitSet::new();
        sources.add(wakeup.clone());
        for nic in transport.nics() {
            sources.add(nic.shared.cq.clone());
            sources.add(nic.shared.cm.clone());
        }
        if let Some(portals) = &portals {
            sources.add(portals.source().clone());
        }
        let engine = Lock::fair(Engine::new(host, bootstrap.rank(), transport, portals));
        Self(Arc::new(Inner {
            host: host.clone(),
            engine,
            oversubscribed: AtomicBool::new(false),
            specials: Lock::default(),
            bootstrap: BootstrapHandle(bootstrap),
            tuning,
            one_sided,
            sources,
            wakeup,
            waiting: AtomicU32::new(0),
            serial: AtomicU32::new(FIRST_SERIAL),
            next_id: AtomicU64::new(0),
            retired: Lock::default(),
            scratch: ScratchPool::new(host.node().is_some()),
            long_waits,
        }))
    }

    /// The host that it runs on.
    pub(crate) fn host(&self) -> &Host {
        &self.0.host
    }

    /// The bootstrap of the job.
    pub(crate) fn bootstrap(&self) -> &Arc<dyn Bootstrap> {
        &self.0.bootstrap.0
    }

    /// The parameters by which algorithms are chosen.
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    /// Scratch memory of collective calls.
    pub(crate) fn scratch(&self) -> &ScratchPool {
        &self.0.scratch
    }

    /// Which one-sided operations are sent as messages.
    pub(crate) fn one_sided(&self) -> OneSided {
        self.0.one_sided
    }

    /// Returns a number that no other object of this process has.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a new, unique name for a communicator.
    ///
    /// # Errors
    /// [`Class::OTHER`] after 2^29 communicators.
    pub(crate) fn new_context(&self) -> Result<Context> {
        // Other jobs number their communicators in the same way.
        if self.with(|engine| !engine.transport.strangers().is_empty()) {
            return Ok(self.new_intercomm_context());
        }
        let serial = self.0.serial.fetch_add(1, Ordering::Relaxed);
        if serial > SERIAL_MAX {
            return Err(Error::new(
                Class::OTHER,
                "this process has created 2^29 communicators, the most that is possible",
            ));
        }
        Ok(Context::new(self.0.bootstrap.0.rank(), serial))
    }

    /// Returns a name for a communicator of processes of several jobs: one of 2^60 that do not contain a process number, derived
    /// from the job's number, the process's and a serial number.
    pub(crate) fn new_intercomm_context(&self) -> Context {
        let rank = self.bootstrap().rank();
        let job = self.with(|engine| engine.transport.strangers().identity(rank).job);
        let number = mix(mix(job) ^ mix(u64::from(rank) << 32 | self.next_id() & u64::from(u32::MAX)));
        Context::new(number as u32 | 1 << 31, (number >> 32) as u32 & SERIAL_MAX)
    }

    /// The table of requests that are more than an operation.
    pub(crate) fn specials(&self) -> LockGuard<'_, Table<SpecialRequest>> {
        self.hold(&self.0.specials)
    }

    /// Sets whether waiting threads share cores.
    pub(crate) fn set_oversubscribed(&self, oversubscribed: bool) {
        self.0.oversubscribed.store(oversubscribed, Ordering::Relaxed);
    }

    /// How many times to poll in a row for another process's store: `most` if each thread has a core of its own.
    #[inline]
    pub(crate) fn polls(&self, most: u32) -> u32 {
        if self.is_oversubscribed() { 1 } else { most }
    }

    /// Whether ranks share processors.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.0.oversubscribed.load(Ordering::Relaxed)
    }

    /// Locks a lock of this process.
    #[inline(always)]
    pub(crate) fn hold<'a, T>(&'a self, lock: &'a Lock<T>) -> LockGuard<'a, T> {
        lock.lock(&self.0.host)
    }

    /// Calls a function with the engine locked. Notifies waiting threads if an operation has completed.
    #[inline(always)]
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        let (done, has_completed) = {
            let mut engine = self.hold(&self.0.engine);
            (act(&mut engine), engine.take_completed())
        };
        if has_completed && self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.host.notify(&self.0.wakeup);
        }
        done
    }

    /// Makes progress, and calls `check` once.
    pub(crate) fn test<T>(&self, check: impl FnOnce(&mut Engine) -> Option<T>) -> Option<T> {
        self.0.host.charge_poll();
        self.with(|engine| {
            engine.progress(false);
            check(engine)
        })
    }

    /// Waits for the completion of a started operation.
    pub(crate) fn finish(&self, call: &'static str, started: Started) -> Status {
        match started {
            Started::Completed(status) => status,
            Started::InProgress(key) => {
                self.wait(call, |engine| engine.take_status(key)).unwrap_or_else(Status::failed)
            }
        }
    }

    /// Receives, and waits for completion. The first polls examine only what the source has stored in memory of this process: most exchanges of short
    /// messages need no more. The receive is posted only if they find no message.
    #[inline]
    pub(crate) fn receive(&self, call: &'static str, receive: &Receive) -> Status {
        let received = self.with(|engine| engine.poll_stored(receive, self.polls(LOCKED_POLLS)));
        received.unwrap_or_else(|| self.poll_then_post(call, receive))
    }

    /// Polls what the source stores, then posts the receive, and waits for it.
    fn poll_then_post(&self, call: &'static str, receive: &Receive) -> Status {
        let (mut started, mut polls, mut source) = (None, 0, None);
        let step = |engine: &mut Engine, brief: bool| {
            if started.is_none() {
                polls += 1;
                let keeps_polling = brief && polls < self.polls(STORED_POLLS);
                if keeps_polling && source.is_some_and(|source| !engine.transport.has_stored(source)) {
                    return None;
                }
                match engine.receive_stored(receive) {
                    StoredReceive::Received(status) => return Some(status),
                    StoredReceive::NotYet { connection } if keeps_polling => {
                        source = connection;
                        return None;
                    }
                    StoredReceive::NotYet { .. } | StoredReceive::MustPost => {}
                }
                match engine.receive(receive.clone()) {
                    Started::Completed(status) => return Some(status),
                    Started::InProgress(key) => started = Some(key),
                }
            }
            engine.progress(brief);
            engine.take_status(started?)
        };
        self.wait_stepwise(call, step).unwrap_or_else(Status::failed)
    }

    /// Waits until `is_there` sees a process's store in shared memory, until the process has given up, or until the process, or the
    /// owner of the memory, is lost. `has_given_up` is called only after the first polls.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] for a process that is lost; as [`Core::wait`].
    pub(crate) fn wait_for_store(
        &self,
        call: &'static str,
        (process, owner): (u32, u32),
        is_there: impl Fn() -> bool,
        has_given_up: impl Fn() -> bool,
    ) -> Result<()> {
        let mut polls = 0;
        self.wait_stepwise(call, |engine, brief| {
            polls += 1;
            if is_there() {
                return Some(Ok(()));
            }
            if brief && polls < STORED_POLLS {
                return None;
            }
            engine.progress(brief);
            // A store before the loss counts. The memory of a lost owner may be empty.
            let transport = &engine.transport;
            // The memory of an owner that has left in order stays valid while it is mapped.
            let lost = transport.lost(process).or_else(|| transport.broken(owner)).cloned();
            if is_there() || has_given_up() { Some(Ok(())) } else { lost.map(Err) }
        })?
    }

    /// Keeps memory that members of a communicator may still poll, and frees the memory of earlier calls that none polls any more.
    pub(crate) fn keep_until_unused(&self, memory: RetiredSlots) {
        let mut retired = self.hold(&self.0.retired);
        retired.push(memory);
        retired.retain(|memory| !memory.is_unused());
    }

    /// Makes progress until `check` returns a value.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the world of this process ends first.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        call: &'static str,
        mut check: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<T> {
        let mut step = |engine: &mut Engine, brief: bool| {
            engine.progress(brief);
            check(engine)
        };
        // The first poll often succeeds.
        let (found, may_wait_forever) = self.with(|engine| {
            let found = step(engine, true);
            let may_wait_forever = found.is_none() && engine.may_wait_forever();
            (found, may_wait_forever)
        });
        match found {
            Some(found) => Ok(found),
            None if may_wait_forever && self.0.host.node().is_none() => {
                self.wait_with_coll_checks(call, step)
            }
            None => self.wait_stepwise(call, step),
        }
    }

    /// Waits as [`Core::wait`] does, until a deadline.
    pub(crate) fn wait_for<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut check: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        self.wait_until(call, deadline, |engine, brief| {
            engine.progress(brief);
            check(engine)
        })
    }

    /// Waits as [`Core::wait_stepwise`] does, for a message that may never arrive: now and then the other processes are asked for
    /// it.
    fn wait_with_coll_checks<T>(
        &self,
        call: &'static str,
        mut step: impl FnMut(&mut Engine, bool) -> Option<T>,
    ) -> Result<T> {
        let mut noted = None;
        for interval in CHECK_INTERVALS {
            if let Some(found) = self.wait_until(call, self.0.host.after(interval), &mut step) {
                return Ok(found);
            }
            noted = noted.or_else(|| self.note_wait(call));
            self.with(Engine::send_coll_checks);
        }
        drop(noted);
        self.wait_stepwise(call, step)
    }

    /// Waits until `step` returns a value; each step makes progress, brief or full.
    fn wait_stepwise<T>(
        &self,
        call: &'static str,
        mut step: impl FnMut(&mut Engine, bool) -> Option<T>,
    ) -> Result<T> {
        let _noted = match self.0.long_waits {
            None => None,
            Some(_) => {
                if let Some(found) = self.wait_until(call, self.0.host.after(LONG_WAIT), &mut step) {
                    return Ok(found);
                }
                self.note_wait(call)
            }
        };
        let found = self.wait_until(call, None, step);
        found.ok_or_else(|| Error::new(Class::OTHER, format_args!("the world ended during {call}")))
    }

    /// Notes that this thread waits for long in a call, until the value is dropped.
    fn note_wait(&self, call: &'static str) -> Option<NotedWait<'_>> {
        let notes = &*self.0.long_waits.as_ref()?.0;
        notes.begin(call);
        Some(NotedWait { notes, call })
    }

    /// Waits as [`Core::wait_stepwise`] does, until a deadline.
    fn wait_until<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut step: impl FnMut(&mut Engine, bool) -> Option<T>,
    ) -> Option<T> {
        let sources = WaitSources { all: &self.0.sources, armed: Cell::new(false) };
        // In virtual time no thread sleeps, but a paused one polls again when the event count is notified.
        let mut waits = self.0.host.node().map(|_| WaitCount::new(&self.0.waiting));
        self.0.host.wait(call, &sources, deadline, || {
            let is_last = sources.armed.take();
            if is_last {
                // Counted before the last poll, so that a thread that completes the operation after that poll notifies this one.
                waits.get_or_insert_with(|| WaitCount::new(&self.0.waiting));
            }
            let (found, has_completed) = {
                let mut engine = self.hold(&self.0.engine);
                (step(&mut engine, !is_last), engine.take_completed())
            };
            if has_completed && self.0.waiting.load(Ordering::SeqCst) > u32::from(waits.is_some()) {
                self.0.host.notify(&self.0.wakeup);
            }
            found
        })
    }
}

/// Polls for a stored message before the receive is posted: first this many in a row with the lock held, for which other threads
/// wait hardly longer than for a short message; then more for about a microsecond, at the pace of [`Host::wait`].
const LOCKED_POLLS: u32 = 64;
const STORED_POLLS: u32 = 32;

/// The event sources of a waiting thread. Its last poll before sleeping makes full progress.
struct WaitSources<'a> {
    all: &'a WaitSet,
    /// The thread is about to sleep.
    armed: Cell<bool>,
}

impl Source for WaitSources<'_> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.all.prepare_wait(wakes);
        self.armed.set(true);
    }

    fn progress_count(&self) -> u64 {
        self.all.progress_count()
    }

    fn begin_polling(&self) {
        self.all.begin_polling();
    }

    fn end_polling(&self) {
        self.all.end_polling();
    }
}

/// The first serial number of a created communicator; 0 and 1 belong to the predefined ones.
const FIRST_SERIAL: u32 = 2;

/// Counts a thread as waiting.
struct WaitCount<'a>(&'a AtomicU32);

impl<'a> WaitCount<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
