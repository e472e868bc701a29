//! The functions of the table, by object, and what they share.

pub(crate) mod cno;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod ia;
pub(crate) mod mem;
pub(crate) mod sp;
pub(crate) mod srq;

use dapl::{Error, Result, Subtype};
use host::Span;

/// A time in microseconds, where the largest number means for ever.
pub(crate) fn timeout(microseconds: u32) -> Option<Span> {
    (microseconds != u32::MAX).then(|| Span::from_us(microseconds.into()))
}

/// A count that may not be negative.
pub(crate) fn count(value: i32, argument: Subtype) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::argument(argument))
}

/// A count as C has it.
pub(crate) fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A mask of fields, which must be among those that there are.
pub(crate) fn mask(given: u64, all: u64, argument: Subtype) -> Result<()> {
    if given & !all == 0 { Ok(()) } else { Err(Error::argument(argument)) }
}
