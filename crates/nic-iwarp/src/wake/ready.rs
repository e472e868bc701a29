//! Data path: polling. The pollers' epoll set, which finds the connections with events among many.
//!
//! With a few connections, a poller reads each socket in turn: one system call finds a message and receives it. With
//! more, it asks epoll(7) which sockets have events. Events are edge-triggered (`EPOLLET`), so a connection on which
//! a turn left work undone, or which another thread held, is queued for the next poll. While some connections are not
//! in the epoll set, all get a turn now and then.
//!
//! An active connection should not pay for idle ones: a connection that has received something is included in the
//! next polls as if there were only a few, and epoll is asked less often meanwhile. If that continues, the socket is
//! removed from the epoll set: this saves the kernel's work to record events that every poll finds anyway.
//!
//! A quiet connection must not starve behind active ones. One in [`POLLS_PER_WAIT`] polls asks epoll, and sooner
//! under load: each [`BYTES_PER_POLL`] bytes received since the last call count as a poll. So between two calls at
//! most [`POLLS_PER_WAIT`] times [`BYTES_PER_POLL`] bytes are received, plus one turn on each of [`ROUND_ROBIN_MAX`]
//! connections.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use nic_util::fork::ForkSafeFd;
use nic_util::sync::Spin;

/// Maximum number of connections that are polled one by one.
pub(crate) const ROUND_ROBIN_MAX: usize = 4;
/// Maximum number of events that one poll takes.
const EVENTS_MAX: usize = 16;
/// One in this many polls drives the next connection in turn.
const POLLS_PER_ROUND_ROBIN: u32 = 16;
/// One in this many polls of connections without events also asks epoll.
const POLLS_PER_WAIT: u32 = 8;
/// This many bytes count as one poll for that purpose.
const BYTES_PER_POLL: usize = 16 << 10;
/// How many polls include a connection after it has received something: some hundred microseconds of polling.
const POLLS_AFTER_DATA: u32 = 256;

/// The caller that drives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A poller that will poll again.
    Poller,
    /// A poller that drives the connection because it was queued for this poll.
    Requeued,
    /// A poller to which epoll has reported the connection.
    Notified,
    /// Any other caller: no work may be left undone.
    Other,
}

/// The pollers' epoll set, used if there are many connections.
pub(crate) struct ReadySet {
    epoll: ForkSafeFd,
    /// Number of polls. The count is approximate: only whether it changes matters.
    polls: AtomicU32,
    /// Polls since epoll was asked, including received bytes counted as polls; approximate.
    polls_since_wait: AtomicU32,
    /// Number of connections in the set, which need no turns.
    listed: AtomicUsize,
    /// Queue pairs queued for the next poll, because their connections may have more work that epoll does not report;
    /// with the caller to pass.
    requeued: Spin<VecDeque<(u32, Driver)>>,
    requeued_len: AtomicUsize,
}

