//! TCP sockets: how they are created, and the meaning of their errors.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use host::Span;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_reuseaddr, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{RecvFlags, SendFlags, bind, connect_unspec, getpeername, getsockname, listen, recv};
use verbs::{CmFailure, Error, Result};

use crate::config::IwarpConfig;
use nic_util::fork::ForkSafeFd;

/// The keep-alive parameters: idle time before the first probe, interval, and number of probes. They give a peer up
/// after `silence`. The kernel counts whole seconds.
fn keep_alive(silence: Span) -> (Duration, Duration, u32) {
    let whole = silence.to_std().as_secs().max(2);
    let (idle, interval) = (whole / 2, (whole / 10).max(1));
    let count = (whole - idle).div_ceil(interval);
    (Duration::from_secs(idle), Duration::from_secs(interval), count as u32)
}

/// Minimum number of connections that the kernel queues for a listener until the NIC thread accepts them: room for a
/// burst.
const KERNEL_BACKLOG: u32 = 128;

/// A socket that is non-blocking and closed on exec. It is created by the system call itself: a preloaded library that turns every
/// socket(2) into an rsocket, as librspreload.so does, must not turn those into rsockets that carry them.
fn new_socket(ip: IpAddr) -> Result<ForkSafeFd, Errno> {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a system call that only takes numbers. Test: `self_connected_port_is_free_after_dissolving`.
    let made = unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) };
    let fd = RawFd::try_from(made).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(|| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))?;
    // SAFETY: a new descriptor, which has no other owner. Test: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

fn cannot_create(errno: Errno) -> Error {
    let hint = "cannot create a socket (if descriptors ran out, raise the limit with ulimit -n)";
    Error::system(hint, errno)
}

/// Sets the options of every connection. If the system lacks an option, the connection still works, only worse.
pub(crate) fn set_options(socket: &ForkSafeFd, config: &IwarpConfig) {
    let _ = set_tcp_nodelay(socket, true);
    let (idle, interval, count) = keep_alive(config.silence);
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, idle);
    let _ = set_tcp_keepintvl(socket, interval);
    let _ = set_tcp_keepcnt(socket, count);
}

/// Why an address cannot be used.
fn bind_error(addr: SocketAddr, errno: Errno) -> Error {
    let why = match errno {
        Errno::ADDRINUSE => "the port is taken; choose another, or 0 for any".into(),
        Errno::ADDRNOTAVAIL => "this host has no such address; use one of its own, or 0.0.0.0".into(),
        Errno::ACCESS => "ports below 1024 need privileges; choose another, or 0 for any".into(),
        errno => errno.to_string(),
    };
    Error::Address { addr, why }
}

/// A socket for the family of this address only.
fn socket_for(addr: SocketAddr) -> Result<ForkSafeFd> {
    let socket = new_socket(addr.ip()).map_err(cannot_create)?;
    if addr.is_ipv6() {
        let _ = set_ipv6_v6only(&socket, true);
    }
    Ok(socket)
}

/// Makes a bound socket listen.
pub(crate) fn listen_on(socket: &ForkSafeFd, backlog: u32) -> Result<(), Errno> {
    // Its connections that are still closing must not block the port.
    let _ = set_socket_reuseaddr(socket, true);
    listen(socket, backlog.clamp(KERNEL_BACKLOG, 4096) as i32)
}

/// Makes a socket stop listening. It stays bound, and its port stays reserved.
pub(crate) fn stop_listening(socket: &ForkSafeFd) {
    // Neither call fails on a listening socket.
    let _ = set_socket_reuseaddr(socket, false);
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Marks the port of an ended connection as reusable: while the connection closes, a listener may bind the port.
pub(crate) fn make_port_reusable(socket: &ForkSafeFd) {
    // If this fails, the port is only unavailable for a minute.
    let _ = set_socket_reuseaddr(socket, true);
}

/// A listening socket, and its address with the port that the system chose.
pub(crate) fn listen_at(addr: SocketAddr, backlog: u32) -> Result<(ForkSafeFd, SocketAddr)> {
    let socket = socket_for(addr)?;
    // Connections of an earlier listener that are still closing must not block the port.
    let _ = set_socket_reuseaddr(&socket, true);
    let listening = bind(&socket, &addr).and_then(|()| listen_on(&socket, backlog));
    listening.map_err(|errno| bind_error(addr, errno))?;
    let addr = bound_addr(&socket, addr);
    Ok((socket, addr))
}

/// The actual address of a socket that was bound to this one.
fn bound_addr(socket: &ForkSafeFd, addr: SocketAddr) -> SocketAddr {
    getsockname(socket).ok().and_then(|bound| SocketAddr::try_from(bound).ok()).unwrap_or(addr)
}

/// How often to try to reserve a port that the system chose.
const TRIES: usize = 16;

/// A socket that is bound and not listening, with its address: no other socket, of any process, gets the port.
///
/// The system reuses a port that it chose itself as soon as a connection attempt from it fails or its listener ends.
/// So such a port is bound again by its number.
pub(crate) fn bind_at(addr: SocketAddr) -> Result<(ForkSafeFd, SocketAddr)> {
    if addr.port() != 0 {
        return bind_exactly(addr).map(|socket| (socket, addr)).map_err(|errno| bind_error(addr, errno));
    }
    let mut last = Errno::ADDRINUSE;
    for _ in 0..TRIES {
        let chosen = socket_for(addr)?;
        bind(&chosen, &addr).map_err(|errno| bind_error(addr, errno))?;
        let addr = bound_addr(&chosen, addr);
        drop(chosen);
        match bind_exactly(addr) {
            Ok(socket) => return Ok((socket, addr)),
            Err(errno) => last = errno,
        }
    }
    Err(bind_error(addr, last))
}

fn bind_exactly(addr: SocketAddr) -> Result<ForkSafeFd, Errno> {
    let socket = socket_for(addr).map_err(|_| Errno::MFILE)?;
    match bind(&socket, &addr) {
        Ok(()) => return Ok(socket),
        Err(Errno::ADDRINUSE) => {}
        Err(errno) => return Err(errno),
    }
    // Perhaps only closing connections use it. Listening proves that no other socket has it, because two sockets
    // cannot both listen.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &addr)?;
    listen(&socket, 1)?;
    stop_listening(&socket);
    Ok(socket)
}

/// Checks that this host has the address, by the only reliable test: binding a socket to it.
pub(crate) fn check_local_addr(ip: IpAddr) -> Result<()> {
    let addr = SocketAddr::new(ip, 0);
    let socket = new_socket(ip).map_err(cannot_create)?;
    bind(&socket, &addr).map_err(|errno| Error::Address {
        addr,
        why: match errno {
            Errno::ADDRNOTAVAIL => "this host has no such address; `ip address` lists its addresses".into(),
            errno => errno.to_string(),
        },
    })
}

/// Whether the peer has closed the connection, as far as known, and all its data has been read.
pub(crate) fn has_closed(socket: &ForkSafeFd) -> bool {
    match recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, n)) => n == 0,
        Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

