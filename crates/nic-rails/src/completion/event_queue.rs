//! Event queues that a program can wait for on a descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use host::{EventCount, Host};
use rustix::event::{EventfdFlags, eventfd};
use verbs::{Error, Result};

use crate::lock::unpoisoned;

/// An eventfd counter, which is readable while it is not zero; none in virtual time.
pub(crate) fn counter(is_virtual: bool) -> Result<Option<OwnedFd>> {
    if is_virtual {
        return Ok(None);
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    eventfd(0, flags).map(Some).map_err(|e| Error::system("cannot create a descriptor for events", e))
}

/// A queue with an event count, and with a descriptor that is readable exactly while the queue is not empty. In virtual time
/// there is no descriptor.
pub(crate) struct EventQueue<T> {
    queue: Mutex<VecDeque<T>>,
    wakeup: EventCount,
    fd: Option<OwnedFd>,
    host: Host,
}

impl<T> EventQueue<T> {
    pub(crate) fn new(host: &Host) -> Result<Self> {
        let fd = counter(host.node().is_some())?;
        Ok(Self { queue: Mutex::default(), wakeup: EventCount::new(), fd, host: host.clone() })
    }

    pub(crate) fn push(&self, item: T) {
        let mut queue = unpoisoned(&self.queue);
        queue.push_back(item);
        if let Some(fd) = &self.fd {
            // The counter cannot overflow before memory is exhausted.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
        drop(queue);
        self.host.notify(&self.wakeup);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = unpoisoned(&self.queue);
        let item = queue.pop_front()?;
        self.lower();
        Some(item)
    }

    /// Removes the items selected by `which`.
    pub(crate) fn take_all(&self, which: impl FnMut(&T) -> bool) -> VecDeque<T> {
        let mut queue = unpoisoned(&self.queue);
        let (taken, rest): (VecDeque<T>, _) = queue.drain(..).partition(which);
        *queue = rest;
        taken.iter().for_each(|_| self.lower());
        taken
    }

    fn lower(&self) {
        if let Some(fd) = &self.fd {
            // There is one count for each item.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }

    pub(crate) fn wakeup(&self) -> &EventCount {
        &self.wakeup
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
}
