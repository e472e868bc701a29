//! Data path: polling. Which of many connections something has come for.
//!
//! With a few connections, whoever polls looks at each in turn: one system call finds a message and takes it. With more, it
//! asks epoll(7) which sockets have news. That is told once for each piece of news (`EPOLLET`): connections on which a turn
//! left something undone, or on which it could do nothing because another thread had them, are remembered and have the next
//! poll, too. For those that epoll does not know, each connection still has a turn now and then.
//!
//! Who talks on one of many connections is not to pay for the others: a connection on which something has come has the next
//! polls as if it were one of a few, and meanwhile epoll is asked only now and then.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::fork::Fd;
use crate::sync::Spin;

/// Connections that are looked at one by one.
pub(super) const TURNS: usize = 4;
/// News that one poll takes.
const NEWS_MAX: usize = 16;
/// Of so many polls, one looks at the next connection in turn.
const POLLS_PER_TURN: u32 = 16;
/// Of so many polls that look at connections without news, one asks for news, too.
const POLLS_PER_QUESTION: u32 = 4;
/// Polls that a connection has after something has come on it: some hundred microseconds of them.
const POLLS_AFTER_NEWS: u32 = 256;

/// Who works on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody who polls and will do so again.
    Poller,
    /// Such a one, who looks here since the connection was to have the next poll.
    Reminded,
    /// Anybody else: nothing may be left undone.
    Other,
}

/// The sockets of connections, where they are many, for whoever polls.
pub(super) struct News {
    epoll: Fd,
    /// How often they have asked. Counted roughly: what matters is whether it stands still.
    polls: AtomicU32,
    /// Queue pairs on whose connections there may be more to do, of which epoll says nothing.
    again: Spin<VecDeque<u32>>,
    again_len: AtomicUsize,
}

impl News {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?.into();
        let (polls, again, again_len) = Default::default();
        Ok(Self { epoll, polls, again, again_len })
    }

    /// Has pollers told of a socket. Without memory for it, its connection has the turns of all.
    pub(super) fn list(&self, fd: BorrowedFd<'_>, num: u32) {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let _ = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(num.into()), flags);
    }

    pub(super) fn unlist(&self, fd: BorrowedFd<'_>) {
        // It may not have got on the list.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// How often somebody has asked what there is.
    pub(super) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether this poll looks at the next connection in turn, whatever is new.
    pub(super) fn is_turn(&self) -> bool {
        self.polls().is_multiple_of(POLLS_PER_TURN)
    }

    /// A connection has the next poll, too.
    pub(super) fn again(&self, num: u32) {
        let mut again = self.again.lock();
        again.push_back(num);
        self.again_len.store(again.len(), Ordering::Release);
    }

    /// The polls that a connection has on which something has come: one, if enough others have some.
    pub(super) fn polls_after_news(&self) -> u32 {
        if self.again_len.load(Ordering::Relaxed) < TURNS { POLLS_AFTER_NEWS } else { 1 }
    }

    fn take_again(&self) -> Option<u32> {
        let mut again = self.again.lock();
        let num = again.pop_front();
        self.again_len.store(again.len(), Ordering::Release);
        num
    }

    /// Calls `each` with the numbers of the queue pairs whose connections have news, or have this poll again.
    pub(super) fn take(&self, mut each: impl FnMut(u32, By)) {
        // Those that come again meanwhile have the next poll.
        let again = self.again_len.load(Ordering::Acquire);
        for _ in 0..again {
            let Some(num) = self.take_again() else { break };
            each(num, By::Reminded);
        }
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
        if again > 0 && !self.polls().is_multiple_of(POLLS_PER_QUESTION) {
            return;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); NEWS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal interrupts it; the next poll looks again.
        let Ok((news, _)) = epoll::wait(&self.epoll, &mut events, Some(&at_once)) else { return };
        news.iter().for_each(|event| each(event.data.u64() as u32, By::Poller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a poll leaves undone has the next one, and not this one again.
    #[test]
    fn whoever_asks_for_it_has_the_next_poll() {
        let news = News::new().expect("a descriptor");
        [3, 5].into_iter().for_each(|num| news.again(num));
        let taken = |leaves: &[u32]| {
            let mut all = Vec::new();
            news.take(|num, by| {
                assert_eq!(by, By::Reminded, "there are no sockets");
                all.push(num);
                leaves.iter().filter(|left| **left == num).for_each(|left| news.again(*left));
            });
            all
        };
        assert_eq!(taken(&[5]), [3, 5]);
        assert_eq!(taken(&[]), [5]);
        assert_eq!(taken(&[]), [0; 0]);
        assert_eq!((0..32).filter(|_| taken(&[]).is_empty() && news.is_turn()).count(), 2, "turns go on");
    }
}
