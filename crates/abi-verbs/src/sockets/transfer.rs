//! Data path: sending and receiving.

use ffi::{In, Out};
use rsocket::{Error, Stream};
use std::ffi::c_void;

use crate::answer::{Answer, Step};
use crate::errno::{Errno, errno, missing};
use crate::sockets::entry::{self, Entry, not_supported};
use crate::sockets::step::{Asleep, Waiting, step};

/// The most pieces of a call (IOV_MAX).
const PIECES_MAX: usize = 1024;

/// Flags of messages that have a meaning here, or that may be ignored.
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;
const RECV_FLAGS: i32 =
    libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// Memory of the program: one range, or a list of ranges. It has no destructor.
#[derive(Clone, Copy)]
enum Ranges {
    One(*mut c_void, usize),
    List(In<libc::iovec>, usize),
}

impl Ranges {
    /// The range that contains byte `at` of all, from that byte on; `None` at the end. Checked before: [`Ranges::len`].
    fn from(self, mut at: usize) -> Option<(*mut u8, usize)> {
        let (base, len) = match self {
            Self::One(base, len) => (base, len),
            Self::List(list, count) => {
                let range = list.items(count)?.find(|range| match at.checked_sub(range.iov_len) {
                    Some(rest) => {
                        at = rest;
                        false
                    }
                    None => true,
                })?;
                (range.iov_base, range.iov_len)
            }
        };
        (at < len).then(|| (base.cast::<u8>().wrapping_add(at), len - at))
    }

    /// The number of bytes of all.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for too many ranges or bytes, `EFAULT` for a range at NULL.
    fn len(self) -> Answer<usize> {
        let fault = |base: *mut c_void, len| {
            let missing = Errno(libc::EFAULT).because(format_args!("buf is NULL, but its length is {len}"));
            if base.is_null() && len > 0 { Err(missing) } else { Ok(len) }
        };
        let total = match self {
            Self::One(base, len) => Some(fault(base, len)?),
            Self::List(_, count) if count > PIECES_MAX => {
                return Err(errno!(INVAL, "iovcnt is {count}, but at most {PIECES_MAX} is possible"));
            }
            Self::List(list, count) => {
                let mut total = Some(0_usize);
                for range in list.items(count).ok_or_else(|| missing("iov"))? {
                    let len = fault(range.iov_base, range.iov_len)?;
                    total = total.and_then(|total| total.checked_add(len));
                }
                total
            }
        };
        let total = total.filter(|total| isize::try_from(*total).is_ok());
        total.ok_or_else(|| errno!(INVAL, "there are more bytes than a call can return"))
    }
}

/// The connection of a socket; `None` while it connects.
fn connection(entry: &Entry) -> Answer<Option<&Stream>> {
    Ok(entry.socket.connection()?)
}

/// The result of a call that has transferred `done` bytes when it ends with an error, if that is not for the next call.
fn after(done: usize, result: Answer<Step>) -> Answer<Step> {
    match result {
        Err(_) if done > 0 => Ok(Step::Done(done as isize)),
        result => result,
    }
}

fn send(fd: i32, ranges: Ranges, flags: i32) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let never = flags & libc::MSG_DONTWAIT != 0;
    let waiting = Waiting { is_ready: Stream::is_writable, nonblocking: Errno::AGAIN, never };
    let (mut asleep, mut done, mut total) = (Asleep::default(), 0, None);
    move |interrupt| {
        if flags & !SEND_FLAGS != 0 {
            return Err(not_supported("flags", flags, "pass MSG_DONTWAIT, or 0"));
        }
        let total = *total.get_or_insert(ranges.len()?);
        let mut sent = done;
        let result = step(fd, &mut asleep, interrupt, waiting, |entry| {
            let Some(stream) = connection(entry)? else { return Ok(None) };
            if total == 0 {
                return Ok(stream.send(&[])?.map(|_| 0));
            }
            while let Some((base, len)) = ranges.from(sent) {
                // SAFETY: the program passes memory that it may read, and does not change it during the call, as for send(2). Test:
                // `sockets_in_c_behave_as_those_of_tcp` in tests/sockets.rs.
                let bytes = unsafe { std::slice::from_raw_parts(base, len) };
                match stream.send(bytes)? {
                    Some(more) => sent += more,
                    None => return Ok(None),
                }
            }
            Ok(Some(sent as isize))
        });
        done = sent;
        after(done, result)
    }
}

