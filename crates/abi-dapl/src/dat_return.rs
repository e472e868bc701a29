//! The return value of a call: the standard's number for its result.

use dapl::{Error, ErrorKind, Result, Subtype};
use ffi::catch_panic;

/// Runs a call and catches panics.
pub(crate) fn dat_return(body: impl FnOnce() -> Result<()>) -> u32 {
    let panicked = |_| Err(Error::new(ErrorKind::InternalError, Subtype::None));
    match catch_panic(body).unwrap_or_else(panicked) {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// The result of a function that is not implemented, after its handles were checked.
pub(crate) fn not_implemented() -> Result<()> {
    Err(Error::new(ErrorKind::NotImplemented, Subtype::None))
}
