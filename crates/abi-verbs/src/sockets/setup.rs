//! Sockets from their creation to their end.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ffi::{BadAddress, Out, SockAddr, lock};
use host::Span;
use rsocket::{Config, Phase, Socket};

use crate::answer::{Answer, Step};
use crate::errno::{Errno, errno, missing};
use crate::sockets::devices;
use crate::sockets::entry::{self, Entry, Options, not_supported};
use crate::sockets::step::{Asleep, Waiting, step};

/// How long rclose waits for the peer to have all that was sent, without `SO_LINGER`.
const CLOSE_LIMIT: Span = Span::from_secs(10);
/// How long the exit of a process waits for the peers of its open sockets.
const EXIT_LIMIT: Span = Span::from_secs(1);

/// The kind of a socket without its flags.
const KIND: i32 = !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);

pub(crate) fn rsocket(domain: i32, kind: i32, protocol: i32) -> Answer<isize> {
    if devices::is_routing() {
        // Under librspreload.so the system's socket is created then.
        return Err(Errno::AGAIN);
    }
    if domain != libc::AF_INET && domain != libc::AF_INET6 {
        // librspreload.so passes those of every socket of the process first.
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    if kind & KIND != libc::SOCK_STREAM {
        return Err(not_supported("type", kind & KIND, "pass SOCK_STREAM"));
    }
    if protocol != 0 && protocol != libc::IPPROTO_TCP {
        return Err(not_supported("protocol", protocol, "pass 0 or IPPROTO_TCP"));
    }
    register_exit();
    let socket = Arc::new(Socket::new(Config::default())?);
    let entry = Entry::new(socket, domain == libc::AF_INET6, kind & libc::SOCK_NONBLOCK, Options::default())?;
    if kind & libc::SOCK_CLOEXEC != 0 {
        entry.fd_flags.store(libc::FD_CLOEXEC, Ordering::Relaxed);
    }
    Ok(entry::insert(entry)? as isize)
}

/// The process whose sockets are ended when it exits.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Ends the sockets when the process exits, so that their peers read the end of the stream, as with TCP.
fn register_exit() {
    if OWNER.swap(std::process::id(), Ordering::AcqRel) == 0 {
        ffi::log::report_at_exit(close_all);
    }
}

fn close_all() -> Vec<String> {
    // A child of fork(2) leaves its parent's connections alone.
    if OWNER.load(Ordering::Acquire) == std::process::id() {
        let deadline = host::real::host().after(EXIT_LIMIT);
        let sockets = entry::all().into_iter().filter_map(|fd| entry::remove(fd).ok());
        sockets.for_each(|entry| entry.socket.close(deadline));
    }
    Vec::new()
}

/// An address of a program.
fn address(addr: SockAddr) -> Answer<SocketAddr> {
    addr.get().map_err(|wrong| match wrong {
        BadAddress::Missing => missing("addr"),
        BadAddress::Family(family) => {
            errno!(INVAL, "addr.sa_family is {family}; pass an address of AF_INET or AF_INET6")
        }
    })
}

pub(crate) fn rbind(fd: i32, addr: SockAddr, _addrlen: u32) -> Answer {
    let entry = entry::lookup(fd)?;
    let addr = address(addr)?;
    if !lock(&entry.ports).is_empty() || entry.socket.local_addr().is_some() {
        return Err(errno!(INVAL, "the socket is bound or connected already; bind a new one"));
    }
    devices::bind(&entry, addr)
}

pub(crate) fn rlisten(fd: i32, backlog: i32) -> Answer {
    let entry = entry::lookup(fd)?;
    if matches!(entry.socket.phase(), Phase::Listening { .. }) {
        return Ok(());
    }
    devices::listen(&entry, usize::try_from(backlog).unwrap_or(0))
}

pub(crate) fn raccept(
    fd: i32,
    addr: Out<u8>,
    addrlen: Out<u32>,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let waiting = Waiting { is_ready: |_| true, nonblocking: Errno::AGAIN, never: false };
    let mut asleep = Asleep::default();
    move |interrupt| {
        step(fd, &mut asleep, interrupt, waiting, |listener| {
            let Some(socket) = listener.socket.accept()? else { return Ok(None) };
            let flags = listener.flags.load(Ordering::Relaxed);
            let entry = Entry::new(socket, listener.is_v6, flags, *lock(&listener.options))?;
            entry.is_connect_reported.store(true, Ordering::Relaxed);
            if addr.is_some()
                && addrlen.is_some()
                && let Some(peer) = entry.socket.peer_addr()
            {
                entry.store_address(peer, addr, addrlen)?;
            }
            Ok(Some(entry::insert(entry)? as isize))
        })
    }
}

pub(crate) fn rconnect(fd: i32, addr: SockAddr, _addrlen: u32) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let waiting = Waiting { is_ready: |_| true, nonblocking: Errno(libc::EINPROGRESS), never: false };
    let (mut asleep, mut has_begun) = (Asleep::default(), false);
    move |interrupt| {
        if !has_begun {
            has_begun = true;
            if !begin(&*entry::lookup(fd)?, addr)? {
                return Ok(Step::Done(0));
            }
        }
        step(fd, &mut asleep, interrupt, waiting, |entry| {
            let result = entry.socket.connection();
            if result.is_err() {
                entry.is_error_reported.store(true, Ordering::Relaxed);
            }
            let Some(_) = result? else { return Ok(None) };
            entry.is_connect_reported.store(true, Ordering::Relaxed);
            Ok(Some(0))
        })
    }
}

