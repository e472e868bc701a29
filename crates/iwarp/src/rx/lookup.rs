//! [`Lookup`]: what the receiver asks the owner of memory.

use crate::terminate::TerminateCode;

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
/// An answer holds until the payload of the segment has been placed, that is until the next [`Receiver::poll`](super::Receiver::poll) that returns
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

    /// May the peer invalidate this tag? Invalidating comes later, with [`Event::Received`](super::Event::Received).
    fn invalidate(&mut self, stag: u32) -> Result<(), Refusal>;

    /// Takes the next receive buffer, for message `msn` of queue 0, and says how many bytes it has room for; `None` if there
    /// is no buffer. Asked once for each message. iWARP does not wait for a buffer: without one, the stream ends (RFC 5041
    /// section 7.1).
    fn receive(&mut self, msn: u32) -> Option<u32>;
}
