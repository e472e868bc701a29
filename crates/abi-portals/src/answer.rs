//! Return codes: maps results to those of the header (Portals 4.3, chapter 3).

use std::ffi::c_int;

use ffi::catch_panic;
use portals::Error;

/// A return code other than `PTL_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    ArgInvalid = 1,
    CtNoneReached = 2,
    EqDropped = 3,
    EqEmpty = 4,
    Fail = 5,
    Ignored = 6,
    Interrupted = 8,
    NoInit = 10,
    PidInUse = 12,
    InUse = 7,
    ListTooLong = 9,
    NoSpace = 11,
    PtFull = 13,
    PtEqNeeded = 14,
    PtInUse = 15,
}

/// The result of a call, or its return code.
pub(crate) type Answer<T> = Result<T, Code>;

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        match error {
            Error::ArgInvalid => Self::ArgInvalid,
            Error::InUse => Self::InUse,
            Error::ListTooLong => Self::ListTooLong,
            Error::NoSpace => Self::NoSpace,
            Error::PtFull => Self::PtFull,
            Error::PtEqNeeded => Self::PtEqNeeded,
            Error::PtInUse => Self::PtInUse,
        }
    }
}

/// Runs the body of a call; panics do not leave it.
pub(crate) fn run_call(body: impl FnOnce() -> Answer<()>) -> c_int {
    match catch_panic(body).unwrap_or(Err(Code::Fail)) {
        Ok(()) => 0,
        Err(code) => code as c_int,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_codes() {
        for error in [
            Error::ArgInvalid,
            Error::InUse,
            Error::ListTooLong,
            Error::NoSpace,
            Error::PtFull,
            Error::PtEqNeeded,
            Error::PtInUse,
        ] {
            assert_eq!(Code::from(error) as u8, error.code());
        }
        assert_eq!(run_call(|| panic!("on purpose")), Code::Fail as c_int);
    }
}