/// Begins to connect; returns whether the result is still to come.
///
/// # Errors
/// `EISCONN`, `EALREADY`; as [`devices::connect`].
fn begin(entry: &Entry, addr: SockAddr) -> Answer<bool> {
    if entry.socket.stream().is_some() {
        // The first call after a connection was made in the background reports that, as that of TCP does.
        let was_known = entry.is_connect_reported.swap(true, Ordering::Relaxed);
        let why = "the socket is connected already; connect a new one";
        return if was_known { Err(Errno(libc::EISCONN).because(format_args!("{why}"))) } else { Ok(false) };
    }
    if entry.socket.phase() == Phase::Connecting {
        // A blocking call waits for the attempt that has begun.
        return if entry.is_nonblocking() { Err(Errno(libc::EALREADY)) } else { Ok(true) };
    }
    let mut peer = address(addr)?;
    if peer.ip().is_unspecified() {
        // TCP connects to this host then.
        let is_v6 = peer.is_ipv6();
        peer.set_ip(if is_v6 { Ipv6Addr::LOCALHOST.into() } else { std::net::Ipv4Addr::LOCALHOST.into() });
    }
    entry.is_error_reported.store(false, Ordering::Relaxed);
    devices::connect(entry, peer)?;
    Ok(true)
}

pub(crate) fn rshutdown(fd: i32, how: i32) -> Answer {
    let entry = entry::lookup(fd)?;
    let Some(stream) = entry.socket.stream() else {
        return Err(rsocket::Error::NotConnected.into());
    };
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Err(errno!(INVAL, "how is {how}; pass SHUT_RD, SHUT_WR or SHUT_RDWR"));
    }
    if how != libc::SHUT_RD {
        stream.shut_write()?;
    }
    if how != libc::SHUT_WR {
        stream.shut_read()?;
    }
    Ok(())
}

pub(crate) fn rclose(fd: i32) -> Answer {
    let entry = entry::remove(fd)?;
    let linger = lock(&entry.options).linger;
    let span = linger.map_or(CLOSE_LIMIT, |seconds| Span::from_secs(seconds.max(0).unsigned_abs().into()));
    // With a time of 0 the peer gets an error, as from TCP.
    if linger != Some(0) {
        entry.socket.close(host::real::host().after(span));
    }
    Ok(())
}

pub(crate) fn rgetpeername(fd: i32, addr: Out<u8>, addrlen: Out<u32>) -> Answer {
    let entry = entry::lookup(fd)?;
    let peer = entry.socket.peer_addr().filter(|_| entry.socket.stream().is_some());
    entry.store_address(peer.ok_or(rsocket::Error::NotConnected)?, addr, addrlen)
}

pub(crate) fn rgetsockname(fd: i32, addr: Out<u8>, addrlen: Out<u32>) -> Answer {
    let entry = entry::lookup(fd)?;
    let any: SocketAddr = ([0, 0, 0, 0], 0).into();
    entry.store_address(entry.socket.local_addr().unwrap_or(any), addr, addrlen)
}
