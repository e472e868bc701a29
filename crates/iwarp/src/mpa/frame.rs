//! The request and reply frames that are exchanged before FPDUs (RFC 5044 section 7.1.1, RFC 6581 section 6).

use bitflags::bitflags;

use super::error::HandshakeError;
use crate::wire::FieldReader;

/// Bytes of a frame before its private data.
pub const FRAME_LEN: usize = 20;
/// Maximum private data of a frame (RFC 5044 section 7.1.1), in bytes.
pub const PRIVATE_DATA_MAX: usize = 512;
/// Bytes of the private data that revision 2 uses itself (RFC 6581 section 6).
pub const ENHANCED_LEN: usize = 4;
/// A depth of this value is not negotiated (RFC 6581 section 9.1).
pub const DEPTH_UNKNOWN: u16 = 0x3fff;
/// The largest depth that can be negotiated.
pub const DEPTH_MAX: u16 = DEPTH_UNKNOWN - 1;

const KEY_LEN: usize = 16;
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

const TOP: u16 = 0x8000;
const SECOND: u16 = 0x4000;

bitflags! {
    /// Ready-to-receive messages: types of the initiator's first FPDU, after which the responder may send (RFC 6581
    /// section 9.2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RtrSet: u8 {
        /// An RDMA Write of no bytes.
        const WRITE = 1;
        /// An RDMA Read of no bytes.
        const READ = 2;
        /// A Send of no bytes.
        const SEND = 4;
    }
}

/// Which side sent a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The initiator's.
    Request,
    /// The responder's.
    Reply,
}

impl FrameKind {
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => REQUEST_KEY,
            Self::Reply => REPLY_KEY,
        }
    }
}

/// The fields that revision 2 adds (RFC 6581 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enhanced {
    /// The sender of the frame wants a peer-to-peer connection, in which the responder may send first.
    pub peer_to_peer: bool,
    /// The ready-to-receive messages offered, or the one chosen.
    pub rtr: RtrSet,
    /// Reads and atomics that the sender of the frame serves concurrently, 14 bits; [`DEPTH_UNKNOWN`] means not
    /// negotiated.
    pub ird: u16,
    /// Reads and atomics that the sender of the frame will have outstanding, 14 bits; [`DEPTH_UNKNOWN`] means not
    /// negotiated.
    pub ord: u16,
}

impl Enhanced {
    fn parse(words: [u8; ENHANCED_LEN]) -> Self {
        let [a, b, c, d] = words;
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let mut rtr = RtrSet::empty();
        rtr.set(RtrSet::SEND, ird & SECOND != 0);
        rtr.set(RtrSet::WRITE, ord & TOP != 0);
        rtr.set(RtrSet::READ, ord & SECOND != 0);
        Self { peer_to_peer: ird & TOP != 0, rtr, ird: ird & DEPTH_UNKNOWN, ord: ord & DEPTH_UNKNOWN }
    }

    fn emit(self) -> [u8; ENHANCED_LEN] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let ird = self.ird & DEPTH_UNKNOWN
            | bit(self.peer_to_peer, TOP)
            | bit(self.rtr.contains(RtrSet::SEND), SECOND);
        let ord = self.ord & DEPTH_UNKNOWN
            | bit(self.rtr.contains(RtrSet::WRITE), TOP)
            | bit(self.rtr.contains(RtrSet::READ), SECOND);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }
}

/// A request or reply frame of MPA (RFC 5044 section 7.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Whether this is a request or a reply.
    pub kind: FrameKind,
    /// The sender of the frame wants markers in the stream that it receives (M).
    pub markers: bool,
    /// The sender of the frame wants CRCs in both directions (C).
    pub crc: bool,
    /// The connection is refused (R; replies only).
    pub reject: bool,
    /// 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// The fields of revision 2, if they are present (S).
    pub enhanced: Option<Enhanced>,
    /// Private data of the program, without the bytes of `enhanced`.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// Serializes the frame. The caller has checked that the private data fits: [`private_data_max`].
    pub fn emit(&self) -> Vec<u8> {
        debug_assert!(self.private_data.len() <= private_data_max(self.enhanced.is_some()));
        let mut flags = 0;
        for (set, bit) in [
            (self.markers, MARKERS),
            (self.crc, CRC),
            (self.reject, REJECT),
            (self.enhanced.is_some(), ENHANCED),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let enhanced = self.enhanced.map(Enhanced::emit);
        let extra: &[u8] = enhanced.as_ref().map_or(&[], |words| words);
        let mut out = self.kind.key().to_vec();
        out.extend([flags, self.revision]);
        out.extend(((extra.len() + self.private_data.len()) as u16).to_be_bytes());
        out.extend(extra);
        out.extend(&self.private_data);
        out
    }
}

