//! The sockets that connections are made over: Unix seqpacket sockets, whose names are in `protocol::names`.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use verbs::{Error, Result};

use crate::memory::segment::is_sealed_memory;
use crate::protocol::wire::{Message, PACKET_MAX};
use crate::wake::doorbell::is_button;
use nic_util::fork::Fd;

/// A packet and what came with it.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Descriptors were lost on the way in: this process may not have more.
    pub(crate) is_cut: bool,
}

/// A socket that neither blocks nor survives exec.
pub(crate) fn new_socket() -> Result<Fd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(Fd::from).map_err(|e| {
        Error::system("cannot create a socket (if descriptors ran out, raise the limit with ulimit -n)", e)
    })
}

/// The address that is meant, by an unspecified one, too.
pub(crate) fn ip_of(addr: SocketAddr) -> IpAddr {
    if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() }
}

/// Shared memory reaches this host only.
pub(crate) fn check_local(addr: SocketAddr) -> Result<()> {
    let ip = addr.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return Ok(());
    }
    let why =
        "shared memory reaches this host only; use 127.0.0.1, or a device that reaches other hosts".into();
    Err(Error::Address { addr, why })
}

/// The peer's process, if it runs as the same user; 0 if it is in a PID namespace that this one does not see.
pub(crate) fn same_user(socket: &Fd) -> Option<i32> {
    let nobody = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // Not by rustix, whose type has no place for the 0.
    let peer = option(socket, libc::SO_PEERCRED, nobody)?;
    (peer.uid == rustix::process::geteuid().as_raw()).then_some(peer.pid)
}

/// A handle of the peer's process, whichever PID namespace it is in; readable once the process has ended. Older kernels give it by
/// number only (Linux 6.5 for the socket's option).
pub(crate) fn life_of(socket: &Fd, pid: i32) -> Option<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    if let Some(fd) = option(socket, SO_PEERPIDFD, -1_i32).filter(|fd| *fd >= 0) {
        // SAFETY: the kernel has just made it for us. Test: a_peer_that_dies_inside_after_we_left_frees_the_turn.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// An option of the socket layer.
fn option<T: Copy>(socket: &Fd, name: i32, mut value: T) -> Option<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes, and its two types, numbers only, are valid for any. Test: all that connects.
    let done = unsafe {
        let at = (&raw mut value).cast::<libc::c_void>();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, name, at, &raw mut len)
    };
    (done == 0 && len as usize == size_of::<T>()).then_some(value)
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: &Fd, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    #[cfg_attr(not(feature = "lab"), allow(unused_mut, reason = "only the siege lies"))]
    let mut packet = message.emit();
    #[cfg(feature = "lab")]
    crate::protocol::twist::apply(&mut packet);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// Whether nothing waits to be read: no packet, and not the end.
pub(crate) fn is_silent(socket: &Fd) -> bool {
    matches!(
        recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

/// The next packet with its descriptors; `Ok(None)` if there is none now, an error at the end.
pub(crate) fn receive(socket: &Fd) -> Result<Option<Packet>, Errno> {
    // A peer that ended with something unread leaves a reset, which the kernel tells once, and before what the peer had sent.
    match receive_now(socket) {
        Err(Errno::CONNRESET) => receive_now(socket),
        other => other,
    }
}

fn receive_now(socket: &Fd) -> Result<Option<Packet>, Errno> {
    let mut packet = vec![0; PACKET_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut packet)];
    let (got, flags) = match recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(got) => (got.bytes, got.flags),
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
    let (known, strange): (Vec<_>, Vec<_>) =
        fds.into_iter().partition(|fd| is_sealed_memory(fd) || is_button(fd));
    if !strange.is_empty() {
        dispose(strange);
        return Err(Errno::BADMSG);
    }
    packet.truncate(got);
    Ok(Some(Packet { bytes: packet, fds: known, is_cut: flags.contains(ReturnFlags::CTRUNC) }))
}

/// Closes descriptors of unknown kinds, in a thread of its own: closing can take as long as whoever sent them likes, be it a
/// socket that lingers or a file of the sender's own file system.
fn dispose(strange: Vec<OwnedFd>) {
    let strange = ManuallyDrop::new(strange);
    let close = move || drop(ManuallyDrop::into_inner(strange));
    // Without a thread they stay open: better than to wait for a stranger.
    let _ = std::thread::Builder::new().name("nicety-close".into()).spawn(close);
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (Fd, Fd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        (a.into(), b.into())
    }

    /// Goal: nothing that a peer said is lost with it. Method: it ends with and without something that it has not read.
    #[test]
    fn what_was_said_before_a_reset_is_heard() {
        for unread in [false, true] {
            let (peer, here) = pair();
            assert!(matches!(receive(&here), Ok(None)));
            if unread {
                send(&here, &Message::Disconnect, &[]).expect("room");
            }
            send(&peer, &Message::Ready, &[]).expect("room");
            send(&peer, &Message::Disconnect, &[]).expect("room");
            drop(peer);
            for said in [Message::Ready, Message::Disconnect] {
                let packet = receive(&here).expect("before the end").expect("a packet");
                assert_eq!(packet.bytes, said.emit(), "unread: {unread}");
            }
            assert_eq!(receive(&here).err(), Some(Errno::CONNRESET));
        }
    }
}
