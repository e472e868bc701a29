//! Data path: one outgoing FPDU: its header, which payload follows, and its trailer (RFC 5044 section 4.1).

use thiserror::Error;

use crate::crc::Crc;
use crate::ddp::{Header, UNTAGGED_LEN};
use crate::mpa::{CRC_LEN, LENGTH_LEN, pad};
use crate::rdmap::Opcode;
use crate::rx::ExpectedResponse;
use crate::terminate::TERMINATE_LEN_MAX;
use crate::wire::InlineBytes;

/// Maximum number of bytes before the payload: length, untagged header, and the longest body.
pub const HEADER_MAX: usize = LENGTH_LEN + UNTAGGED_LEN + TERMINATE_LEN_MAX;
/// Maximum number of bytes after the payload: pad and CRC.
pub const TRAILER_MAX: usize = 3 + CRC_LEN;

/// The bytes after the payload.
pub type Trailer = InlineBytes<TRAILER_MAX>;

/// The message to which an FPDU belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// An operation of this side, by its identifier.
    Op(u64),
    /// The response to a request of the peer.
    Response,
    /// A message of the protocol itself: ready-to-receive, receipt or Terminate.
    Protocol,
}

/// The payload that follows a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// None: the message, if it has a body, is in the header bytes.
    None,
    /// Part of the data that an operation sends.
    Op {
        /// Identifier of the operation.
        id: u64,
        /// Offset of the part in bytes.
        offset: u32,
        /// Length in bytes.
        len: u32,
    },
    /// Part of the data that the peer reads. The peer's right was checked when the request arrived. Check again,
    /// because the buffer may have been deregistered. If it has, drop this FPDU, unless a byte of it was sent, and
    /// call [`crate::Connection::abort`].
    Source {
        /// Steering tag of the buffer.
        stag: u32,
        /// Offset of the part in bytes.
        to: u64,
        /// Length in bytes.
        len: u32,
    },
}

impl Payload {
    /// Payload length in bytes, less than 64 KiB.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Op { len, .. } | Self::Source { len, .. } => *len as usize,
        }
    }

    /// Whether there is no payload.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An FPDU to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fpdu {
    /// The message that this segment belongs to.
    pub origin: Origin,
    /// The payload that follows the header bytes.
    pub payload: Payload,
    /// This is the last segment of its message: when it has been sent, so has the message.
    pub last: bool,
    /// The response that this FPDU requests. A driver of a bare [`super::Sender`] passes it to
    /// [`crate::rx::Receiver::expect`].
    pub expects: Option<ExpectedResponse>,
    header: InlineBytes<HEADER_MAX>,
    crc: bool,
}

/// The payload that was passed to a [`TrailerBuilder`] does not have the FPDU's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the CRC covers {given} bytes of payload, but the FPDU has {wanted}")]
pub struct PayloadMismatch {
    /// Bytes passed to the trailer.
    pub given: usize,
    /// Bytes that the FPDU has.
    pub wanted: usize,
}

impl Fpdu {
    pub(super) fn new(origin: Origin, header: &Header, body: &[u8], payload: Payload, crc: bool) -> Self {
        let mut bytes = InlineBytes::new();
        let ulpdu_len = header.len() + body.len() + payload.len();
        debug_assert!(ulpdu_len <= usize::from(u16::MAX), "the sender cuts messages to MULPDU");
        bytes.put(&(ulpdu_len as u16).to_be_bytes());
        header.emit(&mut bytes);
        bytes.put(body);
        let last = match header {
            Header::Tagged(tagged) => tagged.last,
            Header::Untagged(untagged) => untagged.last,
        };
        Self { origin, payload, last, expects: None, header: bytes, crc }
    }

    pub(super) fn expecting(mut self, expected: ExpectedResponse) -> Self {
        self.expects = Some(expected);
        self
    }

