//! Memory that the peer's program writes directly.

use std::ffi::c_void;
use std::ptr::NonNull;

use rsocket::Stream;
use verbs::Buf;

use crate::answer::{Answer, Step};
use crate::errno::{Errno, errno, missing};
use crate::sockets::entry;
use crate::sockets::step::{Asleep, Waiting, step};

pub(crate) fn riomap(
    fd: i32,
    buf: *mut c_void,
    len: usize,
    prot: i32,
    _flags: i32,
    offset: i64,
) -> Answer<isize> {
    let entry = entry::lookup(fd)?;
    let stream = entry.socket.connection()?.ok_or(rsocket::Error::NotConnected)?;
    if prot & !libc::PROT_WRITE != 0 {
        return Err(errno!(INVAL, "prot is {prot:#x}; pass PROT_WRITE or PROT_NONE"));
    }
    let base = NonNull::new(buf.cast::<u8>()).ok_or_else(|| missing("buf"))?;
    if len == 0 || u32::try_from(len).is_err() {
        return Err(errno!(INVAL, "len is {len}; pass 1 to {} bytes", u32::MAX));
    }
    // SAFETY: the memory belongs to the program, and this library has no reference to it. Test: `riostream_writes_mapped_memory` in
    // tests/sockets.rs.
    let memory = unsafe { Buf::from_program(base, len) };
    let offset = if offset == -1 { base.addr().get() as i64 } else { offset };
    stream.map(&memory, offset as u64, prot & libc::PROT_WRITE != 0)?;
    Ok(offset as isize)
}

pub(crate) fn riounmap(fd: i32, buf: *mut c_void, len: usize) -> Answer {
    let entry = entry::lookup(fd)?;
    let stream = entry.socket.connection()?.ok_or(rsocket::Error::NotConnected)?;
    Ok(stream.unmap(buf.addr() as u64, len)?)
}

pub(crate) fn riowrite(
    fd: i32,
    buf: *mut c_void,
    count: usize,
    offset: i64,
    flags: i32,
) -> impl FnMut(Option<Errno>) -> Answer<Step> {
    let never = flags & libc::MSG_DONTWAIT != 0;
    let waiting = Waiting { is_ready: Stream::is_writable, nonblocking: Errno::AGAIN, never };
    let (mut asleep, mut done) = (Asleep::default(), 0);
    move |interrupt| {
        if buf.is_null() && count > 0 {
            return Err(missing("buf"));
        }
        let mut written = done;
        let result = step(fd, &mut asleep, interrupt, waiting, |entry| {
            let Some(stream) = entry.socket.connection()? else { return Ok(None) };
            while written < count {
                // SAFETY: the program passes `count` bytes that it may read, and does not change them during the call. Test: as above.
                let bytes = unsafe {
                    std::slice::from_raw_parts(buf.cast::<u8>().wrapping_add(written), count - written)
                };
                match stream.write_at(bytes, (offset as u64).wrapping_add(written as u64))? {
                    Some(more) => written += more,
                    None => return Ok(None),
                }
            }
            Ok(Some(written as isize))
        });
        done = written;
        match result {
            Err(_) if done > 0 => Ok(Step::Done(done as isize)),
            result => result,
        }
    }
}
