//! Sending: from operations to FPDUs.
//!
//! [`Sender::post`] queues an operation with its length, [`Sender::poll`] yields the next [`Fpdu`]. An FPDU is a
//! value that contains its header bytes, so several can be gathered into one write. It names the payload that
//! follows its header, and makes its trailer once the payload has been passed to it. A yielded FPDU is part of the
//! stream: it must be sent as a whole before the next one.
//!
//! # Order
//!
//! Messages are sent one at a time. Segments of different messages are not interleaved, because Linux siw can receive
//! only one tagged message at a time. Responses to the peer's reads and atomics have their own queue, and alternate
//! with this side's operations message by message: if they waited behind an operation that itself waits for the peer,
//! both sides could deadlock.

mod fpdu;
mod op;
mod sender;

#[cfg(test)]
mod tests;

pub use fpdu::{Fpdu, HEADER_MAX, Origin, Payload, PayloadMismatch, TRAILER_MAX, Trailer, TrailerBuilder};
pub use op::{Op, OpKind, PostError};
pub use sender::{Sender, SenderConfig, Transmit};
