//! Event sources of the NIC thread: sockets of connections, a doorbell for peers, and wake-ups by this
//! process.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{Event, EventFlags};
use verbs::{Error, Result};

use crate::wake::doorbell::{Doorbell, DoorbellState};
use nic_util::thread::EpollSet;

/// The token of the doorbell, which no socket has.
const DOORBELL: u64 = u64::MAX;

/// An event that woke the thread.
pub(crate) enum ReactorEvent {
    /// A peer has rung the doorbell.
    Doorbell,
    /// The socket with this number is readable or has ended.
    Socket(u64),
}

/// The thread's event sources.
pub(crate) struct Reactor {
    pub(crate) epoll: EpollSet,
    doorbell: Doorbell,
    /// The doorbell is broken: the thread polls at intervals instead.
    doorbell_broken: AtomicBool,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self> {
        let (epoll, doorbell) = (EpollSet::new()?, Doorbell::new()?);
        epoll
            .watch(doorbell.receiver(), DOORBELL, EventFlags::IN)
            .map_err(|e| Error::system("cannot create the device's event descriptors", e))?;
        Ok(Self { epoll, doorbell, doorbell_broken: AtomicBool::new(false) })
    }

    /// Wakes the thread, which checks its work and the time.
    pub(crate) fn wake(&self) {
        self.epoll.wake();
    }

    /// The descriptor that a peer rings to wake the thread.
    pub(crate) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.sender()
    }

    /// Whether the doorbell is broken, so that peers cannot wake the thread any more.
    pub(crate) fn is_doorbell_broken(&self) -> bool {
        self.doorbell_broken.load(Ordering::Acquire)
    }

    /// A number for a socket that will be watched.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.epoll.fresh_id()
    }

    /// Watches a socket under a number.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Result<()> {
        self.epoll
            .watch(fd, id, EventFlags::IN | EventFlags::RDHUP)
            .map_err(|e| Error::system("cannot watch a connection's socket", e))
    }

    /// Enables or disables events of a listening socket.
    pub(crate) fn rewatch(&self, fd: BorrowedFd<'_>, id: u64, enabled: bool) {
        let flags = if enabled { EventFlags::IN } else { EventFlags::empty() };
        // This fails only for a socket that is not watched, which is being closed then.
        let _ = self.epoll.rewatch(fd, id, flags);
    }

    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.epoll.unwatch(fd);
    }

    /// Decodes an event.
    pub(crate) fn decode(&self, event: &Event) -> ReactorEvent {
        match event.data.u64() {
            DOORBELL => {
                if self.doorbell.take() == DoorbellState::Broken {
                    // A peer has shut down the socket that it shares with others; it would wake this thread
                    // without end.
                    self.unwatch(self.doorbell.receiver());
                    self.doorbell_broken.store(true, Ordering::Release);
                }
                ReactorEvent::Doorbell
            }
            id => ReactorEvent::Socket(id),
        }
    }
}
