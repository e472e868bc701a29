//! What is wrong with an argument: MPI's class of it, and a text that names it.

use thiserror::Error;

/// The class that MPI gives an error.
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
    /// `MPI_ERR_CONVERSION`: a value that the other representation cannot hold.
    Conversion,
    /// What a user's operator failed with, as its own number.
    Other(i32),
}

/// A refused call: nothing has been made, moved or changed, unless the call says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text}")]
pub struct Error {
    /// MPI's class of it.
    pub kind: ErrorKind,
    /// Which argument is wrong, and why.
    pub text: String,
}

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a class, with its text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn arg(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Arg, text)
    }

    /// Arguments, each legal, whose sizes or addresses together pass 64 bits.
    pub(crate) fn wide(what: &str) -> Self {
        Self::new(ErrorKind::Count, format!("{what}: sizes or addresses pass 64 bits"))
    }
}
