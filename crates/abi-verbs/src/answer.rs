//! Return conventions of C calls: panics are contained, and each function returns errors in its own way. The reason of each error goes
//! to the log of failed calls (`ffi::log`).

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use ffi::catch_panic;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::errno::Errno;

/// The result of a call's body.
pub(crate) type Answer<T = ()> = Result<T, Errno>;

fn run<T>(body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let _uncancelled = Uncancelled::begin();
    catch_panic(body).unwrap_or(Err(Errno::IO))
}

unsafe extern "C" {
    /// See pthread_setcancelstate(3), which the crate `libc` does not have for Linux.
    safe fn pthread_setcancelstate(state: c_int, former: Option<&mut c_int>) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While this exists, the thread cannot be cancelled. A cancellation unwinds the stack by force, and glibc aborts the process when the
/// unwinding reaches the panic firewall. System calls in the body would be cancellation points. A pending cancellation happens later,
/// where the program waits.
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

/// For a function that posts requests; returns as [`errno`]. Cancellation stays enabled: disabling and restoring it takes 7 ns (glibc
/// 2.36).
#[inline]
pub(crate) fn posts(call: &str, body: impl FnOnce() -> Answer) -> c_int {
    zero_or_errno(call, catch_panic(body).unwrap_or(Err(Errno::IO)))
}

/// For a function that returns the error number, or 0.
#[inline]
pub(crate) fn errno(call: &str, body: impl FnOnce() -> Answer) -> c_int {
    zero_or_errno(call, run(body))
}

/// Returns 0 or the error number, and stores the latter in errno, too.
#[inline]
fn zero_or_errno(call: &str, answer: Answer) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(why) => {
            // Some programs read errno although the function returns the number.
            refuse(call, why);
            why.0
        }
    }
}

/// For a function that returns -1 and sets errno, or returns 0.
pub(crate) fn minus(call: &str, body: impl FnOnce() -> Answer) -> c_int {
    run(body).map_or_else(|why| refuse(call, why), |()| 0)
}

/// The end of a call that fails: reports the reason, and stores the number in errno(3).
#[cold]
fn refuse(call: &str, why: Errno) -> c_int {
    why.report(call);
    why.store();
    -1
}

/// For a function that waits; returns as [`minus`]. `look` polls: it returns `None` when the call has finished, or the descriptor to
/// wait for before the next poll. The wait is outside of the panic firewall and of every frame with destructors: a thread that is
/// cancelled there (pthread_cancel(3)) unwinds through none of our frames. A signal ends the wait.
pub(crate) fn waits(call: &str, mut look: impl FnMut() -> Answer<Option<RawFd>>) -> c_int {
    loop {
        match run(&mut look) {
            Ok(None) => return 0,
            Ok(Some(fd)) => {
                if let Err(why) = await_readable(fd) {
                    return refuse(call, why);
                }
            }
            Err(why) => return refuse(call, why),
        }
    }
}

/// For a function that starts an operation and then waits for its result as [`waits`].
pub(crate) fn completes<T: Copy>(
    call: &str,
    begin: impl FnOnce() -> Answer<Option<T>>,
    look: impl Fn(T) -> Answer<Option<RawFd>>,
) -> c_int {
    match run(begin) {
        Ok(None) => 0,
        Ok(Some(begun)) => waits(call, || look(begun)),
        Err(why) => refuse(call, why),
    }
}

/// Has [`waits`] wait for a descriptor that the program owns.
///
/// # Errors
/// [`Errno::AGAIN`] if the program has set the descriptor to nonblocking.
pub(crate) fn fd_to_wait_for(fd: &OwnedFd) -> Answer<Option<RawFd>> {
    let is_patient = !fcntl_getfl(fd)?.contains(OFlags::NONBLOCK);
    if is_patient { Ok(Some(fd.as_raw_fd())) } else { Err(Errno::AGAIN) }
}

/// What a call that transfers something has to do next.
pub(crate) enum Step {
    /// Return this.
    Done(isize),
    /// Sleep until a descriptor of these is readable; -1 is no descriptor.
    Sleep([RawFd; 2]),
}

/// For a function that may wait several times, and then returns a number; or -1, with errno(3) set. `look` polls, as that of [`waits`].
/// It is passed the error that has ended its sleep, and has no destructor.
pub(crate) fn steps(call: &str, mut look: impl FnMut(Option<Errno>) -> Answer<Step>) -> isize {
    let mut interrupt = None;
    loop {
        match run(|| look(interrupt)) {
            Ok(Step::Done(value)) => return value,
            Ok(Step::Sleep(fds)) => interrupt = sleep(fds).err(),
            Err(why) => return refuse(call, why) as isize,
        }
    }
}

/// Sleeps until a descriptor is readable; negative ones are ignored.
fn sleep(fds: [RawFd; 2]) -> Answer {
    let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two entries of the array. Test: `sockets_in_c_behave_as_those_of_tcp` in tests/sockets.rs.
    match unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) } {
        -1 => Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
        _ => Ok(()),
    }
}

/// For a function that returns a number; or -1, with errno(3) set.
pub(crate) fn number(call: &str, body: impl FnOnce() -> Answer<isize>) -> isize {
    run(body).unwrap_or_else(|why| refuse(call, why) as isize)
}

fn await_readable(fd: RawFd) -> Answer {
    // SAFETY: the descriptor belongs to an object in use by this call; if the program destroys that object anyway, poll(2) reports an
    // invalid descriptor. Test: `both_ends_of_connections_in_c_meet` in tests/programs.rs.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    Ok(())
}

/// The null value of a pointer type.
pub(crate) trait NullValue {
    const NULL_VALUE: Self;
}

impl<T> NullValue for *mut T {
    const NULL_VALUE: Self = std::ptr::null_mut();
}

impl<T> NullValue for *const T {
    const NULL_VALUE: Self = std::ptr::null();
}

/// For a function that returns a pointer, or NULL with errno set.
pub(crate) fn pointer<T: NullValue>(call: &str, body: impl FnOnce() -> Answer<T>) -> T {
    run(body).unwrap_or_else(|why| {
        refuse(call, why);
        T::NULL_VALUE
    })
}

/// For a function whose return value itself encodes an error.
pub(crate) fn value<T: Default>(body: impl FnOnce() -> T) -> T {
    catch_panic(body).unwrap_or_default()
}

/// For a function that returns nothing.
pub(crate) fn void(call: &str, body: impl FnOnce() -> Answer) {
    if let Err(why) = run(body) {
        refuse(call, why);
    }
}
