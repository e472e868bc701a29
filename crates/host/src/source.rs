//! [`Source`]: what one can sleep on. [`Wake`] is how it wakes: by a bell, or by a descriptor. [`WaitSet`] is several in one.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::Bell;

/// How a source wakes who sleeps on it.
#[derive(Debug)]
pub enum Wake<'a> {
    /// By a bell, which knows that somebody is about to sleep.
    Bell(Ticket<'a>),
    /// By a descriptor that is readable as long as there is something.
    Fd(BorrowedFd<'a>),
}

impl<'a> Wake<'a> {
    /// By `bell`: it is announced here.
    pub fn by(bell: &'a Bell) -> Self {
        Self::Bell(Ticket::draw(bell))
    }
}

/// The place of somebody who is about to sleep on a bell; given up when dropped.
#[derive(Debug)]
pub struct Ticket<'a> {
    bell: &'a Bell,
    number: u32,
}

impl<'a> Ticket<'a> {
    /// Announces a sleeper ([`Bell::announce`]).
    pub fn draw(bell: &'a Bell) -> Self {
        Self { bell, number: bell.announce() }
    }

    /// The bell that is rung for it.
    pub fn bell(&self) -> &'a Bell {
        self.bell
    }

    /// What to sleep with ([`Bell::sleep`]).
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.bell.retract();
    }
}

/// Something that a wait can sleep on ([`crate::Host::wait`]): a bell, a completion queue, a channel, a descriptor, or several
/// of them.
pub trait Source {
    /// Called by who is about to sleep, with nothing found so far: has whatever comes from now on wake the caller, and says by
    /// what. Hardware is armed here (`ibv_req_notify_cq`, `fi_trywait`). The caller looks once more before it sleeps, as what
    /// came before this call wakes nobody.
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>);

    /// A number that changes with whatever the caller's looks move for it, though it be a part only of what is waited for: a large
    /// message that is read from a socket bit by bit. A wait does not take for idle what stirs.
    fn stirs(&self) -> u64 {
        0
    }
}

impl Source for Bell {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(Wake::by(self));
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        S::prepare_wait(self, wakes);
    }

    fn stirs(&self) -> u64 {
        S::stirs(self)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        S::prepare_wait(self, wakes);
    }

    fn stirs(&self) -> u64 {
        S::stirs(self)
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.0.prepare_wait(wakes);
        self.1.prepare_wait(wakes);
    }

    fn stirs(&self) -> u64 {
        self.0.stirs().wrapping_add(self.1.stirs())
    }
}

/// A descriptor of the caller's own, such as a socket to a process manager. It wakes while it is readable, has ended or has
/// failed; whoever is woken reads it, or does not sleep again.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<F>(pub F);

impl<F: AsFd> Source for Descriptor<F> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(Wake::Fd(self.0.as_fd()));
    }
}

/// What wakes one sleep.
#[derive(Debug, Default)]
pub struct Wakes<'a> {
    /// Most sleeps have one.
    first: Option<Wake<'a>>,
    rest: Vec<Wake<'a>>,
}

impl<'a> Wakes<'a> {
    /// Adds another one to wake.
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

    /// The bell, if it is the only thing that wakes.
    pub fn sole_bell(&self) -> Option<&Ticket<'a>> {
        match &self.first {
            Some(Wake::Bell(ticket)) if self.rest.is_empty() => Some(ticket),
            _ => None,
        }
    }
}

/// Several sources in one: a wait on it ends when any of them has something. It keeps handles of them, and is a source itself.
///
/// Bells alone are slept on in one system call; so are descriptors alone. Where there are both, a thread of the process sleeps on
/// the descriptors and rings for whoever waits; it begins with the first such sleep.
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
    /// A set of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a source in, until the set is dropped.
    pub fn add(&mut self, source: impl Source + Send + Sync + 'static) {
        self.sources.push(Box::new(source));
    }
}

impl Source for WaitSet {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.sources.iter().for_each(|source| source.prepare_wait(wakes));
    }

    fn stirs(&self) -> u64 {
        self.sources.iter().fold(0, |sum, source| sum.wrapping_add(source.stirs()))
    }
}
