//! [`Lookup`]: the receiver's questions to the owner of the memory.

use crate::terminate::TerminateCode;

/// Why the owner of the memory refuses an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// The steering tag does not exist.
    Invalid,
    /// The range exceeds what the tag covers.
    Bounds,
    /// The tag does not grant this right.
    Access,
    /// The tag belongs to another protection domain.
    NotAssociated,
    /// The peer may not invalidate the tag.
    CannotInvalidate,
    /// The offset of an atomic is not a multiple of 8; detected by the receiver itself.
    Unaligned,
}

impl AccessError {
    /// The code for tagged segments, which DDP checks (RFC 5041 section 7.2); access rights are checked by RDMAP (RFC
    /// 5040 section 7.2).
    pub(crate) const fn tagged_code(self) -> TerminateCode {
        match self {
            Self::Invalid => TerminateCode::TAGGED_STAG_INVALID,
            Self::Bounds => TerminateCode::TAGGED_BOUNDS,
            Self::NotAssociated => TerminateCode::TAGGED_NOT_ASSOCIATED,
            _ => self.code(),
        }
    }

    /// The code for tags in the body or in the header's word for RDMAP (RFC 5040 section 7.2, RFC 7306 section 8.2).
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

/// Checks the peer's access rights on one stream, at the time of the call.
///
/// An answer holds until the payload of the segment has been placed, that is until the next
/// [`Receiver::poll`](super::Receiver::poll) that does not return this place. A driver that may deregister memory in
/// between must check again before each part that it places. Lengths are in bytes and never 0: a segment without
/// payload needs no right (RFC 5040 sections 5.1 and 5.2).
pub trait Lookup {
    /// May the peer write `[to, to + len)` of this buffer? The range does not wrap.
    fn check_write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError>;

    /// Is the sink of this side's own read `id` still registered for `[offset, offset + len)` of the read? The range
    /// is within the requested one.
    fn check_read_sink(&mut self, id: u64, offset: u32, len: u32) -> Result<(), AccessError>;

    /// May the peer read `[to, to + len)` of this buffer? The range does not wrap.
    fn check_read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError>;

    /// May the peer execute an atomic on the 8 bytes at `to` of this buffer? `to` is a multiple of 8.
    fn check_atomic(&mut self, stag: u32, to: u64) -> Result<(), AccessError>;

    /// May the peer invalidate this tag? The driver invalidates it later, at
    /// [`Event::Received`](super::Event::Received).
    fn check_invalidate(&mut self, stag: u32) -> Result<(), AccessError>;

    /// Consumes the next receive buffer for message `msn` of queue 0 and returns its size in bytes; `None` if no
    /// buffer is posted. Called once for each message. iWARP does not wait for a buffer: without one, the stream ends
    /// (RFC 5041 section 7.1).
    fn take_receive(&mut self, msn: u32) -> Option<u32>;
}
