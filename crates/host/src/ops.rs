//! [`HostOps`], the interface of a kind of time, and [`Host`], its handle with the two wait loops.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::source::Polling;
use crate::{EventCount, Source, Span, Time, Wakes};

/// What a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The processor's invariant time-stamp counter, calibrated against CLOCK_MONOTONIC_RAW.
    Tsc,
    /// The virtual counter of an aarch64 processor (CNTVCT_EL0), calibrated in the same way.
    Cntvct,
    /// CLOCK_MONOTONIC_RAW, where there is no such counter.
    Monotonic,
    /// Simulated time.
    Virtual,
}

impl fmt::Display for ClockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tsc => "tsc",
            Self::Cntvct => "cntvct",
            Self::Monotonic => "monotonic",
            Self::Virtual => "virtual",
        })
    }
}

/// A thread or fiber started by [`Host::spawn`]; dropped without [`Task::join`], it is detached.
pub struct Task(pub(crate) Box<dyn FnOnce() + Send>);

impl Task {
    /// A task that is joined by calling `join`; for implementors of [`HostOps`].
    pub fn new(join: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(join))
    }

    /// Waits until the task has ended. A panic in it has been reported already and is not propagated.
    pub fn join(self) {
        (self.0)()
    }
}

/// Polls at the start of a wait that are separated by a short pause only; about a microsecond in total, a few times
/// what a cache line transfer takes.
pub(crate) const EAGER_POLLS: u32 = 32;

/// The state of a wait loop, as the kind of time sees it.
#[derive(Clone, Copy, Debug)]
pub struct WaitLoop {
    /// Polls of this wait so far.
    pub count: u32,
    /// When idle waiting began: after the first polls, the last wake-up or the last activity. Zero
    /// during the first polls, because reading the clock costs a good part of what a short message takes.
    pub began: Time,
    /// The deadline, if any.
    pub deadline: Option<Time>,
    /// The name of the waiting call, for a deadlock report.
    pub call: &'static str,
    /// When the last poll could begin, in cycles of the processor; 0 before it is known.
    pub last_poll: u64,
    /// Whether it polls plain memory ([`Host::poll`]), for which no notification comes.
    pub polls: bool,
}

/// Work of a NIC without a thread of its own, done by threads that poll memory: the awaited data may arrive only
/// through this work.
pub trait ProgressHook: Send + Sync {
    /// Does a short piece of the work. Called between two polls, by any number of threads at the same time.
    fn progress(&self);
}

/// Steps of a library above the NICs whose cost virtual time models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call by the program enters the library and returns.
    Call,
    /// The library creates or completes a request: an MPI request, a Portals descriptor.
    Request,
    /// One list entry is compared for a match: a posted receive, an unexpected message.
    Match,
    /// One event is delivered.
    Event,
    /// A wait sleeps until an event wakes it.
    Wake,
    /// A thread's wait returns an event of another adapter than its last wait did.
    Turn,
}

impl Step {
    /// All kinds of steps.
    pub const ALL: [Self; 6] = [Self::Call, Self::Request, Self::Match, Self::Event, Self::Wake, Self::Turn];
}

