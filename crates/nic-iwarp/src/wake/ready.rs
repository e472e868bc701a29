//! Data path: polling. The pollers' epoll set, which finds the connections with events among many.
//!
//! With a few connections, a poller reads each socket in turn: one system call finds a message and receives it. With
//! more, it asks epoll(7) which sockets have events. Events are edge-triggered (`EPOLLET`), so a connection on which
//! a turn left work undone, or which another thread held, is queued for the next poll. While some connections are not
//! in the epoll set, all get a turn now and then.
//!
//! An active connection should not pay for idle ones: a connection that has received something is included in the
//! next polls as if there were only a few, and epoll is asked less often meanwhile. If that continues, the socket is
//! *muted*, that is removed from the epoll set: this saves the kernel's work to record events that every poll finds
//! anyway.
//!
//! A quiet connection must not starve behind active ones. One in [`LOOKS_PER_QUESTION`] polls asks epoll, and sooner
//! under load: each [`BYTES_PER_LOOK`] bytes received since the last call count as a poll. So between two calls at most
//! [`LOOKS_PER_QUESTION`] times [`BYTES_PER_LOOK`] bytes are received, plus one turn on each of [`TURNS`] connections.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use nic_util::fork::Fd;
use nic_util::sync::Spin;

/// Maximum number of connections that are polled one by one.
pub(crate) const TURNS: usize = 4;
/// Maximum number of events that one poll takes.
const NEWS_MAX: usize = 16;
/// One in this many polls drives the next connection in turn.
const POLLS_PER_TURN: u32 = 16;
/// One in this many polls of connections without events also asks epoll.
const LOOKS_PER_QUESTION: u32 = 8;
/// This many bytes count as one poll for that purpose.
const BYTES_PER_LOOK: usize = 16 << 10;
/// How many polls include a connection after it has received something: some hundred microseconds of polling.
const POLLS_AFTER_NEWS: u32 = 256;

/// The caller that drives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A poller that will poll again.
    Poller,
    /// A poller that drives the connection because it was queued for this poll.
    Reminded,
    /// A poller to which epoll has reported the connection.
    Told,
    /// Any other caller: no work may be left undone.
    Other,
}

/// The pollers' epoll set, used if there are many connections.
pub(crate) struct News {
    epoll: Fd,
    /// Number of polls. The count is approximate: only whether it changes matters.
    polls: AtomicU32,
    /// Polls since epoll was asked, including received bytes counted as polls; approximate.
    looks: AtomicU32,
    /// Number of connections in the set, which need no turns.
    listed: AtomicUsize,
    /// Queue pairs queued for the next poll, because their connections may have more work that epoll does not report;
    /// with the caller to pass.
    again: Spin<VecDeque<(u32, By)>>,
    again_len: AtomicUsize,
}

