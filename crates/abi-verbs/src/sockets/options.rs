//! Options and flags of sockets. Options of TCP that have no counterpart here are accepted if ignoring them changes no result.

use std::sync::atomic::Ordering;

use ffi::{In, Out, lock};
use rsocket::{Error, Phase};

use crate::answer::Answer;
use crate::errno::{Errno, errno, missing};
use crate::sockets::entry::{self, Entry, Options, not_supported};

/// The level of options of RDMA, and its options (`rdma/rsocket.h`).
const SOL_RDMA: i32 = 0x10000;
const RDMA_SQSIZE: i32 = 0;
const RDMA_RQSIZE: i32 = 1;
const RDMA_INLINE: i32 = 2;
const RDMA_IOMAPSIZE: i32 = 3;

/// A segment, as programs ask for it: what rdma-core says without a path.
const SEGMENT: i32 = 2048;

/// `struct tcp_info` without the state, which is its first byte.
const TCP_INFO_BYTES: usize = 104;
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;

/// The place of an option that is only stored.
fn stored(options: &mut Options, level: i32, name: i32) -> Option<&mut i32> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => &mut options.reuse_addr,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => &mut options.keep_alive,
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => &mut options.oob_inline,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => &mut options.no_delay,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => &mut options.keep_idle,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => &mut options.v6_only,
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => &mut options.tos,
        _ => return None,
    })
}

pub(crate) fn rsetsockopt(fd: i32, level: i32, name: i32, value: In<i32>, len: u32) -> Answer {
    let entry = entry::lookup(fd)?;
    if (len as usize) < size_of::<i32>() {
        return Err(errno!(INVAL, "optlen is {len}; options here have at least 4 bytes"));
    }
    let first = value.required_or(|| missing("optval"))?;
    if let Some(place) = stored(&mut lock(&entry.options), level, name) {
        *place = first;
        return Ok(());
    }
    // As Linux does, room for bookkeeping is added to what the program asks for.
    let doubled = || first.clamp(0, i32::MAX / 2).unsigned_abs() * 2;
    let size = || u16::try_from(first.max(0)).unwrap_or(u16::MAX);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            entry.socket.configure(|config| config.send_buffer = doubled())
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
            entry.socket.configure(|config| config.recv_buffer = doubled())
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) if len as usize >= size_of::<libc::linger>() => {
            let seconds = value.items(2).and_then(|mut both| both.nth(1)).unwrap_or_default();
            lock(&entry.options).linger = (first != 0).then_some(seconds);
        }
        (libc::SOL_SOCKET, libc::SO_BROADCAST | libc::SO_PRIORITY) => {}
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_CORK | libc::TCP_QUICKACK) => {}
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_USER_TIMEOUT) => {}
        (SOL_RDMA, RDMA_SQSIZE) => entry.socket.configure(|config| config.send_queue = size()),
        (SOL_RDMA, RDMA_RQSIZE) => entry.socket.configure(|config| config.recv_queue = size()),
        (SOL_RDMA, RDMA_INLINE) => entry.socket.configure(|config| config.inline = size()),
        (SOL_RDMA, RDMA_IOMAPSIZE) => entry.socket.configure(|config| config.iomap_size = size()),
        _ => return Err(unknown(level, name)),
    }
    Ok(())
}

#[cold]
fn unknown(level: i32, name: i32) -> Errno {
    not_supported("optname", name, &format!("level {level} lacks it; rsocket(7) names the options"))
}

pub(crate) fn rgetsockopt(fd: i32, level: i32, name: i32, value: Out<u8>, len: Out<u32>) -> Answer {
    let entry = entry::lookup(fd)?;
    let config = entry.socket.config();
    let number = if let Some(stored) = stored(&mut lock(&entry.options), level, name) {
        *stored
    } else {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => pending_error(&entry),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                matches!(entry.socket.phase(), Phase::Listening { .. }).into()
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => config.send_buffer as i32,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => config.recv_buffer as i32,
            (libc::SOL_SOCKET, libc::SO_BROADCAST | libc::SO_PRIORITY) => 0,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger = lock(&entry.options).linger;
                let both = [linger.is_some().into(), linger.unwrap_or_default()].map(i32::to_ne_bytes);
                return store(value, len, both.as_flattened());
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => SEGMENT,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_CORK) => 0,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return store(value, len, b"rdma\0"),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let mut bytes = [0; TCP_INFO_BYTES];
                let is_open = entry.socket.stream().is_some_and(|stream| !stream.is_ended());
                bytes[0] = if is_open { TCP_ESTABLISHED } else { TCP_CLOSE };
                return store(value, len, &bytes);
            }
            (SOL_RDMA, RDMA_SQSIZE) => config.send_queue.into(),
            (SOL_RDMA, RDMA_RQSIZE) => config.recv_queue.into(),
            (SOL_RDMA, RDMA_INLINE) => config.inline.into(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => config.iomap_size.into(),
            _ => return Err(unknown(level, name)),
        }
    };
    store(value, len, &number.to_ne_bytes())
}

/// The error of a socket, as a number, unless it was reported to the program before; it counts as reported from now on.
fn pending_error(entry: &Entry) -> i32 {
    let error = match entry.socket.stream() {
        Some(stream) if stream.is_broken() => Error::Reset,
        Some(_) => return 0,
        None if entry.socket.phase() == Phase::Failed => match entry.socket.connection() {
            Err(why) => why,
            Ok(_) => return 0,
        },
        None => return 0,
    };
    let was_reported = entry.is_error_reported.swap(true, Ordering::Relaxed);
    if was_reported { 0 } else { Errno::from(error).0 }
}

/// Stores as much of an option as the program has room for, and that number.
fn store(value: Out<u8>, len: Out<u32>, bytes: &[u8]) -> Answer {
    let room = len.get().ok_or_else(|| missing("optlen"))? as usize;
    let fits = bytes.len().min(room);
    bytes[..fits].iter().enumerate().for_each(|(at, byte)| value.element(at).set(*byte));
    len.set(fits as u32);
    Ok(())
}

pub(crate) fn rfcntl(fd: i32, cmd: i32, arg: isize) -> Answer<isize> {
    let entry = entry::lookup(fd)?;
    match cmd {
        libc::F_GETFL => Ok((libc::O_RDWR | entry.flags.load(Ordering::Relaxed)) as isize),
        libc::F_SETFL => {
            entry.flags.store(arg as i32 & !libc::O_ACCMODE, Ordering::Relaxed);
            Ok(0)
        }
        libc::F_GETFD => Ok(entry.fd_flags.load(Ordering::Relaxed) as isize),
        libc::F_SETFD => {
            entry.fd_flags.store(arg as i32, Ordering::Relaxed);
            Ok(0)
        }
        cmd => Err(not_supported("cmd", cmd, "pass F_GETFL, F_SETFL, F_GETFD or F_SETFD")),
    }
}
