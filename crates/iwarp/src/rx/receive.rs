//! [`ReceiverStep`]: the steps that the receiver returns, and [`ExpectedResponse`]: the responses that it waits for.

use thiserror::Error;

use crate::rdmap::{AtomicRequest, ReadRequest};
use crate::terminate::Terminate;

/// The destination of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The peer's RDMA Write.
    Write {
        /// Steering tag of the buffer.
        stag: u32,
        /// Offset in the buffer, in bytes.
        to: u64,
    },
    /// The Read Response to this side's own read.
    ReadSink {
        /// Identifier of the operation, as posted.
        id: u64,
        /// Offset in the data of the read, in bytes.
        offset: u32,
        /// The sink's tag.
        stag: u32,
        /// The sink's offset for these bytes.
        to: u64,
    },
    /// The receive buffer that [`Lookup::take_receive`](super::Lookup::take_receive) took for this message.
    Receive {
        /// Message number.
        msn: u32,
        /// Offset in the message, in bytes.
        offset: u32,
    },
}

/// Payload to place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Destination of the first byte.
    pub destination: Destination,
    /// Number of bytes, at least 1. Fewer may be placed at a time.
    pub len: usize,
}

/// The step that [`Receiver::poll`](super::Receiver::poll) returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverStep {
    /// Show this many bytes, from the first of an FPDU on, with [`Receiver::check`](super::Receiver::check); at least
    /// 1 more than last time. Showing does not consume them.
    Check(usize),
    /// Pass this many bytes to the receiver, at least 1. Fewer may be passed at a time.
    Bytes(usize),
    /// The next bytes are payload for this place.
    Place(Piece),
    /// Something was delivered.
    Event(Event),
    /// The receiver is closed.
    Closed,
}

/// What was delivered.
///
/// An RDMA Write has no event (RFC 5040 section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer's first FPDU has arrived: a responder may send from now on (RFC 5044 section 7.1.2, RFC 6581 section
    /// 9.2).
    Ready,
    /// A message has consumed a receive buffer.
    Received(Received),
    /// The peer reads, and has the right at this moment. [`crate::Connection`] has queued the response already.
    ReadRequest(ReadRequest),
    /// The peer requests an atomic, and has the right at this moment. [`crate::Connection`] has queued it already:
    /// execute it when [`crate::tx::Transmit::Atomic`] is yielded.
    AtomicRequest(AtomicRequest),
    /// This side's own read has received all its data.
    ReadDone {
        /// Identifier of the operation, as posted.
        id: u64,
    },
    /// This side's own atomic is done.
    AtomicDone {
        /// Identifier of the operation, as posted.
        id: u64,
        /// Value of the word before the operation.
        original: u64,
    },
    /// This side's ready-to-receive message, a read, was answered; the program need not know.
    RtrDone,
    /// The peer ended the stream because of an error. Nothing is received after this.
    Terminated(Terminate),
}

/// A message that has consumed a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number on queue 0, from 1; it wraps. A ready-to-receive Send has used number 1 without a buffer.
    pub msn: u32,
    /// The message wakes a program that waits for solicited events only.
    pub solicited: bool,
    /// Kind of the message.
    pub kind: ReceivedKind,
}

/// The kind of message that has consumed a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivedKind {
    /// A Send.
    Send {
        /// Its length in bytes.
        len: u32,
        /// The tag to invalidate before the message is reported to the program (RFC 5040 section 5.3).
        invalidate: Option<u32>,
    },
    /// Immediate Data; nothing is written to the buffer (RFC 7306 section 6).
    Immediate([u8; 8]),
}

/// A response that this side waits for, in the order of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedResponse {
    /// A Read Response.
    Read {
        /// Identifier of the operation, as posted; `None` for the ready-to-receive message.
        id: Option<u64>,
        /// Steering tag of the sink.
        stag: u32,
        /// Offset in the sink, in bytes.
        to: u64,
        /// Requested length in bytes.
        len: u32,
    },
    /// An Atomic Response.
    Atomic {
        /// Identifier of the operation, as posted.
        id: u64,
        /// Identifier in the Atomic Request.
        request: u32,
    },
}

/// The peer violated the protocol: the stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{}", .terminate.code)]
pub struct ProtocolViolation {
    /// The Terminate to send to the peer before closing the stream.
    pub terminate: Terminate,
}
