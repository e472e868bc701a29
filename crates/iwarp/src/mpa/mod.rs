//! MPA (RFC 5044, RFC 6581): the handshake before the first FPDU, and the framing of DDP segments.
//!
//! Order of calls, for either side: send the bytes of [`Initiator::transmit`] and confirm them with `transmitted`;
//! pass received bytes to `handle_bytes`, which returns how many it consumed; the rest belongs to the
//! [`crate::Connection`] made from the outcome. Call `handle_timeout` at `deadline`, and `handle_eof` when the stream
//! ends. After an error `transmit` may still hold a rejecting reply or a Terminate. Send it, then close.

mod error;
mod frame;
mod initiator;
mod negotiated;
mod responder;
mod send_buffer;

#[cfg(test)]
mod tests;

pub use error::HandshakeError;
pub use frame::{
    DEPTH_MAX, DEPTH_UNKNOWN, ENHANCED_LEN, Enhanced, FRAME_LEN, Frame, FrameKind, PRIVATE_DATA_MAX, RtrSet,
    private_data_max,
};
pub use initiator::{HandshakeOutcome, Initiator, InitiatorConfig};
pub use negotiated::{Negotiated, Revision, Role, Rtr};
pub use responder::{AcceptParams, MpaRequest, Responder, ResponderConfig};

/// Bytes of the length field that begins an FPDU (RFC 5044 section 4.1).
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC that ends an FPDU, used or not (RFC 5044 section 4.1).
pub const CRC_LEN: usize = 4;
/// Maximum length of an FPDU in bytes: length field, the longest segment that the field can express, pad and CRC.
pub const FPDU_MAX: usize = fpdu_len(u16::MAX as usize);
/// Minimum MULPDU that MPA must offer to DDP (RFC 5044 section 3), in bytes.
pub const MULPDU_MIN: u16 = 128;
/// Maximum MULPDU (RFC 5044 section 3), in bytes. The length field can express more, and a peer may send larger
/// segments.
pub const MULPDU_MAX: u16 = 64_768;

/// The MULPDU of a stream without markers for a TCP segment of `emss_bytes` (RFC 5044 section 4.5): a whole FPDU fits
/// into one segment. Where this has no benefit, as on the loopback address, use [`MULPDU_MAX`].
pub fn mulpdu_for(emss_bytes: u32) -> u16 {
    let mulpdu = emss_bytes.saturating_sub(6 + emss_bytes % 4);
    mulpdu.clamp(MULPDU_MIN.into(), MULPDU_MAX.into()) as u16
}

/// Number of pad bytes, which extend an FPDU to a multiple of four (RFC 5044 section 4.1).
pub(crate) const fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).next_multiple_of(4) - (LENGTH_LEN + ulpdu_len)
}

/// Length of the whole FPDU around a segment of this length, in bytes.
pub(crate) const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad(ulpdu_len) + CRC_LEN
}
