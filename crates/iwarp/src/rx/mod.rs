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
mod receiver;
mod short;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use front::Front;
pub use receiver::{Receiver, ReceiverConfig};

use crate::rdmap::{AtomicRequest, ReadRequest};
use crate::terminate::{Terminate, TerminateCode};

/// Why the owner of memory refuses an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such steering tag.
    Invalid,
    /// Outside of what the tag covers.
    Bounds,
    /// The tag does not give this right.
    Access,
    /// The tag belongs to another protection domain.
    NotAssociated,
    /// The tag may not be invalidated by the peer.
    CannotInvalidate,
    /// An atomic's offset is not a multiple of 8; found by the receiver itself.
    Unaligned,
}

impl Refusal {
    /// For tagged segments, which DDP checks (RFC 5041 section 7.2); rights are RDMAP's affair (RFC 5040 section 7.2).
    pub(crate) const fn tagged_code(self) -> TerminateCode {
        match self {
            Self::Invalid => TerminateCode::TAGGED_STAG_INVALID,
            Self::Bounds => TerminateCode::TAGGED_BOUNDS,
            Self::NotAssociated => TerminateCode::TAGGED_NOT_ASSOCIATED,
            _ => self.code(),
        }
    }

    /// For tags in the body or in the header's word for RDMAP (RFC 5040 section 7.2, RFC 7306 section 8.2).
    pub const fn code(self) -> TerminateCode {
        match self {
            Self::Invalid => TerminateCode::STAG_INVALID,
            Self::Bounds => TerminateCode::BOUNDS,
            Self::Access => TerminateCode::ACCESS,
            Self::NotAssociated => TerminateCode::NOT_ASSOCIATED,
            Self::CannotInvalidate => TerminateCode::CANNOT_INVALIDATE,
            Self::Unaligned => TerminateCode::STREAM_CATASTROPHIC,
        }
    }
}

/// What the owner of the memory answers for one stream: does the peer have the right, now?
///
/// An answer holds until the payload of the segment has been placed, that is until the next [`Receiver::poll`] that returns
/// something else than this place. Who lets memory go meanwhile must ask again before each part that it places. Lengths are
/// bytes and never 0: a segment without payload needs no right to anything (RFC 5040 sections 5.1 and 5.2).
pub trait Lookup {
    /// May the peer write `[to, to + len)` of this buffer? The range does not wrap.
    fn write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal>;

    /// Is the sink of this side's own read `id` still there for `[offset, offset + len)` of the read? The range is inside of
    /// what was asked for.
    fn read_sink(&mut self, id: u64, offset: u32, len: u32) -> Result<(), Refusal>;

    /// May the peer read `[to, to + len)` of this buffer? The range does not wrap.
    fn read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal>;

    /// May the peer work atomically on the 8 bytes at `to` of this buffer? `to` is a multiple of 8.
    fn atomic(&mut self, stag: u32, to: u64) -> Result<(), Refusal>;

    /// May the peer invalidate this tag? Invalidating comes later, with [`Event::Received`].
    fn invalidate(&mut self, stag: u32) -> Result<(), Refusal>;

    /// Takes the next receive buffer, for message `msn` of queue 0, and says how many bytes it has room for; `None` if there
    /// is no buffer. Asked once for each message. iWARP does not wait for a buffer: without one, the stream ends (RFC 5041
    /// section 7.1).
    fn receive(&mut self, msn: u32) -> Option<u32>;
}

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
    /// The receive buffer that [`Lookup::receive`] took for this message.
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

/// What [`Receiver::poll`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    /// So many bytes, from the first of an FPDU on, are to be shown with [`Receiver::check`], at least 1 more than last time.
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
