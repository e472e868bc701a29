//! Data path: polling. Which of many connections something has come for.
//!
//! With a few connections, whoever polls looks at each in turn: one system call finds a message and takes it. With more, it
//! asks epoll(7) which sockets have news. That is told once for each piece of news (`EPOLLET`): what a turn leaves undone, or
//! cannot do because another thread has the connection, is found by the turns that each connection still gets now and then.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};

use super::device::Inner;
use super::nic::Nic;

/// Connections that are looked at one by one.
pub(super) const TURNS: usize = 4;
/// News that one poll takes.
const NEWS_MAX: usize = 16;

impl Nic {
    /// Has pollers told of a socket. Without memory for it, its connection has the turns of all.
    pub(super) fn list(&self, fd: BorrowedFd<'_>, num: u32) {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let _ = epoll::add(&self.ready, fd, epoll::EventData::new_u64(num.into()), flags);
    }

    pub(super) fn unlist(&self, fd: BorrowedFd<'_>) {
        // It may not have got on the list.
        let _ = epoll::delete(&self.ready, fd);
    }
}

impl Inner {
    /// Works on connections that have news.
    pub(super) fn drive_ready(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); NEWS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal interrupts it; the next poll looks again.
        let Ok((news, _)) = epoll::wait(&self.nic.ready, &mut events, Some(&at_once)) else { return };
        for event in news {
            if let Some(qp) = self.qp(event.data.u64() as u32) {
                qp.poll();
            }
        }
    }
}
