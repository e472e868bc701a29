//! [`HostOps`], the contract of a kind of time, and [`Host`], its handle with the two wait loops.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::{Bell, Source, Span, Time, Wakes};

/// What a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The processor's invariant time-stamp counter, calibrated against CLOCK_MONOTONIC_RAW.
    Tsc,
    /// CLOCK_MONOTONIC_RAW, where there is no invariant TSC.
    Monotonic,
    /// Simulated time.
    Virtual,
}

impl fmt::Display for ClockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tsc => "tsc",
            Self::Monotonic => "monotonic",
            Self::Virtual => "virtual",
        })
    }
}

/// Something started by [`Host::spawn`]; dropped without [`Task::join`], it goes on by itself.
pub struct Task(pub(crate) Box<dyn FnOnce() + Send>);

impl Task {
    /// A task that is joined by calling `join`; for implementors of [`HostOps`].
    pub fn new(join: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(join))
    }

    /// Waits until it has ended. A panic in it has been reported where it happened and ends here.
    pub fn join(self) {
        (self.0)()
    }
}

/// Looks of a wait that are spaced by a pause only; about a microsecond, a few times what a cache line takes.
pub(crate) const EAGER_LOOKS: u32 = 32;

/// One turn of a wait loop, as the kind of time sees it.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// How many turns this wait has taken so far.
    pub count: u32,
    /// When the wait began, but for its first looks, or was last woken, or something last stirred; zero until they are over, because reading the clock costs a
    /// good part of what a short message takes.
    pub began: Time,
    /// When it must end, if ever.
    pub deadline: Option<Time>,
    /// The call that waits, for a deadlock report.
    pub call: &'static str,
    /// When the last look could begin, in cycles of the processor; 0 before it is known.
    pub looked: u64,
    /// Whether it looks at bare memory ([`Host::poll`]), which no bell announces.
    pub polls: bool,
}

/// What a NIC without a processor of its own has done by whoever looks at memory: what is looked for may only come by it.
pub trait Chore: Send + Sync {
    /// Does a little of it, soon. Called between two looks, by any number of threads at once.
    fn turn(&self);
}

/// What a library above the NICs does again and again, as far as virtual time asks what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call of a program's enters the library and leaves it.
    Call,
    /// A request of the library's is made, or ended: an MPI request, a Portals descriptor.
    Request,
    /// One entry of a list is looked at for a match: of receives, of unexpected messages.
    Match,
    /// One event is handed out.
    Event,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Call, Self::Request, Self::Match, Self::Event];
}

/// What a kind of time provides. Users call [`Host`].
pub trait HostOps: Send + Sync {
    /// Now, on this host's clock.
    fn now(&self) -> Time;
    /// What the clock counts.
    fn clock(&self) -> ClockKind;
    /// Spends `span` of this rank's processor time: nothing in real time, which charges itself.
    fn charge(&self, span: Span);
    /// Spends the time that copying `len` bytes takes this rank: nothing in real time, where the copy itself takes it.
    fn charge_copy(&self, len: u64);
    /// Spends the time that giving work to another thread and joining it takes this rank: nothing in real time, where
    /// doing so takes it.
    fn charge_fork(&self) {}
    /// Spends what `n` steps of a library take: nothing in real time.
    fn charge_step(&self, _step: Step, _n: u64) {}
    /// Between two looks at memory or a queue: lets some time pass without giving up the wait. Returns whether the
    /// deadline is to be checked after the next look, which real time does seldom because it costs.
    fn relax(&self, turn: &mut Turn) -> bool;
    /// Whether the wait should go to sleep on its bell from here on. Not asked during the first looks.
    fn tired(&self, turn: &Turn) -> bool;
    /// Sleeps until one of them wakes.
    fn sleep(&self, wakes: &Wakes<'_>, turn: &Turn);
    /// Tells of a wait that went on beyond its first looks how long its longest sleep took, so that later ones can choose better
    /// between spinning and sleeping; zero if it did not sleep.
    fn learn(&self, slept: Span);
    /// Those who wait outnumber the cores, or each has one: as whoever started them knows. Means nothing in virtual time.
    fn expect_crowd(&self, _is_crowd: bool) {}
    /// Runs `body` beside the caller, on core number `core` if given.
    fn spawn(&self, name: &str, core: Option<usize>, body: Box<dyn FnOnce() + Send>)
    -> std::io::Result<Task>;
    /// What one look of a loop of the caller's own takes: nothing in real time, where looking takes it.
    fn glance(&self) {}
    /// Something has happened that ranks of this machine may wait for: they look again. Nothing in real time, where whoever
    /// waits looks by itself or sleeps on a bell.
    fn signal(&self) {}
    /// Has a chore done between two looks of [`Host::poll`], for as long as somebody keeps it. Kinds of time whose NICs have
    /// processors have none.
    fn add_chore(&self, _chore: Weak<dyn Chore>) {}
    /// Whether all waits are to end, because the world that they wait in does.
    fn ending(&self) -> bool {
        false
    }
    /// The simulated machine behind it, in virtual time: what [`Host::node`] gives.
    fn simulated(&self) -> Option<&dyn Any> {
        None
    }
}

/// The machine that code runs on; cheap to clone.
#[derive(Clone)]
pub struct Host {
    ops: Arc<dyn HostOps>,
    /// What is free in real time is not even asked for there: a short message has a handful of charges.
    is_virtual: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.clock())
    }
}

impl Host {
    /// A host with its own kind of time.
    pub fn new(ops: Arc<dyn HostOps>) -> Self {
        let is_virtual = ops.clock() == ClockKind::Virtual;
        Self { ops, is_virtual }
    }

