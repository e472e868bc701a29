//! Wake sockets: make a descriptor of another process readable, to wake a thread that sleeps in poll(2) or
//! epoll(7).
//!
//! Each is a pair of connected Unix sockets; peers hold duplicates of one end. An eventfd would be cheaper by
//! half a microsecond, but a flag that any holder of a duplicate can change decides whether writing to it
//! blocks. Sending with MSG_DONTWAIT never blocks, whichever process created the socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use verbs::{Error, Result};

use nic_util::fork::ForkSafeFd;

/// A wake socket of this process: the end that it polls, and the end that peers signal.
pub(crate) struct WakeSocket {
    receiver: ForkSafeFd,
    sender: ForkSafeFd,
}

/// The state of a wake socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeSocketState {
    /// Signaled since the last call.
    Signaled,
    /// Not signaled.
    Idle,
    /// A peer has shut down the socket: it stays readable forever.
    Broken,
}

impl WakeSocket {
    /// Creates a wake socket that is not signaled.
    pub(crate) fn new() -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (receiver, sender) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::system("cannot create the socket pair of a wake socket", e))?;
        Ok(Self { receiver: receiver.into(), sender: sender.into() })
    }

    /// The end that becomes readable when it is signaled.
    pub(crate) fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// The end that peers [`signal`].
    pub(crate) fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Resets the wake socket; returns whether it was signaled. Check for work after this.
    pub(crate) fn drain(&self) -> WakeSocketState {
        // A socket buffer holds a few hundred signals, so that one call reads them all.
        let mut signals = [0; 4096];
        match recv(&self.receiver, &mut signals, RecvFlags::DONTWAIT) {
            Ok((0, _)) => WakeSocketState::Broken,
            Ok(_) => WakeSocketState::Signaled,
            Err(Errno::AGAIN | Errno::INTR) => WakeSocketState::Idle,
            Err(_) => WakeSocketState::Broken,
        }
    }
}

/// Signals a wake socket; never blocks, whatever the descriptor is.
pub(crate) fn signal(sender: BorrowedFd<'_>) {
    // A full buffer means that it is signaled already; an error, that nobody polls it any more.
    let _ = send(sender, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Whether a descriptor that a peer sent can be a wake socket. Asks the kernel only.
pub(crate) fn is_wake_socket(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: signaling a wake socket that nobody polls neither blocks nor is lost, although its descriptor lost
    /// its flags. Method: O_NONBLOCK is cleared, as any holder can, and it is signaled far more often than its
    /// buffer holds.
    #[test]
    fn signal_never_blocks() {
        let socket = WakeSocket::new().expect("a wake socket");
        assert_eq!(socket.drain(), WakeSocketState::Idle);
        rustix::fs::fcntl_setfl(socket.sender(), rustix::fs::OFlags::empty()).expect("a flag");
        (0..100_000).for_each(|_| signal(socket.sender()));
        assert_eq!(socket.drain(), WakeSocketState::Signaled);
        assert_eq!(socket.drain(), WakeSocketState::Idle);
        rustix::net::shutdown(socket.sender(), rustix::net::Shutdown::Both).expect("the socket is shut down");
        signal(socket.sender());
        assert_eq!(socket.drain(), WakeSocketState::Broken);
    }
}
