//! [`EventLane`]: events in front of a program that wait, or that this device adds; and how they wake its sleepers.
//!
//! Sleepers sleep on what the NIC below returns. An event count of it is notified for events of this device, too. A
//! descriptor of it is joined with a counter of this device into one descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use host::{Host, Time, Wake};
use rustix::event::{EventfdFlags, epoll, eventfd};
use verbs::{Error, Result};

/// Events that wait, each until its time, in their order.
pub(crate) struct EventLane<E> {
    events: Mutex<VecDeque<(Time, E)>>,
    has_events: AtomicBool,
    descriptors: Option<Descriptors>,
}

/// The descriptor that a program polls, and the counter that makes it readable.
struct Descriptors {
    counter: OwnedFd,
    joined: OwnedFd,
}

impl Descriptors {
    fn join(below: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let joined = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [below, counter.as_fd()] {
            epoll::add(&joined, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { counter, joined })
    }
}

impl<E> EventLane<E> {
    /// A lane in front of events that `below` announces, if that has a descriptor.
    pub(crate) fn new(below: Option<BorrowedFd<'_>>) -> Result<Self> {
        let descriptors = below.map(Descriptors::join).transpose();
        let descriptors =
            descriptors.map_err(|e| Error::system("cannot create a descriptor for events of faults", e))?;
        Ok(Self { events: Mutex::default(), has_events: AtomicBool::new(false), descriptors })
    }

    /// Whether events wait: then later events wait behind them.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events.load(Ordering::Acquire)
    }

    /// Adds an event; returns when it may be taken: not before those in front of it.
    pub(crate) fn push(&self, due: Time, event: E) -> Time {
        let mut events = self.events.lock().unwrap_or_else(|e| e.into_inner());
        let due = events.back().map_or(due, |(last, _)| due.max(*last));
        events.push_back((due, event));
        self.has_events.store(true, Ordering::Release);
        due
    }

    /// Takes the first event, if its time has come.
    pub(crate) fn pop(&self, now: Time) -> Option<E> {
        if !self.has_events() {
            return None;
        }
        let mut events = self.events.lock().unwrap_or_else(|e| e.into_inner());
        let found = events.pop_front_if(|(due, _)| *due <= now).map(|(_, event)| event);
        if events.front().is_none_or(|(due, _)| *due > now)
            && let Some(descriptors) = &self.descriptors
        {
            let _ = rustix::io::read(&descriptors.counter, &mut [0; 8]);
        }
        self.has_events.store(!events.is_empty(), Ordering::Release);
        found
    }

    /// Wakes sleepers on `below`, after an event has become due.
    pub(crate) fn wake(&self, host: &Host, below: Option<Wake<'_>>) {
        if let Some(descriptors) = &self.descriptors {
            // The counter cannot overflow before memory is exhausted.
            let _ = rustix::io::write(&descriptors.counter, &1_u64.to_ne_bytes());
        }
        if let Some(Wake::EventCount(ticket)) = &below {
            ticket.wakeup().notify();
        }
        host.signal();
    }

    /// What wakes a sleeper: what `below` returned, with the events of this lane.
    pub(crate) fn joined_wake<'a>(&'a self, below: Wake<'a>) -> Wake<'a> {
        match (below, &self.descriptors) {
            (Wake::Fd(_), Some(descriptors)) => Wake::Fd(descriptors.joined.as_fd()),
            (below, _) => below,
        }
    }

    /// A descriptor that is readable while an event is pending here or below.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptors.as_ref().map(|descriptors| descriptors.joined.as_fd())
    }
}