/// Maximum private data of a program in bytes, with or without the words of revision 2.
pub const fn private_data_max(enhanced: bool) -> usize {
    if enhanced { PRIVATE_DATA_MAX - ENHANCED_LEN } else { PRIVATE_DATA_MAX }
}

/// Collects one frame from pieces of any size; buffers at most one frame.
#[derive(Debug)]
pub(super) struct FrameReader {
    kind: FrameKind,
    bytes: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(kind: FrameKind) -> Self {
        Self { kind, bytes: Vec::with_capacity(FRAME_LEN) }
    }

    /// Consumes bytes of the frame; returns their number, and the frame when it is complete. Input that cannot become
    /// a frame fails at the first byte that shows it.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), HandshakeError> {
        let mut taken = 0;
        loop {
            let want = self.wanted_len()?;
            if want == self.bytes.len() {
                return Ok((taken, Some(self.parse()?)));
            }
            let n = (want - self.bytes.len()).min(bytes.len() - taken);
            if n == 0 {
                return Ok((taken, None));
            }
            self.bytes.extend_from_slice(&bytes[taken..taken + n]);
            taken += n;
        }
    }

    /// Length of the frame in bytes, as far as it is known. Checks the bytes received so far.
    fn wanted_len(&self) -> Result<usize, HandshakeError> {
        // RFC 5044 section 7.1.2: other beginnings are not an MPA frame.
        let seen = self.bytes.len().min(KEY_LEN);
        if self.bytes[..seen] != self.kind.key()[..seen] {
            return Err(HandshakeError::Key);
        }
        let Some(len) = self.bytes.get(FRAME_LEN - 2..FRAME_LEN) else { return Ok(FRAME_LEN) };
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        // RFC 5044 section 7.1.1.
        if len > PRIVATE_DATA_MAX {
            return Err(HandshakeError::PrivateDataTooLong { len });
        }
        Ok(FRAME_LEN + len)
    }

    /// Parses a complete frame. Reserved bits are not checked (RFC 5044 section 7.1.1); Linux siw sets some.
    fn parse(&self) -> Result<Frame, HandshakeError> {
        let mut fields = FieldReader(&self.bytes[KEY_LEN..]);
        let short = HandshakeError::EnhancedMissing;
        let (flags, revision) = (fields.u8().ok_or(short.clone())?, fields.u8().ok_or(short.clone())?);
        fields.u16().ok_or(short.clone())?;
        // S is a reserved bit before revision 2.
        let enhanced = if revision >= 2 && flags & ENHANCED != 0 {
            Some(Enhanced::parse(fields.take().ok_or(short)?))
        } else {
            None
        };
        Ok(Frame {
            kind: self.kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0 && self.kind == FrameKind::Reply,
            revision,
            enhanced,
            private_data: fields.0.to_vec(),
        })
    }
}

/// Checks that a program may ask for this read depth.
pub(super) fn check_depth(depth: u16) -> Result<(), HandshakeError> {
    if depth > DEPTH_MAX { Err(HandshakeError::OwnDepth { depth, max: DEPTH_MAX }) } else { Ok(()) }
}

