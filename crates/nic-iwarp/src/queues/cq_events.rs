//! Events of armed completion queues: the content of a completion channel, and the descriptor to sleep on.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use host::EventCount;
use rustix::event::{EventfdFlags, eventfd};
use verbs::{Error, Result};

use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// The numbers of the completion queues that have reported.
pub(crate) struct CqEvents {
    fd: ForkSafeFd,
    wakeup: EventCount,
    list: Mutex<VecDeque<u32>>,
}

impl CqEvents {
    pub(crate) fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|e| Error::system("cannot create a completion channel", e))?;
        Ok(Self { fd: fd.into(), wakeup: EventCount::new(), list: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn wakeup(&self) -> &EventCount {
        &self.wakeup
    }

    /// Adds an event. Each event needs an arming, so there are at most as many as armings.
    pub(crate) fn add(&self, cq: u32) {
        let mut list = unpoisoned(&self.list);
        list.push_back(cq);
        // Under the lock, so that the descriptor is readable exactly while there is an event. The counter cannot
        // overflow before memory is exhausted.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        drop(list);
        self.wakeup.notify();
    }

    /// Removes the events of a completion queue that is being destroyed.
    pub(crate) fn remove_events_of(&self, cq: u32) {
        let mut list = unpoisoned(&self.list);
        let before = list.len();
        list.retain(|&other| other != cq);
        (list.len()..before).for_each(|_| self.decrement_fd());
    }

    pub(crate) fn take(&self) -> Option<u32> {
        let mut list = unpoisoned(&self.list);
        let event = list.pop_front()?;
        self.decrement_fd();
        Some(event)
    }

    fn decrement_fd(&self) {
        let mut count = [0; 8];
        // The counter holds one for each event.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_readable_while_there_is_an_event() {
        let cq_events = CqEvents::new().expect("a descriptor");
        let readable = || {
            let mut one = [rustix::event::PollFd::new(&cq_events.fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut one, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
        };
        assert!(!readable());
        [3, 5, 3].into_iter().for_each(|cq| cq_events.add(cq));
        assert!(readable());
        assert_eq!(cq_events.take(), Some(3));
        cq_events.remove_events_of(3);
        assert!(readable());
        assert_eq!((cq_events.take(), cq_events.take()), (Some(5), None));
        assert!(!readable());
    }
}
