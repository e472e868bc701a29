//! How a call answers: no panic leaves it, and an error is told in the way of that function.

use std::ffi::c_int;

use cface::contain;

use crate::errno::Errno;

/// What the bodies of calls return.
pub(crate) type Answer<T = ()> = Result<T, Errno>;

fn run<T>(body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    contain(body).unwrap_or(Err(Errno::IO))
}

/// Of a function that returns the error's number, or 0.
#[inline]
pub(crate) fn errno(body: impl FnOnce() -> Answer) -> c_int {
    match run(body) {
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
    run(body).map_or_else(
        |why| {
            why.leave();
            -1
        },
        |()| 0,
    )
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

impl<T: crate::slab::Object> Nothing for crate::slab::Handle<T> {
    const NOTHING: Self = Self::NULL;
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
