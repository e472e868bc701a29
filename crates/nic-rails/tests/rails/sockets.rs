//! Breaks TCP connections of this process from outside of the code that uses them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::Shutdown;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// How to break a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Break {
    /// Data in flight is lost, and both ends notice immediately.
    Reset,
    /// One end stops sending and receiving; data already sent arrives.
    Shut,
}

/// Duplicates of all descriptors of this process.
fn all() -> impl Iterator<Item = OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    std::fs::read_dir("/proc/self/fd").expect("descriptors").filter_map(move |entry| {
        let number = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
        pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()
    })
}

/// The addresses on which this process listens.
pub(crate) fn listening() -> Vec<SocketAddr> {
    let listens = |fd: &OwnedFd| rustix::net::sockopt::socket_acceptconn(fd).unwrap_or(false);
    let address = |fd: OwnedFd| SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok();
    all().filter(listens).filter_map(address).collect()
}

/// Duplicates of the connected sockets of this process at an address.
fn connected(ip: IpAddr) -> Vec<OwnedFd> {
    let at = |fd: &OwnedFd| {
        let own = rustix::net::getsockname(fd.as_fd()).ok()?;
        rustix::net::getpeername(fd.as_fd()).ok()?;
        SocketAddr::try_from(own).ok().filter(|own| own.ip() == ip)
    };
    all().filter(|fd| at(fd).is_some()).collect()
}

/// Breaks connections at an address: the ends whose index `which` selects. Returns how many.
pub(crate) fn break_all(ip: IpAddr, how: Break, which: impl Fn(usize) -> bool) -> usize {
    let ends: Vec<OwnedFd> =
        connected(ip).into_iter().enumerate().filter(|(at, _)| which(*at)).map(|(_, fd)| fd).collect();
    for end in &ends {
        match how {
            // An end that the other has closed already counts as well.
            Break::Reset => drop(rustix::net::connect_unspec(end)),
            Break::Shut => drop(rustix::net::shutdown(end, Shutdown::Both)),
        }
    }
    ends.len()
}