/// What a kind of time provides. Users call [`Host`].
pub trait HostOps: Send + Sync {
    /// The current time on this host's clock.
    fn now(&self) -> Time;
    /// What the clock counts.
    fn clock(&self) -> ClockKind;
    /// Spends `span` of this fiber's processor time: nothing in real time, where time passes anyway.
    fn charge(&self, span: Span);
    /// Spends the time that copying `len` bytes takes this fiber: nothing in real time, where the copy itself takes it.
    fn charge_copy(&self, len: u64);
    /// Spends the time that handing work to another thread and joining it takes this fiber: nothing in real time, where
    /// this takes the time itself.
    fn charge_fork(&self) {}
    /// Spends the time of `n` steps of a library: nothing in real time.
    fn charge_step(&self, _step: Step, _n: u64) {}
    /// Spends what a wait takes in addition to its polls: nothing in real time.
    fn charge_wait(&self, _adapter: usize, _slept: bool) {}
    /// Pauses between two polls of memory or a queue, without giving up the wait. Returns whether the deadline must be
    /// checked after the next poll; real time does so seldom because it is expensive.
    fn pause(&self, wait: &mut WaitLoop) -> bool;
    /// The number of polls after which a wait reports to its source that it [goes on](Source::begin_polling): those
    /// between which the caller cannot lose its core by a yield.
    fn polls_before_yield(&self) -> u32 {
        EAGER_POLLS
    }
    /// Whether the wait should sleep from here on. Not called during the first polls.
    fn should_sleep(&self, wait: &WaitLoop) -> bool;
    /// Sleeps until one of `wakes` wakes the caller.
    fn sleep(&self, wakes: &Wakes<'_>, wait: &WaitLoop);
    /// Reports the longest sleep of a wait that went on beyond its first polls, so that later waits can choose better
    /// between spinning and sleeping; zero if it did not sleep.
    fn record_sleep(&self, slept: Span);
    /// Sets whether waiting threads outnumber the cores or each has its own core, as the launcher knows. No effect in
    /// virtual time.
    fn set_oversubscribed(&self, _is_oversubscribed: bool) {}
    /// Runs `body` concurrently with the caller, on core number `core` if given.
    fn spawn(&self, name: &str, core: Option<usize>, body: Box<dyn FnOnce() + Send>)
    -> std::io::Result<Task>;
    /// Spends the time of one poll of a loop outside of [`Host`]: nothing in real time, where polling takes the time
    /// itself.
    fn charge_poll(&self) {}
    /// Notifies fibers of this machine that something has happened, so that they poll again. Nothing in real time,
    /// where waiters poll, or sleep on an [`EventCount`].
    fn signal(&self) {}
    /// Calls a hook between two polls of [`Host::poll`], for as long as the hook is alive. Kinds of time whose
    /// NICs have processors ignore it.
    fn add_progress_hook(&self, _hook: Weak<dyn ProgressHook>) {}
    /// Whether all waits must end because their world ends.
    fn is_ending(&self) -> bool {
        false
    }
    /// The simulated machine behind it, in virtual time: what [`Host::node`] returns.
    fn simulated(&self) -> Option<&dyn Any> {
        None
    }
}

/// The machine that code runs on; cheap to clone.
#[derive(Clone)]
pub struct Host {
    ops: Arc<dyn HostOps>,
    /// Lets real time skip the virtual calls for charges, which cost nothing there: a short message has about five of
    /// them.
    is_virtual: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.clock())
    }
}

impl Host {
    /// A host with the given kind of time.
    pub fn new(ops: Arc<dyn HostOps>) -> Self {
        let is_virtual = ops.clock() == ClockKind::Virtual;
        Self { ops, is_virtual }
    }

    /// The current time on this host's clock.
    #[inline]
    pub fn now(&self) -> Time {
        self.ops.now()
    }

    /// What the clock counts.
    pub fn clock(&self) -> ClockKind {
        self.ops.clock()
    }

    /// The point `span` from now, as a deadline.
    pub fn after(&self, span: Span) -> Option<Time> {
        Some(self.now() + span)
    }

    /// Spends `span` of processor time; free in real time.
    #[inline]
    pub fn charge(&self, span: Span) {
        if self.is_virtual {
            self.ops.charge(span);
        }
    }

    /// Spends the time that a copy of `len` bytes by the processor takes; free in real time, where the copy itself has
    /// taken it. Code that copies message data must call this.
    #[inline]
    pub fn charge_copy(&self, len: u64) {
        if self.is_virtual {
            self.ops.charge_copy(len);
        }
    }

    /// Spends the time that handing work to an existing thread, and joining it, takes; free in real time, where this
    /// takes the time itself.
    pub fn charge_fork(&self) {
        if self.is_virtual {
            self.ops.charge_fork();
        }
    }

    /// Spends the time of `n` steps of a library on this machine; free in real time, where the steps take it
    /// themselves. The library calls this where it executes the steps; their costs come from the section `software` of
    /// a modelled machine's file.
    #[inline]
    pub fn charge_step(&self, step: Step, n: u64) {
        if self.is_virtual {
            self.ops.charge_step(step, n);
        }
    }

    /// Spends what a library's wait takes in addition to its polls, once it has an event of an adapter: [`Step::Wake`] if
    /// it had to wait, and [`Step::Turn`] if this thread's last wait was for another adapter. Free in real time.
    #[inline]
    pub fn charge_wait(&self, adapter: usize, slept: bool) {
        if self.is_virtual {
            self.ops.charge_wait(adapter, slept);
        }
    }

    /// Sets from now on whether threads that wait for each other outnumber the cores, or each has its own core. Waits
    /// then give up the core immediately, or keep it longer, instead of finding out by measurement. No effect in
    /// virtual time.
    pub fn set_oversubscribed(&self, is_oversubscribed: bool) {
        self.ops.set_oversubscribed(is_oversubscribed);
    }

    pub(crate) fn simulated(&self) -> Option<&dyn Any> {
        self.ops.simulated()
    }

