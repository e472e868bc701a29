//! [`Socket`]: one for each device and process. Its name is the port at which the process listens for pairs, which its GID tells.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};

/// What carries datagrams.
#[derive(Debug)]
pub(super) enum Socket {
    /// Between processes of this host.
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way, or nobody takes it: datagrams may be lost.
    Gone,
    /// There is no room at the moment.
    Full,
}

fn name(port: u16) -> io::Result<Name> {
    Name::from_abstract_name(format!("nicety-ud/{port}"))
}

impl Socket {
    pub(super) fn open(is_local: bool, addr: SocketAddr) -> io::Result<Self> {
        if is_local {
            let socket = UnixDatagram::bind_addr(&name(addr.port())?)?;
            socket.set_nonblocking(true)?;
            return Ok(Self::Unix(socket));
        }
        let socket = UdpSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Udp(socket))
    }

    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8]) -> Sent {
        let sent = match self {
            Self::Unix(socket) => name(to.port()).and_then(|name| socket.send_to_addr(bytes, &name)),
            Self::Udp(socket) => socket.send_to(bytes, to),
        };
        match sent {
            Err(why) if why.kind() == ErrorKind::WouldBlock => Sent::Full,
            _ => Sent::Gone,
        }
    }

    /// The next datagram, if there is one.
    pub(super) fn receive(&self, place: &mut [u8]) -> Option<usize> {
        loop {
            let received = match self {
                Self::Unix(socket) => socket.recv(place),
                Self::Udp(socket) => socket.recv(place),
            };
            match received {
                Ok(len) => return Some(len),
                // UDP tells here of one that was sent before and that nobody took.
                Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}
