//! What a call answers: the standard's number for what became of it.

use dapl::{Error, Kind, Result, Subtype};
use ffi::contain;

/// Runs a call; no panic leaves it.
pub(crate) fn answer(body: impl FnOnce() -> Result<()>) -> u32 {
    let panicked = |_| Err(Error::new(Kind::InternalError, Subtype::None));
    match contain(body).unwrap_or_else(panicked) {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// What is not there, after a look at the object that was asked.
pub(crate) fn not_implemented() -> Result<()> {
    Err(Error::new(Kind::NotImplemented, Subtype::None))
}
