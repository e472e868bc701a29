//! Receiving: what the next bytes of the stream are for, and what has been received.
//!
//! [`Receiver`] is pulled. [`Receiver::poll`] says one of: with CRCs, so many bytes are to be shown first
//! ([`Receiver::check`]); so many bytes are wanted here ([`Receiver::feed`], or [`Receiver::space`] and `filled` to read into
//! it directly); so many bytes are payload for that place (put them there, then [`Receiver::placed`]); this happened; nothing
//! comes any more. It never holds payload.
//!
//! # Nothing unchecked is used
//!
//! A CRC stands behind the payload and covers the header, too. So with CRCs an FPDU is shown as a whole, out of a buffer of the
//! driver's that nobody else writes to, before a field of it is looked at: with a wrong CRC nothing is asked, placed, taken,
//! delivered or said but that the CRC was wrong (RFC 5044 section 4.4). A header that was hit would otherwise lead payload to
//! another place, take a receive, or be repeated in a Terminate. Without CRCs payload may go straight from the socket to its
//! place.
//!
//! Then everything that headers can tell is checked before a place is named: versions, opcodes, queue, message number, offset,
//! the answers of [`Lookup`].

mod check;
mod count;
mod finish;
mod front;
mod lookup;
mod receive;
mod receiver;
mod short;

#[cfg(test)]
mod tests;

pub use front::Front;
pub use lookup::{Lookup, Refusal};
pub use receive::{Event, Expected, Failure, Piece, Receive, Received, ReceivedKind, Target};
pub use receiver::{Receiver, ReceiverConfig};
