//! How a call answers: no panic leaves it, and an error is told in the way of that function.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use ffi::contain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::errno::Errno;

/// What the bodies of calls return.
pub(crate) type Answer<T = ()> = Result<T, Errno>;

fn run<T>(body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let _uncancelled = Uncancelled::begin();
    contain(body).unwrap_or(Err(Errno::IO))
}

unsafe extern "C" {
    /// See pthread_setcancelstate(3), which the crate `libc` does not have for Linux.
    safe fn pthread_setcancelstate(state: c_int, former: Option<&mut c_int>) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While this exists, the thread cannot be cancelled. A cancellation unwinds the stack by force, and glibc ends the process when the
/// unwinding meets the firewall. System calls in the body would start a cancellation. It happens later, where the program waits.
struct Uncancelled {
    former: c_int,
}

impl Uncancelled {
    fn begin() -> Self {
        let mut former = 0;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, Some(&mut former));
        Self { former }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.former, None);
    }
}

/// Of a function that posts requests, as [`errno`]. It leaves cancellation enabled: to disable and restore it takes 7 ns (glibc 2.36).
#[inline]
pub(crate) fn posts(body: impl FnOnce() -> Answer) -> c_int {
    left(contain(body).unwrap_or(Err(Errno::IO)))
}

/// Of a function that returns the error's number, or 0.
#[inline]
pub(crate) fn errno(body: impl FnOnce() -> Answer) -> c_int {
    left(run(body))
}

#[inline]
fn left(answer: Answer) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(why) => {
            // Some programs look there even so.
            why.leave();
            why.0
        }
    }
}

/// Of a function that returns -1 and leaves the error's number, or returns 0.
pub(crate) fn minus(body: impl FnOnce() -> Answer) -> c_int {
    run(body).map_or_else(refuse, |()| 0)
}

fn refuse(why: Errno) -> c_int {
    why.leave();
    -1
}

/// Of a function that waits, and answers as [`minus`]: it looks, and what it returns says what to wait for until it looks again. The
/// wait is outside of the firewall and of every frame that has something to drop: a thread that is cancelled there
/// (pthread_cancel(3)) unwinds through nothing of ours. A signal ends it.
pub(crate) fn waits(mut look: impl FnMut() -> Answer<Option<RawFd>>) -> c_int {
    loop {
        match run(&mut look) {
            Ok(None) => return 0,
            Ok(Some(fd)) => {
                if let Err(why) = await_readable(fd) {
                    return refuse(why);
                }
            }
            Err(why) => return refuse(why),
        }
    }
}

/// Of a function that begins something, and then waits as [`waits`] for what it says.
pub(crate) fn completes<T: Copy>(
    begin: impl FnOnce() -> Answer<Option<T>>,
    look: impl Fn(T) -> Answer<Option<RawFd>>,
) -> c_int {
    match run(begin) {
        Ok(None) => 0,
        Ok(Some(begun)) => waits(|| look(begun)),
        Err(why) => refuse(why),
    }
}

/// What [`waits`] is told of a descriptor that is the program's.
///
/// # Errors
/// [`Errno::AGAIN`] if the program has said that it does not block.
pub(crate) fn until(fd: &OwnedFd) -> Answer<Option<RawFd>> {
    let is_patient = !fcntl_getfl(fd)?.contains(OFlags::NONBLOCK);
    if is_patient { Ok(Some(fd.as_raw_fd())) } else { Err(Errno::AGAIN) }
}

fn await_readable(fd: RawFd) -> Answer {
    // SAFETY: the descriptor of an object that the program is inside a call with; if it ends that object even so, poll(2) says that
    // there is no such descriptor. Test: `both_ends_of_connections_in_c_meet` in tests/programs.rs.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    Ok(())
}

/// What stands for no pointer.
pub(crate) trait Nothing {
    const NOTHING: Self;
}

impl<T> Nothing for *mut T {
    const NOTHING: Self = std::ptr::null_mut();
}

impl<T> Nothing for *const T {
    const NOTHING: Self = std::ptr::null();
}

/// Of a function that returns NULL and leaves the error's number, or returns a pointer.
pub(crate) fn pointer<T: Nothing>(body: impl FnOnce() -> Answer<T>) -> T {
    run(body).unwrap_or_else(|why| {
        why.leave();
        T::NOTHING
    })
}

/// Of a function that returns a value, which says by itself what was wrong.
pub(crate) fn value<T: Default>(body: impl FnOnce() -> T) -> T {
    contain(body).unwrap_or_default()
}

/// Of a function that returns nothing.
pub(crate) fn void(body: impl FnOnce() -> Answer) {
    if let Err(why) = run(body) {
        why.leave();
    }
}
