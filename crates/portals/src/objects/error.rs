//! [`Error`]: why a call did nothing, with the reference's return codes.

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Error {
    /// An argument is wrong, or a handle names nothing (any more).
    #[error("an argument is wrong, or a handle names nothing")]
    ArgInvalid = 1,
    /// Something under way still needs it.
    #[error("it is in use by an operation or a message under way")]
    InUse = 7,
    /// The list has as many entries as the interface's limit allows.
    #[error("the list has as many entries as it may have")]
    ListTooLong = 9,
    /// There are as many of these as the interface's limit allows.
    #[error("there are as many of these as the interface's limits allow")]
    NoSpace = 11,
    /// Every portal table entry is taken.
    #[error("every portal table entry is taken")]
    PtFull = 13,
    /// Flow control needs an event queue.
    #[error("flow control needs an event queue")]
    PtEqNeeded = 14,
    /// The portal table entry is taken, or still has entries.
    #[error("the portal table entry is taken, or still has entries or messages")]
    PtInUse = 15,
}

/// What a call gives, or why it did nothing.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The one with a return code.
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