    /// Runs `body` concurrently with the caller, on core number `core` if given.
    ///
    /// # Errors
    /// The operating system's error, if it refuses another thread.
    pub fn spawn(
        &self,
        name: &str,
        core: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Task> {
        self.ops.spawn(name, core, Box::new(body))
    }

    /// Called before a poll that does not wait, as in a test call: a caller that tests in a loop of its own must let
    /// time pass. In virtual time it costs one poll and lets the world advance to the caller's clock; in real time
    /// nothing.
    #[inline]
    pub fn charge_poll(&self) {
        if self.is_virtual {
            self.ops.charge_poll();
        }
    }

    /// Wakes all waiters on `wakeup`, in either kind of time. Publish what they wait for *before* this. Code above the
    /// NICs uses this and not [`EventCount::notify`], which does not wake fibers in virtual time.
    #[inline]
    pub fn notify(&self, wakeup: &EventCount) {
        wakeup.notify();
        self.signal();
    }

    /// Notifies others on this machine that wait in [`Host::poll`], or in [`Host::wait`] on an event count that has
    /// been notified: in virtual time they poll again. Nothing in real time.
    #[inline]
    pub fn signal(&self) {
        if self.is_virtual {
            self.ops.signal();
        }
    }

    /// Calls a hook between two polls of [`Host::poll`], for as long as the hook is alive.
    pub fn add_progress_hook(&self, hook: Weak<dyn ProgressHook>) {
        self.ops.add_progress_hook(hook);
    }

    /// **The** wait loop: calls `progress` until it returns a value, and sleeps on `source` between calls once spinning
    /// no longer pays. `None` when `deadline` passes first. `call` names the waiting API call.
    ///
    /// `progress` must check everything that `source` covers: the state behind an event count, each source of a
    /// [`crate::WaitSet`]. In virtual time nothing sleeps; anything that happens on the machine makes the wait poll
    /// again.
    pub fn wait<T>(
        &self,
        call: &'static str,
        source: &dyn Source,
        deadline: Option<Time>,
        mut progress: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = progress() {
            return Some(found);
        }
        let mut wait = WaitLoop { count: 0, began: Time::ZERO, deadline, call, last_poll: 0, polls: false };
        let (mut slept, mut progress_count) = (Span::ZERO, 0);
        let (silent_polls, mut polling) = (self.ops.polls_before_yield(), None);
        let found = loop {
            if wait.count >= silent_polls {
                polling.get_or_insert_with(|| Polling::begin(source));
            }
            let mut should_sleep = wait.count > EAGER_POLLS && self.ops.should_sleep(&wait);
            if should_sleep
                && std::mem::replace(&mut progress_count, source.progress_count()) != progress_count
            {
                // The source was active: a sleeper would leave to others the work that its polls do.
                (should_sleep, wait.began) = (false, self.now());
            }
            let check = if should_sleep {
                let mut wakes = Wakes::default();
                source.prepare_wait(&mut wakes);
                let found = progress();
                if found.is_none() && !self.overdue(deadline) {
                    let since = self.now();
                    self.ops.sleep(&wakes, &wait);
                    // More events usually follow the first, so it polls for a while before it sleeps again.
                    // Two threads that slept after each piece of a long exchange would spend most of it waking each
                    // other.
                    wait.began = self.now();
                    slept = slept.max(wait.began.since(since));
                }
                drop(wakes);
                if found.is_some() {
                    break found;
                }
                true
            } else {
                self.ops.pause(&mut wait)
            };
            if let Some(found) = progress() {
                break Some(found);
            }
            wait.count = wait.count.saturating_add(1);
            if wait.count == EAGER_POLLS {
                (wait.began, progress_count) = (self.now(), source.progress_count());
            }
            if (check || slept > Span::ZERO) && self.overdue(deadline) {
                break None;
            }
        };
        // A wait that ended within its first polls says nothing about sleeping, and has no time to spare.
        if wait.count > EAGER_POLLS {
            self.ops.record_sleep(slept);
        }
        found
    }

    /// Polls memory until `attempt` returns a value: for data that arrives without an event, such as the last byte of
    /// an RDMA write. Never sleeps, but yields. `None` when `deadline` passes first.
    #[inline]
    pub fn poll<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = attempt() {
            return Some(found);
        }
        let mut wait = WaitLoop { count: 0, began: Time::ZERO, deadline, call, last_poll: 0, polls: true };
        loop {
            let check = self.ops.pause(&mut wait);
            if let Some(found) = attempt() {
                return Some(found);
            }
            wait.count = wait.count.saturating_add(1);
            if check && self.overdue(deadline) {
                return None;
            }
        }
    }

    fn overdue(&self, deadline: Option<Time>) -> bool {
        deadline.is_some_and(|d| self.now() >= d) || self.ops.is_ending()
    }
}
