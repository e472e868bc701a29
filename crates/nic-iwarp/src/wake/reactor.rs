//! The events that wake the NIC thread: sockets, timers, and requests of other threads.
//!
//! Everything is identified by numbers, so that callers need not know the handler: `nic` maps a number to its object.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use host::Time;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use verbs::{Error, Result};

use nic_util::sync::unpoisoned;
use nic_util::thread::EpollSet;

/// The token of an epoll event: a kind, and a number of that kind.
const KIND_SHIFT: u32 = 56;
pub(crate) const LISTENER: u64 = 1 << KIND_SHIFT;
pub(crate) const ATTEMPT: u64 = 2 << KIND_SHIFT;
pub(crate) const STREAM: u64 = 3 << KIND_SHIFT;
pub(crate) const LINGERING: u64 = 4 << KIND_SHIFT;
const KIND: u64 = 0xff << KIND_SHIFT;

/// An event of a descriptor.
#[derive(Clone, Copy)]
pub(crate) struct SocketEvent {
    /// [`LISTENER`], [`ATTEMPT`], [`STREAM`] or [`LINGERING`].
    pub(crate) kind: u64,
    pub(crate) id: u64,
    pub(crate) flags: EventFlags,
}

/// The event sources of the NIC thread.
pub(crate) struct Reactor {
    pub(crate) epoll_set: EpollSet,
    timers: Mutex<Vec<(Time, u32)>>,
    /// Connections that a poller has taken over and that the thread should watch.
    taken_over: Mutex<Vec<u32>>,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { epoll_set: EpollSet::new()?, timers: Mutex::default(), taken_over: Mutex::default() })
    }

    /// Makes the thread run a round.
    pub(crate) fn wake(&self) {
        self.epoll_set.wake();
    }

    /// A number for a listener, a connection attempt or a lingering connection.
    pub(crate) fn new_id(&self) -> u64 {
        self.epoll_set.fresh_id()
    }

    /// Adds a socket to epoll; `token` identifies it.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> Result<()> {
        self.epoll_set
            .watch(fd, token, flags)
            .map_err(|e| Error::system("cannot watch a connection's socket", e))
    }

    pub(crate) fn rewatch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) {
        // This fails only for a socket that is not watched because it is being closed.
        let _ = self.epoll_set.rewatch(fd, token, flags);
    }

    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.epoll_set.unwatch(fd);
    }

    /// Arms a connection's socket: epoll reports it to the thread once.
    pub(crate) fn arm(&self, fd: BorrowedFd<'_>, num: u32, flags: EventFlags) {
        let token = STREAM | u64::from(num);
        if self.epoll_set.rewatch(fd, token, flags) == Err(Errno::NOENT) {
            // The socket was disarmed. If there is no memory to add it again, only pollers drive the connection.
            let _ = self.epoll_set.watch(fd, token, flags);
        }
    }

    /// Removes a connection's socket from epoll until it is armed again. It is removed entirely, because otherwise
    /// each packet would pay for an epoll lookup that finds no waiter.
    pub(crate) fn disarm(&self, fd: BorrowedFd<'_>) {
        self.unwatch(fd);
    }

    /// Asks the thread to watch a connection that a poller has taken over.
    pub(crate) fn request_watch(&self, num: u32) {
        unpoisoned(&self.taken_over).push(num);
        self.wake();
    }

    /// Takes the connections that were taken over since the last call.
    pub(crate) fn take_taken_over(&self) -> Vec<u32> {
        std::mem::take(&mut *unpoisoned(&self.taken_over))
    }

    /// Makes the thread check a queue pair's deadlines at this time.
    pub(crate) fn set_timer(&self, time: Time, num: u32) {
        unpoisoned(&self.timers).push((time, num));
        self.wake();
    }

    /// Removes the timers of a queue pair that is being destroyed.
    pub(crate) fn cancel_timers(&self, num: u32) {
        unpoisoned(&self.timers).retain(|&(_, other)| other != num);
    }

    /// The queue pairs whose timers have expired, and the time of the next timer.
    pub(crate) fn expired_timers(&self, now: Time) -> (Vec<u32>, Option<Time>) {
        let mut timers = unpoisoned(&self.timers);
        let due = timers.extract_if(.., |(time, _)| now >= *time).map(|(_, num)| num).collect();
        (due, timers.iter().map(|(time, _)| *time).min())
    }
}

/// Decodes an event.
pub(crate) fn decode(event: &epoll::Event) -> SocketEvent {
    let token = event.data.u64();
    SocketEvent { kind: token & KIND, id: token & !KIND, flags: event.flags }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Span;

    #[test]
    fn timers_fire_once_and_end_with_queue_pair() {
        let reactor = Reactor::new().expect("descriptors");
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        for (ms, num) in [(30, 1), (10, 2), (20, 3), (10, 1)] {
            reactor.set_timer(at(ms), num);
        }
        assert_eq!(reactor.expired_timers(at(9)), (vec![], Some(at(10))));
        assert_eq!(reactor.expired_timers(at(10)), (vec![2, 1], Some(at(20))));
        reactor.cancel_timers(1);
        assert_eq!(reactor.expired_timers(at(40)), (vec![3], None));
    }

    #[test]
    fn taken_over_connections_are_returned_once() {
        let reactor = Reactor::new().expect("descriptors");
        reactor.request_watch(7);
        assert_eq!((reactor.take_taken_over(), reactor.take_taken_over()), (vec![7], vec![]));
    }
}
