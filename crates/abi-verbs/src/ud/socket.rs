//! [`Socket`]: one per device and process. Its name is the port at which the process listens for pairs.
//!
//! A device that reaches only this host has its sockets in the user's folder ([`host::real::user_folder`]): no other user can send to
//! them, take their names, or receive in place of a process that has ended. Abstract names do not provide that, and a datagram socket
//! does not reveal its owner. The sender's credentials are checked as well, because a descriptor may have been passed to another user.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ffi::lock;
use host::real::{network_namespace, user_folder};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, bind, recvmsg, sockopt,
};
use rustix::process::{Uid, geteuid};

/// The socket that carries datagrams.
#[derive(Debug)]
pub(super) enum Socket {
    /// Between processes of this host and user.
    Unix(Local),
    Udp(UdpSocket),
}

/// A socket in the user's folder.
#[derive(Debug)]
pub(super) struct Local {
    socket: UnixDatagram,
    folder: PathBuf,
    /// The network namespace: ports are per namespace, but the folder is visible in all namespaces.
    namespace: u64,
    own: Uid,
    port: u16,
    out: Mutex<Out>,
}

/// The sending socket, connected to the last receiver: most datagrams go to the same one, and looking up a name takes 1 of the 3 us of
/// a send.
#[derive(Debug)]
struct Out {
    socket: UnixDatagram,
    to: Option<u16>,
}

/// The result of sending a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent, or not accepted by any socket: datagrams may be lost.
    Gone,
    /// The receiver has no room at the moment.
    Full,
}

/// The result of polling the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    NullValue,
    /// A datagram of this many bytes.
    Datagram(usize),
    /// A datagram from another user.
    Stranger,
}

impl Local {
    fn open(port: u16) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // Enabled before the socket has a name, so that each datagram carries credentials.
        sockopt::set_socket_passcred(&socket, true)?;
        let (folder, namespace) = (user_folder()?, network_namespace());
        let name = name(&folder, namespace, port);
        // This process owns the port, so the owner of an old file has ended.
        match std::fs::remove_file(&name) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        // The standard library can bind a socket only at creation.
        bind(&socket, &SocketAddrUnix::new(&name)?)?;
        let out = UnixDatagram::unbound()?;
        out.set_nonblocking(true)?;
        let out = Mutex::new(Out { socket: out, to: None });
        Ok(Self { socket, folder, namespace, own: geteuid(), port, out })
    }

    fn send(&self, port: u16, bytes: &[u8]) -> io::Result<usize> {
        let mut out = lock(&self.out);
        if out.to == Some(port) {
            match out.socket.send(bytes) {
                // Another process may own the name now.
                Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                done => return done,
            }
        }
        out.to = None;
        out.socket.connect(name(&self.folder, self.namespace, port))?;
        out.to = Some(port);
        out.socket.send(bytes)
    }

    fn receive(&self, place: &mut [u8]) -> io::Result<Received> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // No room for passed descriptors: the kernel closes them.
        let found = recvmsg(&self.socket, &mut [IoSliceMut::new(place)], &mut ancillary, RecvFlags::empty())?;
        let is_own = |message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => sender.uid == self.own,
            _ => false,
        };
        let is_own = ancillary.drain().any(is_own);
        Ok(if is_own { Received::Datagram(found.bytes) } else { Received::Stranger })
    }
}

/// The path of the socket for a port.
fn name(folder: &Path, namespace: u64, port: u16) -> PathBuf {
    folder.join(format!("ud-{namespace}-{port}"))
}

impl Socket {
    pub(super) fn open(is_local: bool, addr: SocketAddr) -> io::Result<Self> {
        if is_local {
            return Ok(Self::Unix(Local::open(addr.port())?));
        }
        let socket = UdpSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Udp(socket))
    }

    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8]) -> Sent {
        let sent = match self {
            Self::Unix(own) => own.send(to.port(), bytes),
            Self::Udp(socket) => socket.send_to(bytes, to),
        };
        match sent {
            Err(why) if why.kind() == ErrorKind::WouldBlock => Sent::Full,
            _ => Sent::Gone,
        }
    }

    /// The next datagram, if one has arrived.
    pub(super) fn receive(&self, place: &mut [u8]) -> Received {
        loop {
            let received = match self {
                Self::Unix(own) => own.receive(place),
                Self::Udp(socket) => socket.recv(place).map(Received::Datagram),
            };
            match received {
                Ok(found) => return found,
                // UDP reports here that an earlier datagram was not accepted.
                Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return Received::NullValue,
            }
        }
    }

    /// Removes the socket's file, as the process ends. The file of a killed process is removed by the next owner of the port.
    pub(super) fn remove_name(&self) {
        if let Self::Unix(own) = self {
            let _ = std::fs::remove_file(name(&own.folder, own.namespace, own.port));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(own) => own.socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}
