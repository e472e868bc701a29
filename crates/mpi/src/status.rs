//! [`Status`]: how an operation ended; and MPI's special ranks and tags (MPI 5.0, section 3.2.5).

use std::sync::Arc;

use crate::error::{Class, Error, Result};

/// Receives from any source (`MPI_ANY_SOURCE`).
pub const ANY_SOURCE: i32 = -1;
/// Receives messages with any tag (`MPI_ANY_TAG`).
pub const ANY_TAG: i32 = -2;
/// The null process: sends to it and receives from it complete immediately (`MPI_PROC_NULL`).
pub const PROC_NULL: i32 = -3;
/// The root argument of a collective operation between two groups, at the root itself (`MPI_ROOT`).
pub const ROOT: i32 = -4;
/// An undefined rank, colour or count (`MPI_UNDEFINED`).
pub const UNDEFINED: i32 = -32766;
/// The largest tag that a program may use (`MPI_TAG_UB`).
pub const TAG_MAX: i32 = i32::MAX;

/// How an operation ended (`MPI_Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Rank of the sender; [`ANY_SOURCE`] where there is none.
    pub source: i32,
    /// The message's tag; [`ANY_TAG`] where there is none.
    pub tag: i32,
    /// Received bytes of the message (`MPI_Get_elements` divides them by the size of the datatype's basic elements).
    pub bytes: u64,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// Why it failed, if it did.
    pub error: Option<Arc<Error>>,
}

impl Status {
    /// MPI's empty status: no source, no tag, no data, no error.
    pub fn empty() -> Self {
        Self { source: ANY_SOURCE, tag: ANY_TAG, bytes: 0, cancelled: false, error: None }
    }

    /// The status of a receive from [`PROC_NULL`].
    pub fn from_proc_null() -> Self {
        Self { source: PROC_NULL, ..Self::empty() }
    }

    /// An otherwise empty status with an error.
    pub fn failed(error: Error) -> Self {
        Self { error: Some(Arc::new(error)), ..Self::empty() }
    }

    /// Whether it is the empty status.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let Self { source, tag, bytes, cancelled, error } = self;
        (*source, *tag, *bytes, *cancelled) == (ANY_SOURCE, ANY_TAG, 0, false) && error.is_none()
    }

    /// The class of its error; [`Class::SUCCESS`] without one.
    pub fn class(&self) -> Class {
        self.error.as_ref().map_or(Class::SUCCESS, |error| error.class)
    }

    /// The status, if the operation succeeded.
    ///
    /// # Errors
    /// The operation's.
    pub fn ok(self) -> Result<Self> {
        match &self.error {
            None => Ok(self),
            Some(error) => Err(Error::clone(error)),
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedRequest {
    /// The status.
    pub status: Status,
    /// The [`crate::Comm::id`] of its communicator, if it had one, whose error handler gets its errors.
    pub comm: Option<u64>,
    /// The request still exists, and can be started again.
    pub is_persistent: bool,
}

impl CompletedRequest {
    /// The result of a request without an operation.
    pub(crate) fn nothing() -> Self {
        Self { status: Status::empty(), comm: None, is_persistent: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_class_is_success_without_error() {
        assert_eq!(Status::empty().class(), Class::SUCCESS);
        assert!(Status::empty().is_empty() && !Status::from_proc_null().is_empty());
        assert_eq!(Status::from_proc_null().ok().expect("no error").source, PROC_NULL);
        let failed = Status::failed(Error::new(Class::TRUNCATE, "too long"));
        assert_eq!(failed.class(), Class::TRUNCATE);
        assert_eq!(failed.ok().expect_err("an error").text, "too long");
    }
}
