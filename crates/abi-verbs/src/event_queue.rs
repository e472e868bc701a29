//! [`EventQueue`]: a queue of events for a program, with a descriptor that is readable while it is not empty.
//!
//! The program gets an epoll descriptor that contains our eventfd: poll(2), select(2) and epoll work on it, and the program can set its
//! blocking mode without affecting ours.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Mutex;

use ffi::lock;
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::answer::{Answer, fd_to_wait_for};

/// Events in order, and a descriptor that is readable while there are any.
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    readiness: OwnedFd,
    queue: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Answer<Self> {
        let readiness = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&fd, &readiness, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { fd, readiness, queue: Mutex::default() })
    }

    /// The program's descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Changes the queue, and updates the descriptor's readiness.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut queue = lock(&self.queue);
        let had_some = !queue.is_empty();
        let result = change(&mut queue);
        // Neither call can block: the counter is 0 or 1.
        let _ = match (had_some, !queue.is_empty()) {
            (false, true) => rustix::io::write(&self.readiness, &1_u64.to_ne_bytes()),
            (true, false) => rustix::io::read(&self.readiness, &mut [0_u8; 8]),
            _ => Ok(0),
        };
        result
    }

    pub(crate) fn push(&self, event: T) {
        self.change(|queue| queue.push_back(event));
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.change(VecDeque::pop_front)
    }

    /// The descriptor to wait for, unless the program has set it to nonblocking.
    pub(crate) fn fd_to_wait_for(&self) -> Answer<Option<RawFd>> {
        fd_to_wait_for(&self.fd)
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;
    use crate::errno::Errno;

    #[test]
    fn descriptor_is_readable_while_events_wait() {
        let queue = EventQueue::new().expect("descriptors");
        let now = Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 });
        let is_readable =
            || poll(&mut [PollFd::new(&queue.fd, PollFlags::IN)], now).expect("it can be queried") == 1;
        assert!(!is_readable() && queue.fd_to_wait_for() == Ok(Some(queue.fd())));
        queue.push(1);
        queue.push(2);
        assert!(is_readable());
        assert_eq!(queue.pop(), Some(1));
        assert!(is_readable());
        queue.change(VecDeque::clear);
        assert!(!is_readable() && queue.pop().is_none());
        fcntl_setfl(&queue.fd, OFlags::NONBLOCK).expect("a flag");
        assert_eq!(queue.fd_to_wait_for(), Err(Errno::AGAIN));
    }
}
