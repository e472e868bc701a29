//! Event sources of the NIC thread: sockets of connections, a wake socket for peers, and wake-ups by this
//! process.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{Event, EventFlags};
use verbs::{Error, Result};

use crate::wake::wake_socket::{WakeSocket, WakeSocketState};
use nic_util::thread::EpollSet;

/// The token of the wake socket, which no socket has.
const WAKE_SOCKET: u64 = u64::MAX;

/// An event that woke the thread.
pub(crate) enum ReactorEvent {
    /// A peer has woken the thread.
    WokenByPeer,
    /// The socket with this number is readable or has ended.
    Socket(u64),
}

/// The thread's event sources.
pub(crate) struct Reactor {
    pub(crate) epoll: EpollSet,
    wake_socket: WakeSocket,
    /// The wake socket is broken: the thread polls at intervals instead.
    wake_socket_broken: AtomicBool,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self> {
        let (epoll, wake_socket) = (EpollSet::new()?, WakeSocket::new()?);
        epoll
            .watch(wake_socket.receiver(), WAKE_SOCKET, EventFlags::IN)
            .map_err(|e| Error::system("cannot create the device's event descriptors", e))?;
        Ok(Self { epoll, wake_socket, wake_socket_broken: AtomicBool::new(false) })
    }

    /// Wakes the thread, which checks its work and the time.
    pub(crate) fn wake(&self) {
        self.epoll.wake();
    }

    /// The descriptor that a peer rings to wake the thread.
    pub(crate) fn wake_socket(&self) -> BorrowedFd<'_> {
        self.wake_socket.sender()
    }

    /// Whether the wake socket is broken, so that peers cannot wake the thread any more.
    pub(crate) fn is_wake_socket_broken(&self) -> bool {
        self.wake_socket_broken.load(Ordering::Acquire)
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
    pub(crate) fn set_events_enabled(&self, fd: BorrowedFd<'_>, id: u64, enabled: bool) {
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
            WAKE_SOCKET => {
                if self.wake_socket.drain() == WakeSocketState::Broken {
                    // A peer has shut down the socket that it shares with others; it would wake this thread
                    // without end.
                    self.unwatch(self.wake_socket.receiver());
                    self.wake_socket_broken.store(true, Ordering::Release);
                }
                ReactorEvent::WokenByPeer
            }
            id => ReactorEvent::Socket(id),
        }
    }
}
