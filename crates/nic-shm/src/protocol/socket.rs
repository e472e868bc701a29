//! The Unix seqpacket sockets of the connection protocol; for their names see `protocol::names`.

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
use crate::wake::wake_socket::is_wake_socket;
use nic_util::fork::ForkSafeFd;

/// A packet with its descriptors.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Descriptors were lost because this process has reached its limit.
    pub(crate) is_cut: bool,
}

/// Creates a socket that is non-blocking and close-on-exec.
pub(crate) fn new_socket() -> Result<ForkSafeFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(ForkSafeFd::from).map_err(|e| {
        Error::system("cannot create a socket (if descriptors ran out, raise the limit with ulimit -n)", e)
    })
}

/// The IP address; loopback for an unspecified one.
pub(crate) fn ip_of(addr: SocketAddr) -> IpAddr {
    if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() }
}

/// Checks that an address is local: shared memory reaches this host only.
pub(crate) fn check_local(addr: SocketAddr) -> Result<()> {
    let ip = addr.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return Ok(());
    }
    let why =
        "shared memory reaches this host only; use 127.0.0.1, or a device that reaches other hosts".into();
    Err(Error::Address { addr, why })
}

/// The pid of the peer, if it runs as the same user; 0 if it is in a PID namespace that this process does not
/// see.
pub(crate) fn same_user_pid(socket: &ForkSafeFd) -> Option<i32> {
    let nobody = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // Not by rustix, whose type cannot represent pid 0.
    let peer = get_option(socket, libc::SO_PEERCRED, nobody)?;
    (peer.uid == rustix::process::geteuid().as_raw()).then_some(peer.pid)
}

/// A pidfd of the peer, whichever PID namespace it is in; readable once the process has ended. Kernels before
/// Linux 6.5 lack SO_PEERPIDFD; there it is opened by pid.
pub(crate) fn peer_pidfd(socket: &ForkSafeFd, pid: i32) -> Option<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    if let Some(fd) = get_option(socket, SO_PEERPIDFD, -1_i32).filter(|fd| *fd >= 0) {
        // SAFETY: the kernel has just created it for us. Test:
        // peer_that_dies_inside_releases_the_atomic_lock.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Reads an option of the socket layer.
fn get_option<T: Copy>(socket: &ForkSafeFd, name: i32, mut value: T) -> Option<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes, and both its types consist of numbers, so that any bytes are valid.
    // Test: all that connects.
    let done = unsafe {
        let at = (&raw mut value).cast::<libc::c_void>();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, name, at, &raw mut len)
    };
    (done == 0 && len as usize == size_of::<T>()).then_some(value)
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: &ForkSafeFd, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    #[cfg_attr(not(feature = "lab"), allow(unused_mut, reason = "only fault injection changes packets"))]
    let mut packet = message.emit();
    #[cfg(feature = "lab")]
    crate::protocol::hello_fault::apply(&mut packet);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// Whether nothing can be read: no packet, and not the end of the stream.
pub(crate) fn has_no_input(socket: &ForkSafeFd) -> bool {
    matches!(
        recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

/// The next packet with its descriptors; `Ok(None)` if there is none now, an error at the end of the stream.
pub(crate) fn receive(socket: &ForkSafeFd) -> Result<Option<Packet>, Errno> {
    // If a peer ends with unread data, the kernel reports a reset, once, before the packets that the peer had
    // sent.
    match recv_packet(socket) {
        Err(Errno::CONNRESET) => recv_packet(socket),
        other => other,
    }
}

fn recv_packet(socket: &ForkSafeFd) -> Result<Option<Packet>, Errno> {
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
    let (known, unknown): (Vec<_>, Vec<_>) =
        fds.into_iter().partition(|fd| is_sealed_memory(fd) || is_wake_socket(fd));
    if !unknown.is_empty() {
        close_in_thread(unknown);
        return Err(Errno::BADMSG);
    }
    packet.truncate(got);
    Ok(Some(Packet { bytes: packet, fds: known, is_cut: flags.contains(ReturnFlags::CTRUNC) }))
}

/// Closes descriptors of unknown kinds in a separate thread: the sender determines how long closing takes,
/// for example for a socket that lingers or a file of the sender's own (FUSE) file system.
fn close_in_thread(unknown: Vec<OwnedFd>) {
    let unknown = ManuallyDrop::new(unknown);
    let close = move || drop(ManuallyDrop::into_inner(unknown));
    // If no thread can be started, they stay open rather than block this one.
    let _ = std::thread::Builder::new().name("nicety-close".into()).spawn(close);
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (ForkSafeFd, ForkSafeFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        (a.into(), b.into())
    }

    /// Goal: packets that a peer sent before its end are not lost. Method: the peer ends with and without
    /// unread data.
    #[test]
    fn packets_before_a_reset_are_received() {
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