fn recv(fd: i32, ranges: Ranges, flags: i32) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let (never, peek) = (flags & libc::MSG_DONTWAIT != 0, flags & libc::MSG_PEEK != 0);
    let wants_all = flags & libc::MSG_WAITALL != 0 && !peek;
    let waiting = Waiting { is_ready: Stream::is_readable, nonblocking: Errno::AGAIN, never };
    let (mut asleep, mut done) = (Asleep::default(), 0);
    move |interrupt| {
        if flags & !RECV_FLAGS != 0 {
            return Err(not_supported("flags", flags, "pass MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, or 0"));
        }
        ranges.len()?;
        let mut taken = done;
        let result = step(fd, &mut asleep, interrupt, waiting, |entry| {
            let Some(stream) = connection(entry)? else { return Ok(None) };
            while let Some((base, len)) = ranges.from(taken) {
                // SAFETY: the program passes memory that it may write, and does not use it during the call, as for recv(2). Test: as
                // above.
                let bytes = unsafe { std::slice::from_raw_parts_mut(base, len) };
                match stream.recv(bytes, peek) {
                    Ok(Some(0)) => return Ok(Some(taken as isize)),
                    Ok(Some(more)) => taken += more,
                    Ok(None) if taken > 0 && !wants_all => return Ok(Some(taken as isize)),
                    Ok(None) => return Ok(None),
                    // The next call reports it.
                    Err(Error::Reset) if taken > 0 => return Ok(Some(taken as isize)),
                    Err(why) => return Err(why.into()),
                }
                if peek {
                    break;
                }
            }
            Ok(Some(taken as isize))
        });
        done = taken;
        after(done, result)
    }
}

pub(crate) fn rsend(
    fd: i32,
    buf: *mut c_void,
    len: usize,
    flags: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    send(fd, Ranges::One(buf, len), flags)
}

pub(crate) fn rsendto(
    fd: i32,
    buf: *mut c_void,
    len: usize,
    flags: i32,
    dest_addr: *mut c_void,
    _addrlen: u32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let mut send = send(fd, Ranges::One(buf, len), flags);
    let has_address = !dest_addr.is_null();
    move |interrupt| {
        if has_address {
            return Err(Errno(libc::EISCONN).because(format_args!(
                "dest_addr is given, but a connected socket has one peer; pass NULL"
            )));
        }
        send(interrupt)
    }
}

pub(crate) fn rwrite(fd: i32, buf: *mut c_void, len: usize) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    send(fd, Ranges::One(buf, len), 0)
}

pub(crate) fn rwritev(
    fd: i32,
    iov: In<libc::iovec>,
    iovcnt: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    send(fd, list(iov, iovcnt), 0)
}

/// A list of ranges; a negative count becomes one beyond the limit.
fn list(iov: In<libc::iovec>, count: i32) -> Ranges {
    Ranges::List(iov, usize::try_from(count).unwrap_or(usize::MAX))
}

/// The ranges of a message.
fn ranges_of(header: &libc::msghdr) -> Ranges {
    // SAFETY: a message header of a program has the address of as many ranges as it says. Test: as above.
    let list = unsafe { In::new(header.msg_iov.cast_const()) };
    Ranges::List(list, header.msg_iovlen)
}

pub(crate) fn rsendmsg(
    fd: i32,
    msg: In<libc::msghdr>,
    flags: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let header = msg.get();
    let mut send = send(fd, header.as_ref().map_or(Ranges::One(std::ptr::null_mut(), 0), ranges_of), flags);
    let has_control = header.is_some_and(|header| !header.msg_control.is_null() && header.msg_controllen > 0);
    let is_missing = header.is_none();
    move |interrupt| {
        if is_missing {
            return Err(missing("msg"));
        }
        if has_control {
            return Err(errno!(OPNOTSUPP, "msg.msg_control is given; pass no control messages"));
        }
        send(interrupt)
    }
}

pub(crate) fn rrecv(
    fd: i32,
    buf: *mut c_void,
    len: usize,
    flags: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    recv(fd, Ranges::One(buf, len), flags)
}

pub(crate) fn rrecvfrom(
    fd: i32,
    buf: *mut c_void,
    len: usize,
    flags: i32,
    src_addr: Out<u8>,
    addrlen: Out<u32>,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let mut recv = recv(fd, Ranges::One(buf, len), flags);
    move |interrupt| {
        let step = recv(interrupt)?;
        if let Step::Done(1..) = step
            && src_addr.is_some()
            && let Some(entry) = entry::find(fd)
            && let Some(peer) = entry.socket.peer_addr()
        {
            entry.store_address(peer, src_addr, addrlen)?;
        }
        Ok(step)
    }
}

pub(crate) fn rread(fd: i32, buf: *mut c_void, len: usize) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    recv(fd, Ranges::One(buf, len), 0)
}

pub(crate) fn rreadv(
    fd: i32,
    iov: In<libc::iovec>,
    iovcnt: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    recv(fd, list(iov, iovcnt), 0)
}

pub(crate) fn rrecvmsg(
    fd: i32,
    msg: Out<libc::msghdr>,
    flags: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let header = msg.get();
    let ranges = header.as_ref().map_or(Ranges::One(std::ptr::null_mut(), 0), ranges_of);
    let mut recv = recv(fd, ranges, flags);
    let is_missing = header.is_none();
    move |interrupt| {
        if is_missing {
            return Err(missing("msg"));
        }
        let step = recv(interrupt)?;
        if let (Step::Done(_), Some(header)) = (&step, msg.get()) {
            msg.set(libc::msghdr { msg_namelen: 0, msg_controllen: 0, msg_flags: 0, ..header });
        }
        Ok(step)
    }
}
