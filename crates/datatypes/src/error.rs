//! Why an argument is wrong ([`struct@Error`]), with the error class of MPI and a text that names the argument.

use thiserror::Error;

/// MPI's class of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// `MPI_ERR_COUNT`: negative, or more than 64 bits of bytes or addresses.
    Count,
    /// `MPI_ERR_TYPE`.
    Type,
    /// `MPI_ERR_ARG`.
    Arg,
    /// `MPI_ERR_OP`: an operator that does not reduce this type.
    Op,
    /// `MPI_ERR_DIMS`.
    Dims,
    /// `MPI_ERR_TRUNCATE`: fewer bytes than the datatype needs.
    Truncate,
    /// `MPI_ERR_CONVERSION`: a value that the other representation cannot represent.
    Conversion,
    /// The error number of a user-defined operator.
    Other(i32),
}

/// A refused call: nothing was created, moved or changed, unless the call's documentation says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text}")]
pub struct Error {
    /// MPI's class of the error.
    pub kind: ErrorKind,
    /// The wrong argument and the reason.
    pub text: String,
}

/// The result of calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a class, with its text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn arg(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Arg, text)
    }

    /// Legal arguments whose combined sizes or addresses exceed 64 bits.
    pub(crate) fn overflow(what: &str) -> Self {
        Self::new(ErrorKind::Count, format!("{what}: sizes or addresses exceed 64 bits"))
    }
}
