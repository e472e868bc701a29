//! MPA (RFC 5044, RFC 6581): the handshake before there are FPDUs, and what an FPDU adds to a DDP segment.
//!
//! Order of calls, for either side: send what [`Initiator::transmit`] has and say so with `transmitted`; feed what comes to
//! `handle_bytes`, which says how many bytes it took; what is left belongs to the [`crate::Connection`] that the outcome
//! makes. At `deadline`, call `handle_timeout`; when the stream ends, `handle_eof`. After an error there may still be
//! something in `transmit`: a rejecting reply, or a Terminate. Send it, then close.

mod error;
mod frame;
mod initiator;
mod negotiated;
mod outgoing;
mod responder;

#[cfg(test)]
mod tests;

pub use error::HandshakeError;
pub use frame::{
    DEPTH_MAX, DEPTH_UNKNOWN, ENHANCED_LEN, Enhanced, FRAME_LEN, Frame, FrameKind, PRIVATE_DATA_MAX, RtrSet,
    private_data_max,
};
pub use initiator::{Initiator, InitiatorConfig, Outcome};
pub use negotiated::{Negotiated, Revision, Role, Rtr};
pub use responder::{Accept, Request, Responder, ResponderConfig};

/// Bytes of the length field that begins an FPDU (RFC 5044 section 4.1).
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC that ends an FPDU, used or not (RFC 5044 section 4.1).
pub const CRC_LEN: usize = 4;
/// The longest FPDU: a length, as much as it can say, pad and CRC, in bytes.
pub const FPDU_MAX: usize = fpdu_len(u16::MAX as usize);
/// The smallest MULPDU that DDP must be given (RFC 5044 section 3), in bytes.
pub const MULPDU_MIN: u16 = 128;
/// The largest (RFC 5044 section 3), in bytes. The length field could say more, and what a peer sends may be larger.
pub const MULPDU_MAX: u16 = 64_768;

/// The MULPDU of a stream without markers for a TCP segment of `emss_bytes` (RFC 5044 section 4.5): a whole FPDU fits into
/// one segment. Where that is of no use, as on the loopback address, take [`MULPDU_MAX`].
pub fn mulpdu_for(emss_bytes: u32) -> u16 {
    let mulpdu = emss_bytes.saturating_sub(6 + emss_bytes % 4);
    mulpdu.clamp(MULPDU_MIN.into(), MULPDU_MAX.into()) as u16
}

/// Bytes that fill an FPDU up to a multiple of four (RFC 5044 section 4.1).
pub(crate) const fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).next_multiple_of(4) - (LENGTH_LEN + ulpdu_len)
}

/// Bytes of the whole FPDU around a segment of this length.
pub(crate) const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad(ulpdu_len) + CRC_LEN
}
