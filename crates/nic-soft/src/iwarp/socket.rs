//! TCP sockets: how they are made, and what their errors mean.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_reuseaddr, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use verbs::{CmFailure, Error, Result};

/// A silent peer is asked after so long, every so often, and so many times before it is given up.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(2), 5);

/// A socket that neither blocks nor survives exec.
fn new_socket(ip: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn cannot_create(errno: Errno) -> Error {
    let hint = "cannot create a socket (if descriptors ran out, raise the limit with ulimit -n)";
    Error::system(hint, errno)
}

/// Options of every connection. A system that does not know one of them works without it, only worse.
pub(super) fn prepare(socket: &OwnedFd) {
    let _ = set_tcp_nodelay(socket, true);
    let (idle, interval, count) = KEEP_ALIVE;
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, idle);
    let _ = set_tcp_keepintvl(socket, interval);
    let _ = set_tcp_keepcnt(socket, count);
}

/// A listening socket, and its address with the port that was chosen.
pub(super) fn listen_at(addr: SocketAddr, backlog: u32) -> Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(addr.ip()).map_err(cannot_create)?;
    // Connections of an earlier listener that are still being closed do not hold the port.
    let _ = set_socket_reuseaddr(&socket, true);
    if addr.is_ipv6() {
        let _ = set_ipv6_v6only(&socket, true);
    }
    let refused = |why: String| Error::Address { addr, why };
    let listening = bind(&socket, &addr).and_then(|()| listen(&socket, backlog.clamp(16, 4096) as i32));
    listening.map_err(|errno| match errno {
        Errno::ADDRINUSE => refused("the port is taken; choose another, or 0 for any".into()),
        Errno::ADDRNOTAVAIL => {
            refused("this host has no such address; use one of its own, or 0.0.0.0".into())
        }
        Errno::ACCESS => refused("ports below 1024 need privileges; choose another, or 0 for any".into()),
        errno => refused(errno.to_string()),
    })?;
    let bound = getsockname(&socket).ok().and_then(|bound| SocketAddr::try_from(bound).ok());
    Ok((socket, bound.unwrap_or(addr)))
}

/// A socket that is connecting, from `local` if given.
pub(super) fn connect_to(addr: SocketAddr, local: Option<IpAddr>) -> Result<OwnedFd, CmFailure> {
    let unreachable = |errno: Errno| failure(addr, errno);
    let socket = new_socket(addr.ip()).map_err(unreachable)?;
    if let Some(local) = local {
        bind(&socket, &SocketAddr::new(local, 0)).map_err(|errno| {
            CmFailure::Unreachable(addr, format!("from this device's side, {local}: {errno}"))
        })?;
    }
    match rustix::net::connect(&socket, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => {
            prepare(&socket);
            Ok(socket)
        }
        Err(errno) => Err(unreachable(errno)),
    }
}

/// What an error of connecting says.
pub(super) fn failure(addr: SocketAddr, errno: Errno) -> CmFailure {
    match errno {
        Errno::CONNREFUSED => CmFailure::Refused(addr),
        Errno::TIMEDOUT => CmFailure::TimedOut,
        Errno::CONNRESET | Errno::PIPE => CmFailure::PeerGone,
        Errno::NETUNREACH => CmFailure::Unreachable(addr, "there is no route to that network".into()),
        Errno::HOSTUNREACH => CmFailure::Unreachable(addr, "the host does not answer on its network".into()),
        Errno::ADDRNOTAVAIL => {
            CmFailure::Unreachable(addr, "the address, or every port of this side, is not available".into())
        }
        Errno::MFILE | Errno::NFILE => {
            CmFailure::Unreachable(addr, "descriptors ran out; raise the limit with ulimit -n".into())
        }
        errno => CmFailure::Unreachable(addr, errno.to_string()),
    }
}
