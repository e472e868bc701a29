//! The argument types of the standard ABI: handles, statuses, addresses, integers of both widths.

use std::fmt;
use std::marker::PhantomData;

use ffi::Out;

/// A handle of one kind of object: a predefined value below [`PREDEFINED`], or a value from the table of objects.
#[repr(transparent)]
pub(crate) struct Handle<K>(usize, PhantomData<K>);

/// The lower bound of a program's handles: predefined ones are in the first page, which no program maps.
pub(crate) const PREDEFINED: usize = 0x1000;

impl<K> Handle<K> {
    pub(crate) const fn new(value: usize) -> Self {
        Self(value, PhantomData)
    }

    /// The handle's value for the program.
    pub(crate) const fn value(self) -> usize {
        self.0
    }

    /// Whether it is a constant of the standard.
    pub(crate) const fn is_predefined(self) -> bool {
        self.0 < PREDEFINED
    }
}

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Names of the kinds of objects, and the handle type of each.
macro_rules! kinds {
    ($($name:ident),*) => {
        /// The kinds of objects, as names.
        pub(crate) mod kind {
            $(#[derive(Debug)] pub(crate) enum $name {})*
        }
        $(pub(crate) type $name = Handle<kind::$name>;)*
    };
}

kinds!(Comm, Datatype, Errhandler, File, Group, Info, Message, Op, Request, Session, Win);

/// An address that is passed through unread: a buffer, a function, or a program's own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) usize);

impl Address {
    /// The address of a result, for arguments of type `void *`.
    pub(crate) fn out<T>(self) -> Out<T> {
        // SAFETY: a program passes NULL or the address of a result of this type. Test: `attributes` of tests/c/single_process.c.
        unsafe { Out::new(std::ptr::with_exposed_provenance_mut(self.0)) }
    }
}

/// `MPI_Status`. The words after the three public ones hold the bytes received, low half first, and whether it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) source: i32,
    pub(crate) tag: i32,
    pub(crate) error: i32,
    internal: [i32; 5],
}

impl Status {
    #[inline]
    pub(crate) fn new(source: i32, tag: i32, error: i32, bytes: u64, is_cancelled: bool) -> Self {
        let internal = [bytes as u32 as i32, (bytes >> 32) as i32, i32::from(is_cancelled), 0, 0];
        Self { source, tag, error, internal }
    }

    /// The number of received bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.internal[0] as u32) | u64::from(self.internal[1] as u32) << 32
    }

    /// The status of an operation with this error; calls for one operation keep the old error instead.
    #[inline]
    pub(crate) fn of(status: &mpi::Status, error: i32) -> Self {
        Self::new(status.source, status.tag, error, status.bytes, status.cancelled)
    }

    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.internal[0] = bytes as u32 as i32;
        self.internal[1] = (bytes >> 32) as i32;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    pub(crate) fn set_cancelled(&mut self, is_cancelled: bool) {
        self.internal[2] = i32::from(is_cancelled);
    }
}

/// An integer of a call that has two forms: `int`, and `MPI_Count` for large counts.
pub(crate) trait Number: Copy {
    /// Whether this is the large-count form.
    const IS_LARGE: bool;
    fn to_i64(self) -> i64;
    /// A result in this form; `None` if it does not fit.
    fn from_i64(value: i64) -> Option<Self>;
}

impl Number for i32 {
    const IS_LARGE: bool = false;

    fn to_i64(self) -> i64 {
        self.into()
    }

    fn from_i64(value: i64) -> Option<Self> {
        value.try_into().ok()
    }
}

impl Number for i64 {
    const IS_LARGE: bool = true;

    fn to_i64(self) -> i64 {
        self
    }

    fn from_i64(value: i64) -> Option<Self> {
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_holds_large_counts() {
        let mut status = Status::new(3, 4, 0, (7 << 32) | 0xffff_fffe, false);
        assert_eq!((status.bytes(), status.is_cancelled()), ((7 << 32) | 0xffff_fffe, false));
        status.set_bytes(5);
        status.set_cancelled(true);
        assert_eq!((status.source, status.tag, status.bytes(), status.is_cancelled()), (3, 4, 5, true));
        assert_eq!((size_of::<Status>(), align_of::<Status>()), (32, 4));
    }
}
