//! Sending: from operations to FPDUs.
//!
//! [`Sender::post`] takes an operation with its length, [`Sender::poll`] yields the next [`Fpdu`]. An FPDU is a value with its
//! header bytes in it, so several of them can be gathered into one write; it names the payload that follows its header, and
//! makes its trailer when it has been told of that payload. An FPDU that was yielded is part of the stream: it must be sent
//! whole before the next one.
//!
//! # Order
//!
//! Messages leave one after the other; their segments are not mixed, since Linux siw can take only one tagged message at a
//! time. Answers to the peer's reads and atomics have a queue of their own and take turns with this side's operations, message
//! by message: if they had to wait behind an operation that itself waits for the peer, both sides could wait for ever.

mod fpdu;
mod op;
mod sender;

#[cfg(test)]
mod tests;

pub use fpdu::{Fpdu, HEADER_MAX, Origin, Payload, PayloadMismatch, Seal, TRAILER_MAX, Trailer};
pub use op::{Op, OpKind, PostError};
pub use sender::{Sender, SenderConfig, Transmit};
