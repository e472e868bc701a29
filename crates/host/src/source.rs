//! [`Source`]: something to sleep on. [`Wake`] is how it wakes: by an event count, or by a descriptor. [`WaitSet`]
//! combines several sources.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::EventCount;

/// How a source wakes its sleepers.
#[derive(Debug)]
pub enum Wake<'a> {
    /// By an event count, at which a waiter is registered.
    EventCount(Ticket<'a>),
    /// By a descriptor, which is readable as long as there are events.
    Fd(BorrowedFd<'a>),
}

impl<'a> Wake<'a> {
    /// By `wakeup`; registers a waiter at it.
    pub fn by(wakeup: &'a EventCount) -> Self {
        Self::EventCount(Ticket::draw(wakeup))
    }
}

/// A registered waiter of an event count; removed when dropped.
#[derive(Debug)]
pub struct Ticket<'a> {
    wakeup: &'a EventCount,
    number: u32,
}

impl<'a> Ticket<'a> {
    /// Registers a waiter ([`EventCount::prepare_to_wait`]).
    pub fn draw(wakeup: &'a EventCount) -> Self {
        Self { wakeup, number: wakeup.prepare_to_wait() }
    }

    /// The event count to sleep on.
    pub fn wakeup(&self) -> &'a EventCount {
        self.wakeup
    }

    /// The ticket number for [`EventCount::sleep`].
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.wakeup.finish_wait();
    }
}

/// Something that a wait can sleep on ([`crate::Host::wait`]): an event count, a completion queue, a channel, a
/// descriptor, or several of them.
pub trait Source {
    /// Called by a waiter that has found nothing and is about to sleep: arranges that events from now on wake the
    /// caller, and adds what wakes it to `wakes`. Hardware is armed here (`ibv_req_notify_cq`, `fi_trywait`). The
    /// caller polls once more before it sleeps, as an event before this call wakes nobody.
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>);

    /// A counter that changes with any progress that the caller's polls make, even if it only completes part of what
    /// the caller waits for, such as a large message that is read from a socket piece by piece. A wait does not count
    /// as idle while this changes.
    fn progress_count(&self) -> u64 {
        0
    }

    /// Called when a wait goes on beyond its first polls. Until [`Source::end_polling`] the caller polls again and
    /// again, or sleeps after [`Source::prepare_wait`]; it may lose its core meanwhile. A NIC leaves arriving data to
    /// such a caller, and its own thread need not compete with it for a core.
    fn begin_polling(&self) {}

    /// Called when that wait ends.
    fn end_polling(&self) {}
}

impl Source for EventCount {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(Wake::by(self));
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        S::prepare_wait(self, wakes);
    }

    fn progress_count(&self) -> u64 {
        S::progress_count(self)
    }

    fn begin_polling(&self) {
        S::begin_polling(self);
    }

    fn end_polling(&self) {
        S::end_polling(self);
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        S::prepare_wait(self, wakes);
    }

    fn progress_count(&self) -> u64 {
        S::progress_count(self)
    }

    fn begin_polling(&self) {
        S::begin_polling(self);
    }

    fn end_polling(&self) {
        S::end_polling(self);
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.0.prepare_wait(wakes);
        self.1.prepare_wait(wakes);
    }

    fn progress_count(&self) -> u64 {
        self.0.progress_count().wrapping_add(self.1.progress_count())
    }

    fn begin_polling(&self) {
        self.0.begin_polling();
        self.1.begin_polling();
    }

    fn end_polling(&self) {
        self.0.end_polling();
        self.1.end_polling();
    }
}

/// A descriptor of the caller, such as a socket to a process manager. It wakes while it is readable, has reached its
/// end or has failed; a caller that is woken must read it, or not sleep on it again.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<F>(pub F);

impl<F: AsFd> Source for Descriptor<F> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(Wake::Fd(self.0.as_fd()));
    }
}

/// A source that the caller polls: from [`Source::begin_polling`] until it is dropped.
pub(crate) struct Polling<'a>(&'a dyn Source);

impl<'a> Polling<'a> {
    pub(crate) fn begin(source: &'a dyn Source) -> Self {
        source.begin_polling();
        Self(source)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.end_polling();
    }
}

/// What wakes one sleep.
#[derive(Debug, Default)]
pub struct Wakes<'a> {
    /// Most sleeps have only one.
    first: Option<Wake<'a>>,
    rest: Vec<Wake<'a>>,
}

impl<'a> Wakes<'a> {
    /// Adds another one.
    pub fn push(&mut self, wake: Wake<'a>) {
        match &self.first {
            None => self.first = Some(wake),
            Some(_) => self.rest.push(wake),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Wake<'a>> {
        self.first.iter().chain(&self.rest)
    }

    /// The ticket of the event count, if nothing else wakes.
    pub fn sole_ticket(&self) -> Option<&Ticket<'a>> {
        match &self.first {
            Some(Wake::EventCount(ticket)) if self.rest.is_empty() => Some(ticket),
            _ => None,
        }
    }
}

/// Several sources combined: a wait on the set ends when any of them has an event. It owns its sources, and is a source
/// itself.
///
/// A sleep on event counts alone, or on descriptors alone, is one system call. With both, a thread of the process
/// sleeps on the descriptors and notifies the waiter; the thread starts with the first such sleep.
#[derive(Default)]
pub struct WaitSet {
    sources: Vec<Box<dyn Source + Send + Sync>>,
}

impl fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitSet({} sources)", self.sources.len())
    }
}

impl WaitSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source, which stays until the set is dropped.
    pub fn add(&mut self, source: impl Source + Send + Sync + 'static) {
        self.sources.push(Box::new(source));
    }
}

impl Source for WaitSet {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.sources.iter().for_each(|source| source.prepare_wait(wakes));
    }

    fn progress_count(&self) -> u64 {
        self.sources.iter().fold(0, |sum, source| sum.wrapping_add(source.progress_count()))
    }

    fn begin_polling(&self) {
        self.sources.iter().for_each(|source| source.begin_polling());
    }

    fn end_polling(&self) {
        self.sources.iter().for_each(|source| source.end_polling());
    }
}