impl ReadySet {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?.into();
        let (polls, polls_since_wait, listed, requeued, requeued_len) = Default::default();
        Ok(Self { epoll, polls, polls_since_wait, listed, requeued, requeued_len })
    }

    /// Adds a socket to the set; returns false if the kernel has no memory. Its connection then gets turns.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let is_listed = self.add_to_epoll(fd, num);
        self.listed.fetch_add(usize::from(is_listed), Ordering::Relaxed);
        is_listed
    }

    /// Removes a socket from the set for good.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        self.remove_from_epoll(fd);
        self.listed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Removes a socket from epoll while every poll includes its connection.
    pub(crate) fn remove_from_epoll(&self, fd: BorrowedFd<'_>) {
        // The socket may not be in the set.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Adds a socket to epoll again, which reports it immediately if something has arrived; false if the kernel has no
    /// memory.
    pub(crate) fn add_to_epoll(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(num.into()), flags).is_ok()
    }

    /// Number of polls.
    pub(crate) fn poll_count(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether this poll drives the next of `connections` in turn, regardless of events.
    pub(crate) fn is_round_robin_turn(&self, connections: usize) -> bool {
        connections > self.listed.load(Ordering::Relaxed)
            && self.poll_count().is_multiple_of(POLLS_PER_ROUND_ROBIN)
    }

    /// Counts received bytes, so that other connections do not wait for many expensive polls.
    #[inline]
    pub(crate) fn count_bytes(&self, bytes: usize) {
        let polls = (bytes / BYTES_PER_POLL) as u32;
        if polls > 0 {
            self.polls_since_wait.store(
                self.polls_since_wait.load(Ordering::Relaxed).saturating_add(polls),
                Ordering::Relaxed,
            );
        }
    }

    /// Queues a connection for the next poll; `driver` is the caller to pass then.
    pub(crate) fn requeue(&self, num: u32, driver: Driver) {
        let mut requeued = self.requeued.lock();
        requeued.push_back((num, driver));
        self.requeued_len.store(requeued.len(), Ordering::Release);
    }

    /// How many polls include a connection that has received something: only one if enough others are active.
    #[inline]
    pub(crate) fn polls_after_data(&self) -> u32 {
        if self.requeued_len.load(Ordering::Relaxed) < ROUND_ROBIN_MAX { POLLS_AFTER_DATA } else { 1 }
    }

    fn take_requeued(&self) -> Option<(u32, Driver)> {
        let mut requeued = self.requeued.lock();
        let next = requeued.pop_front();
        self.requeued_len.store(requeued.len(), Ordering::Release);
        next
    }

    /// Calls `each` with the numbers of the queue pairs that are queued for this poll or have events.
    pub(crate) fn poll(&self, mut each: impl FnMut(u32, Driver)) {
        // Connections that are queued again meanwhile are for the next poll.
        let requeued = self.requeued_len.load(Ordering::Acquire);
        for _ in 0..requeued {
            let Some((num, driver)) = self.take_requeued() else { break };
            each(num, driver);
        }
        self.polls.store(self.poll_count().wrapping_add(1), Ordering::Relaxed);
        let polls_since_wait = self.polls_since_wait.load(Ordering::Relaxed).saturating_add(1);
        let waits = requeued == 0 || polls_since_wait >= POLLS_PER_WAIT;
        self.polls_since_wait.store(if waits { 0 } else { polls_since_wait }, Ordering::Relaxed);
        if !waits {
            return;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal may interrupt this; the next poll tries again.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&no_wait)) else { return };
        ready.iter().for_each(|event| each(event.data.u64() as u32, Driver::Notified));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Goal: work that a poll leaves undone is for the next poll, not for this one.
    #[test]
    fn requeued_connections_are_for_next_poll() {
        let ready = ReadySet::new().expect("a descriptor");
        [3, 5].into_iter().for_each(|num| ready.requeue(num, Driver::Requeued));
        let taken = |leaves: &[u32]| {
            let mut all = Vec::new();
            ready.poll(|num, driver| {
                assert_eq!(driver, Driver::Requeued, "there are no sockets");
                all.push(num);
                leaves.iter().filter(|left| **left == num).for_each(|left| ready.requeue(*left, driver));
            });
            all
        };
        assert_eq!(taken(&[5]), [3, 5]);
        assert_eq!(taken(&[]), [5]);
        assert_eq!(taken(&[]), [0; 0]);
    }

    /// Goal: turns are only for connections outside the epoll set, and continue while there are some.
    #[test]
    fn round_robin_continues_while_a_connection_is_unlisted() {
        let ready = ReadySet::new().expect("a descriptor");
        let (socket, _peer) = UnixStream::pair().expect("sockets");
        let turns = |connections| {
            (0..2 * POLLS_PER_ROUND_ROBIN)
                .filter(|_| {
                    ready.poll(|_, _| {});
                    ready.is_round_robin_turn(connections)
                })
                .count()
        };
        assert_eq!(turns(5), 2);
        assert!(ready.add(socket.as_fd(), 1));
        assert_eq!((turns(5), turns(1)), (2, 0));
        assert!(!ready.add(socket.as_fd(), 1), "epoll refuses a duplicate, as it does without memory");
        assert_eq!(turns(1), 0, "a refused socket is not counted");
        ready.remove(socket.as_fd());
        assert_eq!(turns(1), 2);
    }

    /// One connection receives `bytes` in each poll; another receives something after `before` polls. Returns how
    /// many polls it then takes to notice that.
    fn polls_until_found(bytes: usize, before: u32) -> u32 {
        let ready = ReadySet::new().expect("a descriptor");
        let (cold, mut peer) = UnixStream::pair().expect("sockets");
        assert!(ready.add(cold.as_fd(), 7));
        ready.poll(|_, _| {});
        ready.poll(|num, _| panic!("{num} has no event"));
        ready.requeue(3, Driver::Requeued);
        let poll = || {
            let mut found = false;
            ready.poll(|num, driver| match driver {
                Driver::Requeued => {
                    ready.count_bytes(bytes);
                    ready.requeue(num, driver);
                }
                _ => found = num == 7,
            });
            found
        };
        assert!(!(0..before).any(|_| poll()), "nothing has arrived");
        peer.write_all(b"at last").expect("sent");
        1 + (0..100).take_while(|_| !poll()).count() as u32
    }

    /// Goal: a quiet connection is served within a bounded number of polls however active others are, and sooner if
    /// polls take long.
    #[test]
    fn quiet_connection_is_found_within_bounded_polls() {
        let longest = |bytes| (0..50).map(|before| polls_until_found(bytes, before)).max();
        assert_eq!(longest(64), Some(POLLS_PER_WAIT));
        assert_eq!(longest(BYTES_PER_POLL), Some(POLLS_PER_WAIT / 2));
        assert_eq!(longest(BYTES_PER_POLL * POLLS_PER_WAIT as usize), Some(1));
    }

    /// Goal: data that arrives while a socket is not in the epoll set is reported when it is added again.
    #[test]
    fn data_arriving_outside_of_epoll_is_reported() {
        let ready = ReadySet::new().expect("a descriptor");
        let (socket, mut peer) = UnixStream::pair().expect("sockets");
        assert!(ready.add(socket.as_fd(), 7));
        let reported = || {
            let mut reported = 0;
            ready.poll(|_, driver| reported += u32::from(driver == Driver::Notified));
            reported
        };
        assert_eq!((reported(), reported()), (1, 0), "there is room to send");
        ready.remove_from_epoll(socket.as_fd());
        peer.write_all(b"unheard").expect("sent");
        assert_eq!(reported(), 0);
        assert!(ready.add_to_epoll(socket.as_fd(), 7));
        assert_eq!((reported(), reported()), (1, 0));
    }
}