/// Detects a socket that is connected to itself, which happens if TCP chooses the destination port, on which nobody
/// listens, as the local port. The connection is then dissolved so that the port is free immediately: a normal close
/// would block it for a minute for listeners.
pub(crate) fn dissolve_self_connection(socket: &ForkSafeFd) -> bool {
    let is_itself =
        matches!((getsockname(socket), getpeername(socket)), (Ok(near), Ok(Some(far))) if near == far);
    if is_itself {
        // If this fails, the port is only unavailable for that minute.
        let _ = connect_unspec(socket);
    }
    is_itself
}

/// Starts to connect from `bound`, or else from the device's address if it has one.
pub(crate) fn connect_to(
    addr: SocketAddr,
    bound: Option<ForkSafeFd>,
    config: &IwarpConfig,
) -> Result<ForkSafeFd, CmFailure> {
    let unreachable = |errno: Errno| connect_failure(addr, errno);
    let is_bound = bound.is_some();
    let socket = bound.map_or_else(|| new_socket(addr.ip()), Ok).map_err(unreachable)?;
    if let Some(local) = config.bind.filter(|_| !is_bound) {
        bind(&socket, &SocketAddr::new(local, 0)).map_err(|errno| {
            CmFailure::Unreachable(addr, format!("from this device's address {local}: {errno}"))
        })?;
    }
    match rustix::net::connect(&socket, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => {
            set_options(&socket, config);
            Ok(socket)
        }
        Err(errno) => Err(unreachable(errno)),
    }
}

/// The connection failure that corresponds to an error.
pub(crate) fn connect_failure(addr: SocketAddr, errno: Errno) -> CmFailure {
    match errno {
        Errno::CONNREFUSED => CmFailure::Refused(addr),
        Errno::TIMEDOUT => CmFailure::TimedOut,
        Errno::CONNRESET | Errno::PIPE => CmFailure::PeerGone,
        Errno::NETUNREACH => CmFailure::Unreachable(addr, "there is no route to that network".into()),
        Errno::HOSTUNREACH => CmFailure::Unreachable(addr, "the host does not answer on its network".into()),
        Errno::ADDRNOTAVAIL => {
            CmFailure::Unreachable(addr, "the address is not available, or all local ports are in use".into())
        }
        Errno::MFILE | Errno::NFILE => {
            CmFailure::Unreachable(addr, "descriptors ran out; raise the limit with ulimit -n".into())
        }
        errno => CmFailure::Unreachable(addr, errno.to_string()),
    }
}

/// Sends as much as the socket accepts; a frame always fits.
pub(crate) fn send_now(socket: &ForkSafeFd, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Receives available bytes; `None` if there are none, 0 at the end of the stream.
pub(crate) fn recv_available(socket: &ForkSafeFd, bytes: &mut [u8]) -> Result<Option<usize>, Errno> {
    match rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT) {
        Ok((_, n)) => Ok(Some(n)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Goal: a connection attempt to a vanished listener that is connected to itself does not block the port for the
    /// next listener. Method: creates this case by hand, while the socket is still open.
    #[test]
    fn self_connected_port_is_free_after_dissolving() {
        let socket = new_socket(Ipv4Addr::LOCALHOST.into()).expect("a socket");
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let port = getsockname(&socket).expect("an address");
        let addr = SocketAddr::try_from(port).expect("an internet address");
        assert!(!dissolve_self_connection(&socket), "it is not connected yet");
        let begun = rustix::net::connect(&socket, &addr);
        assert!(matches!(begun, Ok(()) | Err(Errno::INPROGRESS)), "{begun:?}");
        assert!(dissolve_self_connection(&socket));
        let (_listener, at) = listen_at(addr, 1).expect("the port");
        assert_eq!(at, addr);
    }
}
