//! [`Op`]: the operations that are posted to the sender.

use thiserror::Error;

use crate::rdmap::{AtomicOp, ReadRequest};

/// An operation of this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// The caller's identifier.
    pub id: u64,
    /// What the operation does.
    pub kind: OpKind,
    /// Wait until all earlier reads and atomics have been answered. An operation that depends on the data of a read
    /// needs this: otherwise it may be executed before the read (RFC 5040 section 5.5).
    pub fence: bool,
}

/// What an operation does. Lengths are bytes of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// RDMA Write (RFC 5040 section 5.1).
    Write {
        /// The peer's buffer.
        stag: u32,
        /// Offset in it, in bytes.
        to: u64,
        /// Length.
        len: u32,
    },
    /// Send, in any of its four forms (RFC 5040 section 5.3).
    Send {
        /// Length.
        len: u32,
        /// Wake a peer that waits for solicited events.
        solicited: bool,
        /// Invalidate this tag of the peer.
        invalidate: Option<u32>,
    },
    /// Immediate Data (RFC 7306 section 6). After a Write, it is what verbs call a write with immediate.
    Immediate {
        /// The data.
        data: [u8; 8],
        /// Wake a peer that waits for solicited events.
        solicited: bool,
    },
    /// RDMA Read (RFC 5040 section 5.2). Its completion is [`crate::rx::Event::ReadDone`].
    Read(ReadRequest),
    /// An atomic operation (RFC 7306 section 5). Its completion is [`crate::rx::Event::AtomicDone`].
    Atomic {
        /// The peer's buffer.
        stag: u32,
        /// Offset of the word, in bytes, a multiple of 8.
        to: u64,
        /// The operation on the word.
        op: AtomicOp,
    },
}

/// Why an operation was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PostError {
    /// The queue is full; try again when an operation has left it.
    #[error("the queue of operations is full")]
    Full,
    /// The peer serves no reads and atomics.
    #[error("no reads or atomics: the depth of outbound reads (ORD) of this connection is 0")]
    NoReads,
    /// An operation would exceed the end of the peer's 64-bit offset space.
    #[error("the remote range wraps")]
    Wraps,
    /// The offset of an atomic is not aligned (RFC 7306 section 5.1).
    #[error("the offset of an atomic must be a multiple of 8")]
    Unaligned,
    /// The stream is ending.
    #[error("the stream is ending")]
    Closed,
}
