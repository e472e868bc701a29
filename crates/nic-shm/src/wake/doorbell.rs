//! Doorbells: make a descriptor of another process readable, to wake a thread that sleeps in poll(2) or
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

/// A doorbell of this process: the end that it polls, and the end that peers ring.
pub(crate) struct Doorbell {
    receiver: ForkSafeFd,
    sender: ForkSafeFd,
}

/// The state of a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoorbellState {
    /// Rung since the last call.
    Rung,
    /// Not rung.
    Idle,
    /// A peer has shut down the socket: it stays readable forever.
    Broken,
}

impl Doorbell {
    /// Creates a doorbell that is not rung.
    pub(crate) fn new() -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (receiver, sender) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::system("cannot create the socket pair of a doorbell", e))?;
        Ok(Self { receiver: receiver.into(), sender: sender.into() })
    }

    /// The end that becomes readable when rung.
    pub(crate) fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// The end that peers [`ring`].
    pub(crate) fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Resets the doorbell; returns whether it was rung. Check for work after this.
    pub(crate) fn take(&self) -> DoorbellState {
        // A socket buffer holds a few hundred rings, so that one call reads them all.
        let mut rings = [0; 4096];
        match recv(&self.receiver, &mut rings, RecvFlags::DONTWAIT) {
            Ok((0, _)) => DoorbellState::Broken,
            Ok(_) => DoorbellState::Rung,
            Err(Errno::AGAIN | Errno::INTR) => DoorbellState::Idle,
            Err(_) => DoorbellState::Broken,
        }
    }
}

/// Rings a doorbell; never blocks, whatever the descriptor is.
pub(crate) fn ring(sender: BorrowedFd<'_>) {
    // A full buffer means that it is rung already; an error, that nobody polls it any more.
    let _ = send(sender, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Whether a descriptor that a peer sent can be a doorbell. Asks the kernel only.
pub(crate) fn is_doorbell_sender(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ringing a doorbell that nobody polls neither blocks nor is lost, although its descriptor lost
    /// its flags. Method: O_NONBLOCK is cleared, as any holder can, and it is rung far more often than its
    /// buffer holds.
    #[test]
    fn ring_never_blocks() {
        let bell = Doorbell::new().expect("a doorbell");
        assert_eq!(bell.take(), DoorbellState::Idle);
        rustix::fs::fcntl_setfl(bell.sender(), rustix::fs::OFlags::empty()).expect("a flag");
        (0..100_000).for_each(|_| ring(bell.sender()));
        assert_eq!(bell.take(), DoorbellState::Rung);
        assert_eq!(bell.take(), DoorbellState::Idle);
        rustix::net::shutdown(bell.sender(), rustix::net::Shutdown::Both).expect("cut");
        ring(bell.sender());
        assert_eq!(bell.take(), DoorbellState::Broken);
    }
}
