//! Receiving: what the next bytes of the stream are for, and which messages have been received.
//!
//! The driver pulls from [`Receiver`]. [`Receiver::poll`] returns one of these steps: with CRCs, show this many bytes
//! first ([`Receiver::check`]); pass this many bytes to the receiver ([`Receiver::feed`], or read into
//! [`Receiver::space`] and call `filled`); place this many bytes of payload, then call [`Receiver::placed`]; an
//! event; closed. The receiver never stores payload.
//!
//! # Nothing unchecked is used
//!
//! The CRC comes after the payload and also covers the header. So with CRCs the driver shows each FPDU as a whole,
//! out of a buffer that nothing else writes to, before any of its fields is used. If the CRC is wrong, the receiver
//! looks up, places, consumes and delivers nothing, and reports only the CRC error (RFC 5044 section 4.4). A damaged
//! header could otherwise place payload at a wrong address, consume a receive, or be repeated in a Terminate. Without
//! CRCs payload may go straight from the socket to its place.
//!
//! All header fields are checked before a place is returned: versions, opcodes, queue, message number, offset and the
//! answers of [`Lookup`].

mod ahead;
mod check;
mod count;
mod fast_path;
mod finish;
mod fpdu_kind;
mod lookup;
mod receive;
mod receiver;

#[cfg(test)]
mod tests;

pub use ahead::{GAP_MAX, gap_len};
pub use fpdu_kind::FpduKind;
pub use lookup::{AccessError, Lookup};
pub use receive::{
    Destination, Event, ExpectedResponse, Piece, ProtocolViolation, Received, ReceivedKind, ReceiverStep,
};
pub use receiver::{Receiver, ReceiverConfig};
