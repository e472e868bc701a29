//! The types of the standard ABI as they are passed: handles, statuses, addresses, integers of both widths.

use std::fmt;
use std::marker::PhantomData;

/// A handle of one kind of object.
#[repr(transparent)]
pub(crate) struct Handle<K>(usize, PhantomData<K>);

impl<K> Handle<K> {
    pub(crate) const fn new(value: usize) -> Self {
        Self(value, PhantomData)
    }

    pub(crate) const fn value(self) -> usize {
        self.0
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

/// Names for the kinds of objects, and the handle of each.
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

/// An address that a program passes, and that nobody looks at here: a buffer, a function, a word of the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) usize);

/// `MPI_Status`. Of the words behind the three public ones, the third says whether it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) source: i32,
    pub(crate) tag: i32,
    pub(crate) error: i32,
    internal: [i32; 5],
}

impl Status {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    pub(crate) fn set_cancelled(&mut self, is_cancelled: bool) {
        self.internal[2] = i32::from(is_cancelled);
    }
}
