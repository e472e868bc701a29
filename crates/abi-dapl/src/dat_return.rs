//! The return value of a call: the standard's number for its result. The reason of a failure goes to the log of failed calls.

use dapl::{Error, ErrorKind, Result, Subtype};
use ffi::{catch_panic, log};

use crate::reason;

/// Runs a call and catches panics. `call` is its name in the provider's table.
#[inline]
pub(crate) fn dat_return(call: &str, body: impl FnOnce() -> Result<()>) -> u32 {
    let panicked = |_| Err(Error::new(ErrorKind::InternalError, Subtype::None));
    match catch_panic(body).unwrap_or_else(panicked) {
        Ok(()) => 0,
        Err(error) => fail(call, &error),
    }
}

/// The end of a call that fails. A queue without events and a wait that takes too long are results, not failures.
#[cold]
fn fail(call: &str, error: &Error) -> u32 {
    let is_expected =
        matches!(error.kind, ErrorKind::QueueEmpty | ErrorKind::TimeoutExpired | ErrorKind::InterruptedCall);
    if !is_expected && log::reports_errors() {
        log::failure(&format!("dat_{call}"), &reason::explain(call, error));
    }
    error.code()
}

/// The result of a function that is not implemented, after its handles were checked.
pub(crate) fn not_implemented() -> Result<()> {
    Err(Error::new(ErrorKind::NotImplemented, Subtype::None))
}
