//! Asynchronous events of a device: a queue with a limit, a bell, and a descriptor that is readable while there is one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

use host::{Bell, Wake};
use rustix::event::{EventfdFlags, eventfd};
use verbs::{AsyncEvent, Error, Result};

use crate::fork::Fd;

/// Events that wait to be fetched; with so many there, further ones are lost: peers cause them, and nobody need fetch them.
pub(crate) const EVENTS_MAX: usize = 1024;

/// The events of a device.
pub(crate) struct AsyncEvents {
    queue: Mutex<VecDeque<AsyncEvent>>,
    bell: Bell,
    /// Counts the events.
    fd: Fd,
}

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let hint = "cannot create a queue of events (if descriptors ran out, raise the limit with ulimit -n)";
        let fd = eventfd(0, flags).map_err(|e| Error::system(hint, e))?;
        Ok(Self { queue: Mutex::default(), bell: Bell::new(), fd: fd.into() })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<AsyncEvent>> {
        // Nothing panics while it holds this lock.
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        let mut queue = self.queue();
        if queue.len() == EVENTS_MAX {
            return;
        }
        queue.push_back(event);
        // Under the lock, so that the descriptor is readable exactly while there is an event.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        drop(queue);
        self.bell.ring();
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        let mut queue = self.queue();
        let event = queue.pop_front()?;
        // There is one count for each event.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        Some(event)
    }

    pub(crate) fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_limit_are_lost() {
        let events = AsyncEvents::new().expect("a descriptor");
        (0..=EVENTS_MAX as u32).for_each(|cq| events.push(AsyncEvent::CqError { cq }));
        for cq in 0..EVENTS_MAX as u32 {
            assert_eq!(events.pop(), Some(AsyncEvent::CqError { cq }));
        }
        assert_eq!(events.pop(), None);
    }
}
