//! [`Receive`]: what the receiver says, and [`Expected`]: what it is told.

use thiserror::Error;

use crate::rdmap::{AtomicRequest, ReadRequest};
use crate::terminate::Terminate;

/// Where payload goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The peer's RDMA Write.
    Write {
        /// Which buffer.
        stag: u32,
        /// Offset in it, in bytes.
        to: u64,
    },
    /// The answer to this side's own read.
    ReadSink {
        /// The operation, as it was posted.
        id: u64,
        /// Offset in the data of the read, in bytes.
        offset: u32,
        /// The sink's tag.
        stag: u32,
        /// The sink's offset for these bytes.
        to: u64,
    },
    /// The receive buffer that [`Lookup::receive`](super::Lookup::receive) took for this message.
    Receive {
        /// Which message.
        msn: u32,
        /// Offset in it, in bytes.
        offset: u32,
    },
}

/// Payload that is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where its first byte goes.
    pub target: Target,
    /// Bytes, at least 1. Fewer may be placed at a time.
    pub len: usize,
}

/// What [`Receiver::poll`](super::Receiver::poll) says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    /// So many bytes, from the first of an FPDU on, are to be shown with [`Receiver::check`](super::Receiver::check), at least 1 more than last time.
    /// They are not taken by that.
    Check(usize),
    /// So many bytes are wanted here, at least 1. Fewer may be given at a time.
    Bytes(usize),
    /// The next bytes go elsewhere.
    Place(Piece),
    /// Something has happened.
    Event(Event),
    /// Nothing is received any more.
    Closed,
}

/// Something has been delivered.
///
/// An RDMA Write has no event (RFC 5040 section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer's first FPDU has come: a responder may speak now (RFC 5044 section 7.1.2, RFC 6581 section 9.2).
    Ready,
    /// A message has taken a receive buffer.
    Received(Received),
    /// The peer reads; permitted at this moment. [`crate::Connection`] has queued the response already.
    ReadRequest(ReadRequest),
    /// The peer works atomically; permitted at this moment. [`crate::Connection`] has queued it already: it is to be carried
    /// out when [`crate::tx::Transmit::Atomic`] says so.
    AtomicRequest(AtomicRequest),
    /// This side's own read has all its data.
    ReadDone {
        /// The operation, as it was posted.
        id: u64,
    },
    /// This side's own atomic is done.
    AtomicDone {
        /// The operation, as it was posted.
        id: u64,
        /// What the word held before.
        original: u64,
    },
    /// The first message of this side, a read, was answered: nothing for the program.
    RtrDone,
    /// The peer ends the stream because of an error. Nothing is received after this.
    Terminated(Terminate),
}

/// A message that has taken a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number on queue 0, from 1; it wraps. A ready-to-receive Send has taken number 1 without a buffer.
    pub msn: u32,
    /// Whoever waits for solicited events is to be woken.
    pub solicited: bool,
    /// What it is.
    pub kind: ReceivedKind,
}

/// What message has taken a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivedKind {
    /// A Send.
    Send {
        /// Its length in bytes.
        len: u32,
        /// The tag that is to be invalidated before the program hears of the message (RFC 5040 section 5.3).
        invalidate: Option<u32>,
    },
    /// Immediate Data; the buffer itself is not written to (RFC 7306 section 6).
    Immediate([u8; 8]),
}

/// The answer that this side waits for, in the order of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// A Read Response.
    Read {
        /// The operation, as it was posted; `None` for the ready-to-receive message.
        id: Option<u64>,
        /// The sink.
        stag: u32,
        /// Offset in the sink, in bytes.
        to: u64,
        /// Bytes asked for.
        len: u32,
    },
    /// An Atomic Response.
    Atomic {
        /// The operation, as it was posted.
        id: u64,
        /// The number that the request carries.
        request: u32,
    },
}

/// The peer broke a rule: the stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{}", .terminate.code)]
pub struct Failure {
    /// What the peer is to be told before the stream is closed.
    pub terminate: Terminate,
}
