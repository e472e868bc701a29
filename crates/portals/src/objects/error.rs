//! [`Error`]: why a call failed, with the reference's return codes (Portals 4.3, chapter 3).

/// Why a call failed; a failed call has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Error {
    /// An argument is invalid, or a handle names no object (any more).
    #[error("an argument is invalid, or a handle names no object")]
    ArgInvalid = 1,
    /// An operation or message in flight still uses it.
    #[error("an operation or a message in flight still uses it")]
    InUse = 7,
    /// The list is as long as the interface's limit allows.
    #[error("the list has reached its maximum length")]
    ListTooLong = 9,
    /// The interface's limit of such objects is reached.
    #[error("the interface's limit of these objects is reached")]
    NoSpace = 11,
    /// All portal table entries are allocated.
    #[error("all portal table entries are allocated")]
    PtFull = 13,
    /// Flow control needs an event queue.
    #[error("flow control needs an event queue")]
    PtEqNeeded = 14,
    /// The portal table entry is allocated already, or still has list entries.
    #[error("the portal table entry is allocated already, or still has list entries or messages")]
    PtInUse = 15,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The error with this return code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let all = [Self::ArgInvalid, Self::InUse, Self::ListTooLong, Self::NoSpace, Self::PtFull];
        all.into_iter().chain([Self::PtEqNeeded, Self::PtInUse]).find(|error| error.code() == code)
    }

    /// The return code (`PTL_*`).
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}
