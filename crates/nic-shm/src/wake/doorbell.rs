//! Doorbells: what makes a descriptor of another process readable, so that a thread wakes that sleeps in poll(2) or epoll(7).
//!
//! Each is a pair of connected Unix sockets; peers hold duplicates of one end. An event counter would be cheaper by half a
//! microsecond, but whether writing to it blocks is decided by a flag that whoever holds a duplicate can change. Sending
//! with MSG_DONTWAIT never blocks, whoever made the socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use verbs::{Error, Result};

use nic_util::fork::Fd;

/// A doorbell of one's own.
pub(crate) struct Doorbell {
    ear: Fd,
    button: Fd,
}

/// What was found at a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// Somebody has rung since the last look.
    Yes,
    /// Nobody has.
    No,
    /// Somebody has cut the wire: it says "rung" for ever.
    Broken,
}

impl Doorbell {
    /// A silent one.
    pub(crate) fn new() -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ear, button) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::system("cannot create a pair of sockets to be woken by", e))?;
        Ok(Self { ear: ear.into(), button: button.into() })
    }

    /// Readable once rung.
    pub(crate) fn ear(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }

    /// For peers to [`ring`].
    pub(crate) fn button(&self) -> BorrowedFd<'_> {
        self.button.as_fd()
    }

    /// Silent again; whether it was rung. Look for what is the matter after this.
    pub(crate) fn take(&self) -> Rung {
        // A sender's buffer holds a few hundred rings, so that one look takes them all.
        let mut rings = [0; 4096];
        match recv(&self.ear, &mut rings, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Rung::Broken,
            Ok(_) => Rung::Yes,
            Err(Errno::AGAIN | Errno::INTR) => Rung::No,
            Err(_) => Rung::Broken,
        }
    }
}

/// Rings; never blocks, whatever the descriptor is.
pub(crate) fn ring(button: BorrowedFd<'_>) {
    // Full means rung already; broken, that nobody listens any more.
    let _ = send(button, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Whether a descriptor that a peer sent can be a doorbell's button. Asks nobody but the kernel.
pub(crate) fn is_button(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ringing a bell that nobody answers neither blocks nor is forgotten, though its button lost its flags. Method: the
    /// flag that makes writing block is taken away, as any holder can, and it is rung far beyond what it holds.
    #[test]
    fn ringing_never_blocks() {
        let bell = Doorbell::new().expect("a doorbell");
        assert_eq!(bell.take(), Rung::No);
        rustix::fs::fcntl_setfl(bell.button(), rustix::fs::OFlags::empty()).expect("a flag");
        (0..100_000).for_each(|_| ring(bell.button()));
        assert_eq!(bell.take(), Rung::Yes);
        assert_eq!(bell.take(), Rung::No);
        rustix::net::shutdown(bell.button(), rustix::net::Shutdown::Both).expect("cut");
        ring(bell.button());
        assert_eq!(bell.take(), Rung::Broken);
    }
}
