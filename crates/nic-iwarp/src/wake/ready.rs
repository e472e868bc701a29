//! Data path: polling. Which of many connections something has come for.
//!
//! With a few connections, whoever polls looks at each in turn: one system call finds a message and takes it. With more, it
//! asks epoll(7) which sockets have news. That is told once for each piece of news (`EPOLLET`): connections on which a turn
//! left something undone, or on which it could do nothing because another thread had them, are remembered and have the next
//! poll, too. While there are connections that epoll does not know, all have a turn now and then.
//!
//! Who talks on one of many connections is not to pay for the others: a connection on which something has come has the next
//! polls as if it were one of a few, and meanwhile epoll is asked only now and then. If that goes on, epoll need not tell of it,
//! and is *muted*: nobody pays for noting, with each segment, what every poll finds anyway.
//!
//! Who is silent for long is not to wait for those who are loud. Of [`LOOKS_PER_QUESTION`] polls one asks epoll, and where much
//! comes, sooner: before as many pieces of [`BYTES_PER_LOOK`] have come since the last question, plus what one turn on each of
//! [`TURNS`] connections may take.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use nic_util::fork::Fd;
use nic_util::sync::Spin;

/// Connections that are looked at one by one.
pub(crate) const TURNS: usize = 4;
/// News that one poll takes.
const NEWS_MAX: usize = 16;
/// Of so many polls, one looks at the next connection in turn.
const POLLS_PER_TURN: u32 = 16;
/// Of so many polls that look at connections without news, one asks for news, too.
const LOOKS_PER_QUESTION: u32 = 8;
/// So many bytes count as a poll in that.
const BYTES_PER_LOOK: usize = 16 << 10;
/// Polls that a connection has after something has come on it: some hundred microseconds of them.
const POLLS_AFTER_NEWS: u32 = 256;

/// Who works on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Somebody who polls and will do so again.
    Poller,
    /// Such a one, who looks here since the connection was to have the next poll.
    Reminded,
    /// Such a one, whom epoll has told of the connection.
    Told,
    /// Anybody else: nothing may be left undone.
    Other,
}

/// The sockets of connections, where they are many, for whoever polls.
pub(crate) struct News {
    epoll: Fd,
    /// How often they have looked. Counted roughly: what matters is whether it stands still.
    polls: AtomicU32,
    /// Polls since epoll was asked, and bytes that have come, as polls. Counted roughly.
    looks: AtomicU32,
    /// Connections that are found without turns.
    listed: AtomicUsize,
    /// Queue pairs on whose connections there may be more to do, of which epoll says nothing, and who looks at each.
    again: Spin<VecDeque<(u32, By)>>,
    again_len: AtomicUsize,
}

impl News {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?.into();
        let (polls, looks, listed, again, again_len) = Default::default();
        Ok(Self { epoll, polls, looks, listed, again, again_len })
    }

    /// Has pollers told of a socket; false without memory for it: its connection has the turns of all then.
    pub(crate) fn list(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let is_listed = self.unmute(fd, num);
        self.listed.fetch_add(usize::from(is_listed), Ordering::Relaxed);
        is_listed
    }

    /// Pollers need not be told of a socket any more that was listed.
    pub(crate) fn unlist(&self, fd: BorrowedFd<'_>) {
        self.mute(fd);
        self.listed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has epoll not tell of a socket while each poll looks at its connection.
    pub(crate) fn mute(&self, fd: BorrowedFd<'_>) {
        // It may not be there.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Has epoll tell of a socket again, at once if something has come meanwhile; false without memory for it.
    pub(crate) fn unmute(&self, fd: BorrowedFd<'_>, num: u32) -> bool {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(num.into()), flags).is_ok()
    }

    /// How often somebody has looked what there is.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether this poll looks at the next in turn of so many connections, whatever is new.
    pub(crate) fn is_turn(&self, connections: usize) -> bool {
        connections > self.listed.load(Ordering::Relaxed) && self.polls().is_multiple_of(POLLS_PER_TURN)
    }

    /// So many bytes have come on a connection: the others are not to wait for many polls of that kind.
    #[inline]
    pub(crate) fn heard(&self, bytes: usize) {
        let looks = (bytes / BYTES_PER_LOOK) as u32;
        if looks > 0 {
            self.looks.store(self.looks.load(Ordering::Relaxed).saturating_add(looks), Ordering::Relaxed);
        }
    }

    /// A connection has the next poll, too; `by` is who will look at it then.
    pub(crate) fn again(&self, num: u32, by: By) {
        let mut again = self.again.lock();
        again.push_back((num, by));
        self.again_len.store(again.len(), Ordering::Release);
    }

    /// The polls that a connection has on which something has come: one, if enough others have some.
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

    /// Calls `each` with the numbers of the queue pairs whose connections have news, or have this poll again.
    pub(crate) fn take(&self, mut each: impl FnMut(u32, By)) {
        // Those that come again meanwhile have the next poll.
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
        // A signal interrupts it; the next poll looks again.
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

    /// Goal: what a poll leaves undone has the next one, and not this one again.
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

    /// Goal: turns are for connections that epoll does not know, and for as long as there are some.
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

    /// A connection that has something with each poll, `bytes` of it, and another one on which something comes after so many polls:
    /// how many polls find that.
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

    /// Goal: however loud others are, somebody silent is heard within so many polls, and sooner where each poll takes long.
    #[test]
    fn who_is_silent_for_long_does_not_wait_for_the_loud() {
        let longest = |bytes| (0..50).map(|before| polls_until_heard(bytes, before)).max();
        assert_eq!(longest(64), Some(LOOKS_PER_QUESTION));
        assert_eq!(longest(BYTES_PER_LOOK), Some(LOOKS_PER_QUESTION / 2));
        assert_eq!(longest(BYTES_PER_LOOK * LOOKS_PER_QUESTION as usize), Some(1));
    }

    /// Goal: what comes while epoll is mute is told once it is not any more.
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