/// Checks that this much private data of a program fits.
pub(super) fn check_private_data(len: usize, enhanced: bool) -> Result<(), HandshakeError> {
    let max = private_data_max(enhanced);
    if len > max { Err(HandshakeError::OwnPrivateData { len, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: FrameKind, bytes: &[u8]) -> Result<(usize, Option<Frame>), HandshakeError> {
        FrameReader::new(kind).feed(bytes)
    }

    #[test]
    fn revision_1_request_is_parsed_from_its_bytes() {
        let wire = b"MPA ID Req Frame\x40\x01\x00\x03abcX";
        let (taken, frame) = read(FrameKind::Request, wire).expect("valid");
        let frame = frame.expect("a whole frame");
        assert_eq!(taken, 23, "what follows is left");
        assert!(frame.crc && !frame.markers && frame.enhanced.is_none());
        assert_eq!((frame.revision, frame.private_data.as_slice()), (1, b"abc".as_slice()));
        assert_eq!(frame.emit(), wire[..23]);
    }

    #[test]
    fn revision_2_reply_is_parsed_from_its_bytes() {
        let wire = b"MPA ID Rep Frame\x50\x02\x00\x05\xc0\x10\x80\x20d";
        let (taken, frame) = read(FrameKind::Reply, wire).expect("valid");
        let frame = frame.expect("a whole frame");
        assert_eq!(taken, wire.len());
        let rtr = RtrSet::SEND | RtrSet::WRITE;
        assert_eq!(frame.enhanced, Some(Enhanced { peer_to_peer: true, rtr, ird: 16, ord: 32 }));
        assert_eq!(frame.private_data, b"d");
        assert_eq!(frame.emit(), wire);
    }

    #[test]
    fn each_flag_sets_its_bit() {
        let enhanced = Enhanced { peer_to_peer: false, rtr: RtrSet::READ, ird: 0x3fff, ord: 0 };
        let frame = Frame {
            kind: FrameKind::Reply,
            markers: true,
            crc: true,
            reject: true,
            revision: 2,
            enhanced: Some(enhanced),
            private_data: Vec::new(),
        };
        assert_eq!(frame.emit(), b"MPA ID Rep Frame\xf0\x02\x00\x04\x3f\xff\x40\x00");
        assert_eq!(read(FrameKind::Reply, &frame.emit()), Ok((24, Some(frame))));
    }

    /// RFC 5044 section 7.1.1: reserved bits are not checked, and R has no meaning in a request.
    #[test]
    fn reserved_bits_are_ignored() {
        let (_, frame) = read(FrameKind::Request, b"MPA ID Req Frame\x3f\x01\x00\x00").expect("valid");
        let frame = frame.expect("a whole frame");
        assert!(!frame.reject && !frame.crc && frame.enhanced.is_none());
    }

    #[test]
    fn invalid_frame_fails_at_first_wrong_byte() {
        assert_eq!(read(FrameKind::Request, b"G"), Err(HandshakeError::Key));
        assert_eq!(read(FrameKind::Request, b"MPA ID Rep"), Err(HandshakeError::Key));
        assert_eq!(read(FrameKind::Request, b"MPA ID Re"), Ok((9, None)));
        let long = b"MPA ID Req Frame\x00\x01\x02\x01";
        assert_eq!(read(FrameKind::Request, long), Err(HandshakeError::PrivateDataTooLong { len: 513 }));
        let short = b"MPA ID Req Frame\x10\x02\x00\x03abc";
        assert_eq!(read(FrameKind::Request, short), Err(HandshakeError::EnhancedMissing));
    }

    #[test]
    fn maximum_private_data_is_read_byte_by_byte() {
        for enhanced in [None, Some(Enhanced { peer_to_peer: false, rtr: RtrSet::empty(), ird: 1, ord: 2 })] {
            let private_data = vec![7; private_data_max(enhanced.is_some())];
            let frame = Frame {
                kind: FrameKind::Request,
                markers: false,
                crc: false,
                reject: false,
                revision: 2,
                enhanced,
                private_data,
            };
            let wire = frame.emit();
            assert_eq!(wire.len(), FRAME_LEN + PRIVATE_DATA_MAX);
            let mut reader = FrameReader::new(FrameKind::Request);
            let (last, rest) = wire.split_last().expect("not empty");
            for byte in rest {
                assert_eq!(reader.feed(&[*byte]), Ok((1, None)));
            }
            assert_eq!(reader.feed(&[*last]), Ok((1, Some(frame))));
        }
    }
}
