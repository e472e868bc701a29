//! The sockets that connections are made over: Unix seqpacket sockets with abstract names, which the kernel removes
//! with their process.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg,
    socket_with, sockopt,
};
use verbs::{Error, Result};

use super::device::process_token;
use super::wire::{Message, PACKET_MAX};

/// The first port that is chosen when none is asked for (RFC 6335, dynamic ports).
const FIRST_DYNAMIC_PORT: u16 = 49_152;

/// A packet and the descriptors that came with it.
pub(super) type Packet = (Vec<u8>, Vec<OwnedFd>);

/// The name of a port.
pub(super) fn address(port: u16) -> Result<SocketAddrUnix> {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddrUnix::new_abstract_name(format!("nicety-shm/{uid}/{port}").as_bytes())
        .map_err(|e| Error::system("cannot name a socket", e))
}

/// A socket that neither blocks nor survives exec.
pub(super) fn new_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|e| {
        Error::system("cannot create a socket (if descriptors ran out, raise the limit with ulimit -n)", e)
    })
}

/// Shared memory reaches this host only.
pub(super) fn check_local(addr: SocketAddr) -> Result<()> {
    let ip = addr.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return Ok(());
    }
    let why =
        "shared memory reaches this host only; use 127.0.0.1, or a device that reaches other hosts".into();
    Err(Error::Address { addr, why })
}

/// The peer's process, if it runs as the same user.
pub(super) fn same_user(socket: &OwnedFd) -> Option<i32> {
    let peer = sockopt::socket_peercred(socket).ok()?;
    (peer.uid == rustix::process::geteuid()).then(|| peer.pid.as_raw_nonzero().get())
}

/// Sends a message with descriptors.
pub(super) fn send(socket: &OwnedFd, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let packet = message.emit();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// The next packet with its descriptors; `Ok(None)` if there is none now, an error at the end.
pub(super) fn receive(socket: &OwnedFd) -> Result<Option<Packet>, Errno> {
    let mut packet = vec![0; PACKET_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut packet)];
    let got = match recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(got) => got.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got == 0 {
        return Err(Errno::CONNRESET);
    }
    packet.truncate(got);
    Ok(Some((packet, fds)))
}

/// Binds to the port asked for, or to a free one.
pub(super) fn bind_port(socket: &OwnedFd, addr: SocketAddr) -> Result<u16> {
    let taken = |why: &str| Error::Address { addr, why: why.into() };
    let try_bind = |port| match bind(socket, &address(port)?) {
        Ok(()) => Ok(true),
        Err(Errno::ADDRINUSE) => Ok(false),
        Err(e) => Err(Error::system("cannot bind a socket", e)),
    };
    if addr.port() != 0 {
        return match try_bind(addr.port())? {
            true => Ok(addr.port()),
            false => Err(taken("the port is taken; choose another, or 0 for any")),
        };
    }
    let span = u32::from(u16::MAX - FIRST_DYNAMIC_PORT);
    let start = (*process_token() as u32).wrapping_add(std::process::id()) % span;
    for step in 0..span {
        let port = FIRST_DYNAMIC_PORT + ((start + step) % span) as u16;
        if try_bind(port)? {
            return Ok(port);
        }
    }
    Err(taken("every dynamic port is taken"))
}