impl News {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?.into();
        let (polls, looks, listed, again, again_len) = Default::default();
        Ok(Self { epoll, polls, looks, listed, again, again_len })
    }

    /// Adds a socket to the set; returns false if the kernel has no memory. Its connection then gets turns.
    pub(crate) fn list(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let is_listed = self.unmute(fd, num);
        self.listed.fetch_add(usize::from(is_listed), Ordering::Relaxed);
        is_listed
    }

    /// Removes a socket from the set for good.
    pub(crate) fn unlist(&self, fd: BorrowedFd<'_>) {
        self.mute(fd);
        self.listed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Removes a socket from epoll while every poll includes its connection.
    pub(crate) fn mute(&self, fd: BorrowedFd<'_>) {
        // The socket may not be in the set.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Adds a socket to epoll again, which reports it immediately if something has arrived; false if the kernel has no
    /// memory.
    pub(crate) fn unmute(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(num.into()), flags).is_ok()
    }

    /// Number of polls.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether this poll drives the next of `connections` in turn, regardless of events.
    pub(crate) fn is_turn(&self, connections: usize) -> bool {
        connections > self.listed.load(Ordering::Relaxed) && self.polls().is_multiple_of(POLLS_PER_TURN)
    }

    /// Counts received bytes, so that other connections do not wait for many expensive polls.
    #[inline]
    pub(crate) fn heard(&self, bytes: usize) {
        let looks = (bytes / BYTES_PER_LOOK) as u32;
        if looks > 0 {
            self.looks.store(self.looks.load(Ordering::Relaxed).saturating_add(looks), Ordering::Relaxed);
        }
    }

    /// Queues a connection for the next poll; `by` is the caller to pass then.
    pub(crate) fn again(&self, num: u32, by: By) {
        let mut again = self.again.lock();
        again.push_back((num, by));
        self.again_len.store(again.len(), Ordering::Release);
    }

    /// How many polls include a connection that has received something: only one if enough others are active.
    #[inline]
    pub(crate) fn polls_after_news(&self) -> u32 {
        if self.again_len.load(Ordering::Relaxed) < TURNS { POLLS_AFTER_NEWS } else { 1 }
    }

    fn take_again(&self) -> Option<(u32, By)> {
        let mut again = self.again.lock();
        let next = again.pop_front();
        self.again_len.store(again.len(), Ordering::Release);
        next
    }

    /// Calls `each` with the numbers of the queue pairs that are queued for this poll or have events.
    pub(crate) fn take(&self, mut each: impl FnMut(u32, By)) {
        // Connections that are queued again meanwhile are for the next poll.
        let again = self.again_len.load(Ordering::Acquire);
        for _ in 0..again {
            let Some((num, by)) = self.take_again() else { break };
            each(num, by);
        }
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
        let looks = self.looks.load(Ordering::Relaxed).saturating_add(1);
        let asks = again == 0 || looks >= LOOKS_PER_QUESTION;
        self.looks.store(if asks { 0 } else { looks }, Ordering::Relaxed);
        if !asks {
            return;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); NEWS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal may interrupt this; the next poll tries again.
        let Ok((news, _)) = epoll::wait(&self.epoll, &mut events, Some(&at_once)) else { return };
        news.iter().for_each(|event| each(event.data.u64() as u32, By::Told));
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
    fn whoever_asks_for_it_has_the_next_poll() {
        let news = News::new().expect("a descriptor");
        [3, 5].into_iter().for_each(|num| news.again(num, By::Reminded));
        let taken = |leaves: &[u32]| {
            let mut all = Vec::new();
            news.take(|num, by| {
                assert_eq!(by, By::Reminded, "there are no sockets");
                all.push(num);
                leaves.iter().filter(|left| **left == num).for_each(|left| news.again(*left, by));
            });
            all
        };
        assert_eq!(taken(&[5]), [3, 5]);
        assert_eq!(taken(&[]), [5]);
        assert_eq!(taken(&[]), [0; 0]);
    }

    /// Goal: turns are only for connections outside the epoll set, and continue while there are some.
    #[test]
    fn turns_go_on_while_somebody_is_not_listed() {
        let news = News::new().expect("a descriptor");
        let (socket, _peer) = UnixStream::pair().expect("sockets");
        let turns = |connections| {
            (0..2 * POLLS_PER_TURN)
                .filter(|_| {
                    news.take(|_, _| {});
                    news.is_turn(connections)
                })
                .count()
        };
        assert_eq!(turns(5), 2);
        assert!(news.list(socket.as_fd(), 1));
        assert_eq!((turns(5), turns(1)), (2, 0));
        assert!(
            !news.list(socket.as_fd(), 1),
            "epoll refuses what it has already, as it does without memory"
        );
        assert_eq!(turns(1), 0, "that counts as none");
        news.unlist(socket.as_fd());
        assert_eq!(turns(1), 2);
    }

    /// One connection receives `bytes` in each poll; another receives something after `before` polls. Returns how
    /// many polls it then takes to notice that.
    fn polls_until_heard(bytes: usize, before: u32) -> u32 {
        let news = News::new().expect("a descriptor");
        let (cold, mut peer) = UnixStream::pair().expect("sockets");
        assert!(news.list(cold.as_fd(), 7));
        news.take(|_, _| {});
        news.take(|num, _| panic!("{num} is silent"));
        news.again(3, By::Reminded);
        let poll = || {
            let mut heard = false;
            news.take(|num, by| match by {
                By::Reminded => {
                    news.heard(bytes);
                    news.again(num, by);
                }
                _ => heard = num == 7,
            });
            heard
        };
        assert!(!(0..before).any(|_| poll()), "nothing has come");
        peer.write_all(b"at last").expect("sent");
        1 + (0..100).take_while(|_| !poll()).count() as u32
    }

    /// Goal: a quiet connection is served within a bounded number of polls however active others are, and sooner if
    /// polls take long.
    #[test]
    fn who_is_silent_for_long_does_not_wait_for_the_loud() {
        let longest = |bytes| (0..50).map(|before| polls_until_heard(bytes, before)).max();
        assert_eq!(longest(64), Some(LOOKS_PER_QUESTION));
        assert_eq!(longest(BYTES_PER_LOOK), Some(LOOKS_PER_QUESTION / 2));
        assert_eq!(longest(BYTES_PER_LOOK * LOOKS_PER_QUESTION as usize), Some(1));
    }

    /// Goal: data that arrives while a socket is muted is reported after unmuting.
    #[test]
    fn nothing_is_lost_to_muting() {
        let news = News::new().expect("a descriptor");
        let (socket, mut peer) = UnixStream::pair().expect("sockets");
        assert!(news.list(socket.as_fd(), 7));
        let told = || {
            let mut told = 0;
            news.take(|_, by| told += u32::from(by == By::Told));
            told
        };
        assert_eq!((told(), told()), (1, 0), "there is room to send");
        news.mute(socket.as_fd());
        peer.write_all(b"unheard").expect("sent");
        assert_eq!(told(), 0);
        assert!(news.unmute(socket.as_fd(), 7));
        assert_eq!((told(), told()), (1, 0));
    }
}