    /// The bytes before the payload.
    #[inline]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Whether the peer has a complete message when it has this FPDU, and may deliver it as sent. The payload of a
    /// Write is placed and not delivered (RFC 5040 section 5.1), so its last segment may be garbage if a Terminate
    /// follows.
    pub fn completes_message(&self) -> bool {
        let opcode = self.header.get(LENGTH_LEN + 1).and_then(|control| Opcode::parse(*control));
        self.last && opcode != Some(Opcode::Write)
    }

    /// Length of the whole FPDU in bytes.
    pub fn len(&self) -> usize {
        let before = self.header.len() + self.payload.len();
        before + pad(before - LENGTH_LEN) + CRC_LEN
    }

    /// Always false: an FPDU has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the whole FPDU to `out`. `payload` appends the bytes that [`Self::payload`] names; if it fails, `out`
    /// may contain a part of the FPDU.
    #[inline]
    pub fn write<E>(
        &self,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = out.len();
        out.extend_from_slice(&self.header);
        payload(out)?;
        debug_assert_eq!(out.len() - at, self.header.len() + self.payload.len(), "all of the payload");
        end_fpdu(out, at, self.crc);
        Ok(())
    }

    /// Starts the trailer. Pass the payload to it in order, unless [`TrailerBuilder::wants_payload`] returns false.
    #[inline]
    pub fn trailer_builder(&self) -> TrailerBuilder {
        let crc = if self.crc { Crc::compute(&self.header) } else { Crc::new() };
        TrailerBuilder {
            crc,
            given: 0,
            fpdu_crc: self.crc,
            payload_len: self.payload.len(),
            header_len: self.header.len(),
        }
    }
}

/// Appends pad and CRC to the FPDU that begins at `at`. With CRCs off, the CRC field is zero (RFC 5044 section 4.1).
#[inline]
pub(super) fn end_fpdu(out: &mut Vec<u8>, at: usize, crc: bool) {
    let mut trailer = [0; TRAILER_MAX];
    let pad = pad(out.len() - at - LENGTH_LEN);
    if crc {
        let mut sum = Crc::compute(&out[at..]);
        sum.update(&trailer[..pad]);
        trailer[pad..pad + CRC_LEN].copy_from_slice(&sum.to_wire());
    }
    out.extend_from_slice(&trailer[..pad + CRC_LEN]);
}

/// A trailer whose CRC is being computed.
#[derive(Clone, Copy, Debug)]
pub struct TrailerBuilder {
    crc: Crc,
    given: usize,
    fpdu_crc: bool,
    payload_len: usize,
    header_len: usize,
}

impl TrailerBuilder {
    /// Whether a CRC of the payload is needed.
    #[inline]
    pub const fn wants_payload(&self) -> bool {
        self.fpdu_crc && self.payload_len > 0
    }

    /// Adds the next piece of the payload.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        self.given += piece.len();
        if self.fpdu_crc {
            self.crc.update(piece);
        }
    }

    /// Adds the next piece of the payload, given by its CRC.
    pub fn append(&mut self, piece: Crc, len: usize) {
        self.given += len;
        if self.fpdu_crc {
            self.crc.append(piece, len);
        }
    }

    /// Adds the next `len` bytes of the payload; the caller continues the CRC itself, for instance while copying.
    /// This avoids the cost of combining CRCs.
    #[inline]
    pub fn update_with(&mut self, len: usize, with: impl FnOnce(Crc) -> Crc) {
        self.given += len;
        if self.fpdu_crc {
            self.crc = with(self.crc);
        }
    }

    /// Returns the bytes after the payload. With CRCs off, the CRC field is zero (RFC 5044 section 4.1).
    #[inline]
    pub fn finish(mut self) -> Result<Trailer, PayloadMismatch> {
        let (given, wanted) = (self.given, self.payload_len);
        if self.fpdu_crc && given != wanted {
            return Err(PayloadMismatch { given, wanted });
        }
        let pad = &[0; 3][..pad(self.header_len - LENGTH_LEN + wanted)];
        let mut trailer = Trailer::new();
        trailer.put(pad);
        self.crc.update(pad);
        trailer.put(&if self.fpdu_crc { self.crc.to_wire() } else { [0; CRC_LEN] });
        Ok(trailer)
    }
}
