//! [`Socket`]: one for each device and process. Its name is the port at which the process listens for pairs.
//!
//! A device that reaches this host alone has sockets in its user's folder ([`host::real::user_folder`]): no other user can send to
//! them, take their names, or be sent to in place of a process that has gone. Abstract names give none of that, and a datagram
//! socket does not tell whose it is. Who has sent a datagram is asked all the same: a descriptor may have come into other hands.

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

/// What carries datagrams.
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
    /// The network namespace: its ports are its own, and the folder is seen from all.
    namespace: u64,
    own: Uid,
    port: u16,
    out: Mutex<Out>,
}

/// What datagrams leave by: connected to the receiver of the last one, as most go where that went, and to look a name up takes as long
/// as half of all the rest (1 of 3 us).
#[derive(Debug)]
struct Out {
    socket: UnixDatagram,
    to: Option<u16>,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way, or nobody takes it: datagrams may be lost.
    Gone,
    /// There is no room at the moment.
    Full,
}

/// What a look at the socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Nothing,
    /// So many bytes.
    Datagram(usize),
    /// A datagram of another user.
    Stranger,
}

impl Local {
    fn open(port: u16) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // Before it has a name, so that each datagram says whose it is.
        sockopt::set_socket_passcred(&socket, true)?;
        let (folder, namespace) = (user_folder()?, network_namespace());
        let name = name(&folder, namespace, port);
        // This process has the port, so whoever left that has gone.
        match std::fs::remove_file(&name) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        // The standard library binds a socket only as it makes it.
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
                // Who has the name now may be another process.
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
        // Descriptors that come along have no room, and the kernel closes them.
        let found = recvmsg(&self.socket, &mut [IoSliceMut::new(place)], &mut ancillary, RecvFlags::empty())?;
        let is_own = |message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => sender.uid == self.own,
            _ => false,
        };
        let is_own = ancillary.drain().any(is_own);
        Ok(if is_own { Received::Datagram(found.bytes) } else { Received::Stranger })
    }
}

/// Where the socket of a port is.
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

    /// The next datagram, if there is one.
    pub(super) fn receive(&self, place: &mut [u8]) -> Received {
        loop {
            let received = match self {
                Self::Unix(own) => own.receive(place),
                Self::Udp(socket) => socket.recv(place).map(Received::Datagram),
            };
            match received {
                Ok(found) => return found,
                // UDP tells here of one that was sent before and that nobody took.
                Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return Received::Nothing,
            }
        }
    }

    /// Takes the name away, as the process ends. What one leaves that is killed is removed by the next that has the port.
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
