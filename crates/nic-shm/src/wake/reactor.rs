//! Event sources of the NIC thread: sockets of connections, a doorbell for peers, and wake-ups by this
//! process.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{Event, EventFlags};
use verbs::{Error, Result};

use crate::wake::doorbell::{Doorbell, Rung};
use nic_util::thread::Ear;

/// The token of the doorbell, which no socket has.
const DOORBELL: u64 = u64::MAX;

/// An event that woke the thread.
pub(crate) enum Happening {
    /// A peer has rung the doorbell.
    Rung,
    /// The socket with this number is readable or has ended.
    Socket(u64),
}

/// The thread's event sources.
pub(crate) struct Reactor {
    pub(crate) ear: Ear,
    doorbell: Doorbell,
    /// The doorbell is broken: the thread polls at intervals instead.
    deaf: AtomicBool,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self> {
        let (ear, doorbell) = (Ear::new()?, Doorbell::new()?);
        ear.watch(doorbell.ear(), DOORBELL, EventFlags::IN)
            .map_err(|e| Error::system("cannot create the device's event descriptors", e))?;
        Ok(Self { ear, doorbell, deaf: AtomicBool::new(false) })
    }

    /// Wakes the thread, which checks its work and the time.
    pub(crate) fn wake(&self) {
        self.ear.wake();
    }

    /// The descriptor that a peer rings to wake the thread.
    pub(crate) fn button(&self) -> BorrowedFd<'_> {
        self.doorbell.button()
    }

    /// Whether the doorbell is broken, so that peers cannot wake the thread any more.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire)
    }

    /// A number for a socket that will be watched.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.ear.fresh_id()
    }

    /// Watches a socket under a number.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Result<()> {
        self.ear
            .watch(fd, id, EventFlags::IN | EventFlags::RDHUP)
            .map_err(|e| Error::system("cannot watch a connection's socket", e))
    }

    /// Enables or disables events of a listening socket.
    pub(crate) fn rewatch(&self, fd: BorrowedFd<'_>, id: u64, told: bool) {
        let flags = if told { EventFlags::IN } else { EventFlags::empty() };
        // This fails only for a socket that is not watched, which is being closed then.
        let _ = self.ear.rewatch(fd, id, flags);
    }

    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.ear.unwatch(fd);
    }

    /// Decodes an event.
    pub(crate) fn meaning(&self, event: &Event) -> Happening {
        match event.data.u64() {
            DOORBELL => {
                if self.doorbell.take() == Rung::Broken {
                    // A peer has shut down the socket that it shares with others; it would wake this thread
                    // without end.
                    self.unwatch(self.doorbell.ear());
                    self.deaf.store(true, Ordering::Release);
                }
                Happening::Rung
            }
            id => Happening::Socket(id),
        }
    }
}