    /// Now, on this host's clock.
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

    /// Spends the time that a copy of `len` bytes by the processor takes; free in real time, where the copy itself
    /// has taken it. Whoever copies message data says so here.
    #[inline]
    pub fn charge_copy(&self, len: u64) {
        if self.is_virtual {
            self.ops.charge_copy(len);
        }
    }

    /// Spends the time that giving work to another thread that is there already, and joining it, takes; free in real
    /// time, where doing so takes it.
    pub fn charge_fork(&self) {
        if self.is_virtual {
            self.ops.charge_fork();
        }
    }

    /// Spends what `n` steps of a library take on this machine; free in real time, where they take it themselves. A library says
    /// so where it takes them, and the machine says what they cost: the section `software` of a modelled machine's file.
    #[inline]
    pub fn charge_step(&self, step: Step, n: u64) {
        if self.is_virtual {
            self.ops.charge_step(step, n);
        }
    }

    /// Says that those who wait for each other outnumber the cores, or that each has one, from now on: waits then give up the core at
    /// once, or keep it for longer, where they would find out otherwise. Nothing in virtual time.
    pub fn expect_crowd(&self, is_crowd: bool) {
        self.ops.expect_crowd(is_crowd);
    }

    pub(crate) fn simulated(&self) -> Option<&dyn Any> {
        self.ops.simulated()
    }

    /// Runs `body` beside the caller, on core number `core` if given.
    ///
    /// # Errors
    /// The operating system's, when it refuses another thread.
    pub fn spawn(
        &self,
        name: &str,
        core: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Task> {
        self.ops.spawn(name, core, Box::new(body))
    }

    /// Before a look that does not wait, as of a call that only tests: whoever calls that in a loop of its own lets time pass. In
    /// virtual time it costs what a look does and lets the world come to the caller's clock; in real time nothing.
    #[inline]
    pub fn glance(&self) {
        if self.is_virtual {
            self.ops.glance();
        }
    }

    /// Wakes all who wait on `bell`, in either kind of time. Publish what they wait for *before* this. Code above the NICs rings
    /// by this and not by [`Bell::ring`], which ranks in virtual time do not hear.
    #[inline]
    pub fn ring(&self, bell: &Bell) {
        bell.ring();
        self.signal();
    }

    /// Something has happened that others on this machine may wait for in [`Host::poll`], or in [`Host::wait`] on a bell that has
    /// been rung: in virtual time they look again. Nothing in real time.
    #[inline]
    pub fn signal(&self) {
        if self.is_virtual {
            self.ops.signal();
        }
    }

    /// Has a chore done between two looks of [`Host::poll`], for as long as somebody keeps it.
    pub fn add_chore(&self, chore: Weak<dyn Chore>) {
        self.ops.add_chore(chore);
    }

    /// **The** wait loop: calls `progress` until it has something, sleeping on `source` between calls once
    /// spinning no longer pays. `None` when `deadline` passes first. `call` names the waiting API call.
    ///
    /// `progress` looks at everything that `source` tells of: at a bell's subject, at each source of a [`crate::WaitSet`]. In
    /// virtual time nothing sleeps, and whatever happens on the machine ends the wait's pause.
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
        let mut turn = Turn { count: 0, began: Time::ZERO, deadline, call, looked: 0, polls: false };
        let (mut slept, mut stirs) = (Span::ZERO, 0);
        let found = loop {
            let mut is_tired = turn.count > EAGER_LOOKS && self.ops.tired(&turn);
            if is_tired && std::mem::replace(&mut stirs, source.stirs()) != stirs {
                // It was not idle: who slept would leave to others what its looks do.
                (is_tired, turn.began) = (false, self.now());
            }
            let check = if is_tired {
                let mut wakes = Wakes::default();
                source.prepare_wait(&mut wakes);
                let found = progress();
                if found.is_none() && !self.overdue(deadline) {
                    let since = self.now();
                    self.ops.sleep(&wakes, &turn);
                    // What woke it is seldom alone: it looks for a while again before it sleeps once more. Two that slept after
                    // each piece of a long exchange would spend most of it in waking each other.
                    turn.began = self.now();
                    slept = slept.max(turn.began.since(since));
                }
                drop(wakes);
                if found.is_some() {
                    break found;
                }
                true
            } else {
                self.ops.relax(&mut turn)
            };
            if let Some(found) = progress() {
                break Some(found);
            }
            turn.count = turn.count.saturating_add(1);
            if turn.count == EAGER_LOOKS {
                (turn.began, stirs) = (self.now(), source.stirs());
            }
            if (check || slept > Span::ZERO) && self.overdue(deadline) {
                break None;
            }
        };
        // A wait that ended among the first looks says nothing of sleeping, and has no time for it.
        if turn.count > EAGER_LOOKS {
            self.ops.learn(slept);
        }
        found
    }

    /// Looks at memory until `look` sees what it wants: for data that arrives without an event, such as the
    /// last byte of an RDMA write. Never sleeps, but yields. `None` when `deadline` passes first.
    #[inline]
    pub fn poll<T>(
        &self,
        call: &'static str,
        deadline: Option<Time>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        let mut turn = Turn { count: 0, began: Time::ZERO, deadline, call, looked: 0, polls: true };
        loop {
            let check = self.ops.relax(&mut turn);
            if let Some(found) = look() {
                return Some(found);
            }
            turn.count = turn.count.saturating_add(1);
            if check && self.overdue(deadline) {
                return None;
            }
        }
    }

    fn overdue(&self, deadline: Option<Time>) -> bool {
        deadline.is_some_and(|d| self.now() >= d) || self.ops.ending()
    }
}
