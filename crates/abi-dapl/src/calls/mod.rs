//! The functions of the table, by object, and their common helpers.

pub(crate) mod cno;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod ia;
pub(crate) mod mem;
pub(crate) mod sp;
pub(crate) mod srq;

use std::ffi::c_void;
use std::net::IpAddr;

use dapl::{Error, Result, Sge, Subtype};
use ffi::{BadAddress, BadBytes, Bytes, CBuffer, In, SockAddr};
use host::Span;

use crate::types::Triplet;

/// Converts a time-out in microseconds; the largest number means forever.
pub(crate) fn timeout(microseconds: u32) -> Option<Span> {
    (microseconds != u32::MAX).then(|| Span::from_us(microseconds.into()))
}

/// Converts a count that must not be negative.
pub(crate) fn count(value: i32, argument: Subtype) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::argument(argument))
}

/// Converts a count to C.
pub(crate) fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Checks that a mask contains only known fields.
pub(crate) fn mask(given: u64, all: u64, argument: Subtype) -> Result<()> {
    if given & !all == 0 { Ok(()) } else { Err(Error::argument(argument)) }
}

/// The bytes of an argument whose length is a separate argument.
pub(crate) fn bytes(given: Bytes, count: i32, number: Subtype, argument: Subtype) -> Result<Vec<u8>> {
    given.get(count).map_err(|bad| match bad {
        BadBytes::Count => Error::argument(number),
        BadBytes::Missing => Error::argument(argument),
    })
}

/// The IP address of a socket address, which the standard passes without a port.
pub(crate) fn address(given: SockAddr, argument: Subtype) -> Result<IpAddr> {
    match given.get() {
        Ok(address) => Ok(address.ip()),
        Err(BadAddress::Missing) => Err(Error::argument(argument)),
        Err(BadAddress::Family(_)) => Err(Error::address()),
    }
}

/// The most segments of a request, and the number that most requests do not exceed; neither needs an allocation.
const PIECES: usize = 64;
const FEW_PIECES: usize = 4;

/// Runs `body` with the `count` segments of a request.
///
/// # Errors
/// Argument 2 for a negative number or more than any device supports, 3 for a missing array of segments.
#[inline]
pub(crate) fn pieces<R>(iov: In<Triplet>, count: i32, body: impl FnOnce(&[Sge]) -> Result<R>) -> Result<R> {
    let count = usize::try_from(count).ok().filter(|count| *count <= PIECES);
    let count = count.ok_or(Error::argument(Subtype::Arg2))?;
    if count <= FEW_PIECES {
        body(fill(&mut [Sge::default(); FEW_PIECES], iov, count)?)
    } else {
        body(fill(&mut [Sge::default(); PIECES], iov, count)?)
    }
}

#[inline]
fn fill(pieces: &mut [Sge], iov: In<Triplet>, count: usize) -> Result<&[Sge]> {
    let triplets = iov.items(count).ok_or(Error::argument(Subtype::Arg3))?;
    for (piece, triplet) in pieces.iter_mut().zip(triplets) {
        *piece = Sge { addr: triplet.virtual_address, length: triplet.segment_length, lkey: triplet.context };
    }
    Ok(&pieces[..count])
}

/// The length and the address of lent bytes.
pub(crate) fn lent(buffer: &CBuffer) -> (i32, *mut c_void) {
    (i32::try_from(buffer.len()).unwrap_or(i32::MAX), buffer.as_ptr())
}
