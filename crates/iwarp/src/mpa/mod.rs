//! MPA (RFC 5044, RFC 6581): the handshake before there are FPDUs, and what an FPDU adds to a DDP segment.
//!
//! Order of calls, for either side: send what [`Initiator::transmit`] has and say so with `transmitted`; feed what comes to
//! `handle_bytes`, which says how many bytes it took; what is left belongs to the [`crate::Connection`] that the outcome
//! makes. At `deadline`, call `handle_timeout`; when the stream ends, `handle_eof`. After an error there may still be
//! something in `transmit`: a rejecting reply, or a Terminate. Send it, then close.

mod frame;
mod initiator;
mod responder;

#[cfg(test)]
mod tests;

use std::time::Duration;

use thiserror::Error;

pub use frame::{
    DEPTH_MAX, DEPTH_UNKNOWN, ENHANCED_LEN, Enhanced, FRAME_LEN, Frame, FrameKind, PRIVATE_DATA_MAX, RtrSet,
    private_data_max,
};
pub use initiator::{Initiator, InitiatorConfig, Outcome};
pub use responder::{Accept, Request, Responder, ResponderConfig};

use crate::terminate::TerminateCode;

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

/// The revisions of the handshake that are spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Revision {
    /// RFC 5044.
    V1,
    /// RFC 6581.
    V2,
}

impl Revision {
    /// As it stands in frames.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The message that lets the responder speak (RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// An RDMA Write of no bytes.
    Write,
    /// An RDMA Read of no bytes.
    Read,
    /// A Send of no bytes.
    Send,
}

impl Rtr {
    /// In the order of preference of a responder that may choose. A Send first: Linux siw neither offers nor takes one, so
    /// both sides then know that the other is none, and answers reads of no bytes as it should. Then a Write, which asks
    /// nothing of anybody.
    const PREFERENCE: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    const fn as_set(self) -> RtrSet {
        match self {
            Self::Write => RtrSet::WRITE,
            Self::Read => RtrSet::READ,
            Self::Send => RtrSet::SEND,
        }
    }

    /// The only one in a set.
    fn only(set: RtrSet) -> Option<Self> {
        Self::PREFERENCE.into_iter().find(|rtr| rtr.as_set() == set)
    }
}

/// Who opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that sent the request; it speaks first (RFC 5044 section 7.1.2).
    Initiator,
    /// The side that replied; it speaks when the first FPDU has arrived.
    Responder,
}

/// What both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Of the side that has this.
    pub role: Role,
    /// Of the frames that were exchanged.
    pub revision: Revision,
    /// FPDUs carry CRCs, in both directions.
    pub crc: bool,
    /// Reads and atomics of the peer that this side serves at once.
    pub ird: u16,
    /// Reads and atomics that this side may have outstanding.
    pub ord: u16,
    /// The initiator's first FPDU, in peer-to-peer connections.
    pub rtr: Option<Rtr>,
    /// What the peer's program said.
    pub private_data: Vec<u8>,
}

impl Negotiated {
    /// Whether this peer may be asked by reads of no bytes whether something has arrived. Linux siw may not: while it sends, it
    /// answers them with bytes of whatever it sent before (docs/interop.md). It neither takes nor offers a Send as the first
    /// message, and speaks revision 2 unless it was asked in revision 1.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.may_understand_receipts() && self.ord > 0
    }

    /// Whether this peer may be one that knows what a receipt is ([`crate::outcome`]). To others it says nothing.
    pub(crate) fn may_understand_receipts(&self) -> bool {
        self.revision == Revision::V1 || self.rtr == Some(Rtr::Send)
    }
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HandshakeError {
    /// RFC 5044 section 7.1.2.
    #[error("what came is no MPA frame: the peer speaks another protocol, or both sides connected")]
    Key,
    /// RFC 5044 section 7.1.1.
    #[error("the frame announces {len} bytes of private data, 512 is the most")]
    PrivateDataTooLong {
        /// Bytes announced.
        len: usize,
    },
    /// RFC 6581 section 6.
    #[error("the frame lacks the four bytes that revision 2 needs")]
    EnhancedMissing,
    /// RFC 5044 section 7.1.1.
    #[error("the peer speaks revision {0} of MPA, which is not spoken here")]
    Revision(u8),
    /// The peer answered revision 2 in revision 1: see [`Initiator::may_retry_as_v1`].
    #[error("the peer speaks revision 1 of MPA only")]
    Downgraded,
    /// See the table of what is implemented in the crate's documentation.
    #[error("the peer wants markers in the stream, which are not made here")]
    MarkersDemanded,
    /// The initiator must wait for the reply (RFC 5044 section 7.1.2).
    #[error("the peer sent more before it had its reply")]
    EarlyBytes,
    /// RFC 6581 section 9.1.
    #[error("the peer wants {wanted} reads outstanding, {granted} are granted")]
    InsufficientIrd {
        /// What the side that sends reads asked for.
        wanted: u16,
        /// What the side that serves them grants.
        granted: u16,
    },
    /// RFC 6581 section 9.2.
    #[error("there is no ready-to-receive message that both sides take")]
    NoCommonRtr,
    /// The deadline passed.
    #[error("the peer did not finish the handshake in time")]
    Timeout,
    /// The stream ended.
    #[error("the peer closed the connection in the handshake")]
    Closed,
    /// The caller's mistake.
    #[error("{len} bytes of private data, {max} is the most")]
    OwnPrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The caller's mistake.
    #[error("{0} reads at once, {DEPTH_MAX} is the most that can be negotiated")]
    OwnDepth(u16),
    /// The caller's mistake: accepted or rejected without a request, or twice.
    #[error("there is no request to answer")]
    NoRequest,
}

impl HandshakeError {
    /// How an initiator tells the responder, after the reply (RFC 5044 section 8, RFC 6581 section 8).
    const fn terminate_code(&self) -> Option<TerminateCode> {
        Some(match self {
            Self::Key
            | Self::PrivateDataTooLong { .. }
            | Self::EnhancedMissing
            | Self::Revision(_)
            | Self::Downgraded
            | Self::MarkersDemanded => TerminateCode::LLP_FRAME,
            Self::InsufficientIrd { .. } => TerminateCode::LLP_IRD,
            Self::NoCommonRtr => TerminateCode::LLP_RTR,
            _ => return None,
        })
    }
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn set(&mut self, bytes: Vec<u8>) {
        *self = Self { bytes, sent: 0 };
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn sent(&mut self, n: usize) {
        self.sent = self.bytes.len().min(self.sent + n);
    }
}

fn check_depth(depth: u16) -> Result<(), HandshakeError> {
    if depth > DEPTH_MAX { Err(HandshakeError::OwnDepth(depth)) } else { Ok(()) }
}

fn check_private_data(len: usize, enhanced: bool) -> Result<(), HandshakeError> {
    let max = private_data_max(enhanced);
    if len > max { Err(HandshakeError::OwnPrivateData { len, max }) } else { Ok(()) }
}

/// How long a peer may take, unless the configuration says otherwise: what Linux siw grants.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
