//! Data path: polling. Which of many connections something has come for.
//!
//! With a few connections, whoever polls looks at each in turn: one system call finds a message and takes it. With more, it
//! asks epoll(7) which sockets have news. That is told once for each piece of news (`EPOLLET`): what a turn leaves undone, or
//! cannot do because another thread has the connection, is found by the turns that each connection still gets now and then.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::fork::Fd;

/// Connections that are looked at one by one.
pub(super) const TURNS: usize = 4;
/// News that one poll takes.
const NEWS_MAX: usize = 16;

/// The sockets of connections, where they are many, for whoever polls.
pub(super) struct News {
    epoll: Fd,
}

impl News {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?.into() })
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

    /// Calls `each` with the numbers of the queue pairs whose connections have news.
    pub(super) fn take(&self, each: impl FnMut(u32)) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); NEWS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal interrupts it; the next poll looks again.
        let Ok((news, _)) = epoll::wait(&self.epoll, &mut events, Some(&at_once)) else { return };
        news.iter().map(|event| event.data.u64() as u32).for_each(each);
    }
}
