//! Terminate: the message that gives the peer the reason why a stream ends (RFC 5040 section 4.8; codes also of RFC
//! 5041 section 7.2, RFC 5044 section 8 and RFC 6581 section 8).

use std::fmt;

use crate::crc::Crc;
use crate::ddp::{Control, Header, QUEUE_TERMINATE, UNTAGGED_LEN, Untagged};
use crate::rdmap::{Opcode, READ_REQUEST_LEN};
use crate::wire::InlineBytes;

/// Bytes of the longest body: control, segment length, untagged header, Read Request.
pub const TERMINATE_LEN_MAX: usize = 4 + 2 + UNTAGGED_LEN + READ_REQUEST_LEN;

/// An error, and the layer that found it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TerminateCode {
    /// The layer: 0 RDMAP, 1 DDP, 2 the layer below DDP (MPA).
    pub layer: u8,
    /// The error type within the layer, 4 bits.
    pub etype: u8,
    /// The error code within the type.
    pub code: u8,
}

/// Declares the codes with their descriptions, and a table of both.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $layer:literal $etype:literal $code:literal $words:literal;)*) => {
        impl TerminateCode {
            $(
                #[doc = concat!("Layer ", $layer, ", type ", $etype, ", code ", $code, ": ", $words, ".")]
                pub const $name: Self = Self { layer: $layer, etype: $etype, code: $code };
            )*

            /// Every code that an RFC assigns, in words.
            pub const ASSIGNED: &[(Self, &str)] = &[$((Self::$name, $words)),*];
        }
    };
}

// RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8, RFC 6581 section 8.
codes! {
    RDMAP_CATASTROPHIC = 0 0 0 "RDMAP: local catastrophic error";
    STAG_INVALID = 0 1 0 "RDMAP: invalid steering tag";
    BOUNDS = 0 1 1 "RDMAP: outside of the buffer";
    ACCESS = 0 1 2 "RDMAP: no right to this access";
    NOT_ASSOCIATED = 0 1 3 "RDMAP: steering tag of another protection domain";
    TO_WRAP = 0 1 4 "RDMAP: offset wraps";
    CANNOT_INVALIDATE = 0 1 9 "RDMAP: steering tag cannot be invalidated";
    PROTECTION_UNSPECIFIED = 0 1 0xff "RDMAP: remote protection error";
    RDMAP_VERSION = 0 2 5 "RDMAP: wrong version";
    UNEXPECTED_OPCODE = 0 2 6 "RDMAP: unexpected opcode";
    STREAM_CATASTROPHIC = 0 2 7 "RDMAP: catastrophic error of this stream";
    GLOBAL_CATASTROPHIC = 0 2 8 "RDMAP: catastrophic error of all streams";
    OPERATION_CANNOT_INVALIDATE = 0 2 9 "RDMAP: steering tag cannot be invalidated (operation)";
    OPERATION_UNSPECIFIED = 0 2 0xff "RDMAP: remote operation error";
    DDP_CATASTROPHIC = 1 0 0 "DDP: local catastrophic error";
    TAGGED_STAG_INVALID = 1 1 0 "DDP: invalid steering tag";
    TAGGED_BOUNDS = 1 1 1 "DDP: outside of the buffer";
    TAGGED_NOT_ASSOCIATED = 1 1 2 "DDP: steering tag of another protection domain";
    TAGGED_TO_WRAP = 1 1 3 "DDP: offset wraps";
    TAGGED_VERSION = 1 1 4 "DDP: wrong version of a tagged segment";
    UNTAGGED_QUEUE = 1 2 1 "DDP: no such queue";
    UNTAGGED_NO_BUFFER = 1 2 2 "DDP: no buffer for the message";
    UNTAGGED_MSN = 1 2 3 "DDP: message number out of range";
    UNTAGGED_MO = 1 2 4 "DDP: wrong message offset";
    UNTAGGED_TOO_LONG = 1 2 5 "DDP: message too long for its buffer";
    UNTAGGED_VERSION = 1 2 6 "DDP: wrong version of an untagged segment";
    LLP_CLOSED = 2 0 1 "MPA: connection lost";
    LLP_CRC = 2 0 2 "MPA: CRC does not match";
    LLP_LENGTH = 2 0 3 "MPA: marker and length do not match";
    LLP_FRAME = 2 0 4 "MPA: invalid request or reply frame";
    LLP_CATASTROPHIC = 2 0 5 "MPA: local catastrophic error";
    LLP_IRD = 2 0 6 "MPA: insufficient resources for inbound reads";
    LLP_RTR = 2 0 7 "MPA: no ready-to-receive message in common";
}

impl TerminateCode {
    fn description(self) -> Option<&'static str> {
        Self::ASSIGNED.iter().find(|(code, _)| *code == self).map(|(_, words)| *words)
    }

    /// The description of the code, without numbers.
    pub fn name(self) -> &'static str {
        self.description().unwrap_or("unassigned code")
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, etype, code } = self;
        let words = self.description().unwrap_or("unassigned");
        write!(f, "{words} (layer {layer}, type {etype}, code {code:#04x})")
    }
}

/// The segment in which an error was found, as far as the Terminate repeats it to its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offender {
    /// Length of the whole segment, header included, in bytes.
    pub segment_len: u16,
    /// Its DDP header as it arrived, 14 or 18 bytes.
    pub header: InlineBytes<UNTAGGED_LEN>,
    /// The body of the Read Request, if the segment was one and had arrived.
    pub read_request: Option<[u8; READ_REQUEST_LEN]>,
}

/// A Terminate message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// The error.
    pub code: TerminateCode,
    /// The offending segment, if there is one.
    pub offender: Option<Offender>,
}

const LENGTH_INCLUDED: u8 = 0x80;
const HEADER_INCLUDED: u8 = 0x40;
const REQUEST_INCLUDED: u8 = 0x20;

impl Terminate {
    /// A Terminate that refers to no particular segment.
    pub const fn new(code: TerminateCode) -> Self {
        Self { code, offender: None }
    }

    /// Appends the body. Three bits indicate which headers are included (RFC 5040 section 4.8). We always include a
    /// segment's length together with its DDP header, and add the Read Request if the segment carried one.
    pub fn emit<const N: usize>(&self, out: &mut InlineBytes<N>) {
        let TerminateCode { layer, etype, code } = self.code;
        let included = match &self.offender {
            None => 0,
            Some(Offender { read_request: None, .. }) => LENGTH_INCLUDED | HEADER_INCLUDED,
            Some(_) => LENGTH_INCLUDED | HEADER_INCLUDED | REQUEST_INCLUDED,
        };
        out.put(&[layer << 4 | etype & 0x0f, code, included, 0]);
        if let Some(offender) = &self.offender {
            out.put(&offender.segment_len.to_be_bytes());
            out.put(&offender.header);
            if let Some(request) = &offender.read_request {
                out.put(request);
            }
        }
    }

    /// Parses a body leniently: the connection ends in any case, so strictness has no benefit.
    ///
    /// Linux siw swaps the parts of the first and third byte of the control word. That layout is assumed if only it
    /// gives a valid code.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (control, rest) = body.split_first_chunk::<4>()?;
        let [first, code, included, _] = *control;
        let as_specified = (first, included);
        let as_siw = (first.rotate_left(4), included.reverse_bits());
        let sensible = |(first, included): (u8, u8)| {
            let code = TerminateCode { layer: first >> 4, etype: first & 0x0f, code };
            code.description().is_some() && included & 0x1f == 0
        };
        let (first, included) =
            if !sensible(as_specified) && sensible(as_siw) { as_siw } else { as_specified };
        let code = TerminateCode { layer: first >> 4, etype: first & 0x0f, code };
        Some(Self { code, offender: Self::parse_offender(included, rest) })
    }

    fn parse_offender(included: u8, mut rest: &[u8]) -> Option<Offender> {
        let mut segment_len = 0;
        if included & LENGTH_INCLUDED != 0 {
            let (len, after) = rest.split_first_chunk()?;
            (segment_len, rest) = (u16::from_be_bytes(*len), after);
        }
        if included & HEADER_INCLUDED == 0 {
            return None;
        }
        let (found, after) = rest.split_at_checked(Control::parse(*rest.first()?).header_len())?;
        let mut header = InlineBytes::new();
        header.put(found);
        let read_request = if included & REQUEST_INCLUDED != 0 { after.first_chunk().copied() } else { None };
        Some(Offender { segment_len, header, read_request })
    }

    /// Appends the whole FPDU except its last four bytes, the CRC.
    pub(crate) fn emit_fpdu<const N: usize>(&self, out: &mut InlineBytes<N>) {
        let mut body = InlineBytes::<TERMINATE_LEN_MAX>::new();
        self.emit(&mut body);
        let header = Header::Untagged(Untagged {
            last: true,
            ulp: Opcode::Terminate.control(),
            ulp_word: 0,
            queue: QUEUE_TERMINATE,
            msn: 1,
            mo: 0,
        });
        out.put(&((UNTAGGED_LEN + body.len()) as u16).to_be_bytes());
        header.emit(out);
        out.put(&body);
    }

    /// The whole FPDU, for an error before the connection is established. Its CRC is right, whether CRCs are used or
    /// not.
    pub fn to_fpdu(&self) -> Vec<u8> {
        let mut out = InlineBytes::<{ 2 + UNTAGGED_LEN + TERMINATE_LEN_MAX }>::new();
        self.emit_fpdu(&mut out);
        let mut fpdu = out.to_vec();
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = Crc::compute(&fpdu).to_wire();
        fpdu.extend(crc);
        fpdu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(terminate: &Terminate) -> Vec<u8> {
        let mut out = InlineBytes::<TERMINATE_LEN_MAX>::new();
        terminate.emit(&mut out);
        out.to_vec()
    }

    fn header(bytes: &[u8]) -> InlineBytes<UNTAGGED_LEN> {
        let mut header = InlineBytes::new();
        header.put(bytes);
        header
    }

    #[test]
    fn terminate_bodies_have_known_bytes() {
        let bare = Terminate::new(TerminateCode::LLP_CRC);
        assert_eq!(body(&bare), [0x20, 0x02, 0, 0]);

        let tagged = [0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5];
        let offender = Offender { segment_len: 0x0102, header: header(&tagged), read_request: None };
        let write = Terminate { code: TerminateCode::TAGGED_BOUNDS, offender: Some(offender) };
        assert_eq!(body(&write), [&[0x11, 0x01, 0xc0, 0, 0x01, 0x02], &tagged[..]].concat());

        let untagged = [0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let offender = Offender { segment_len: 46, header: header(&untagged), read_request: Some([7; 28]) };
        let read = Terminate { code: TerminateCode::ACCESS, offender: Some(offender) };
        assert_eq!(body(&read), [&[0x01, 0x02, 0xe0, 0, 0, 46], &untagged[..], &[7; 28]].concat());
        assert_eq!(body(&read).len(), TERMINATE_LEN_MAX);

        for terminate in [bare, write, read] {
            assert_eq!(Terminate::parse(&body(&terminate)), Some(terminate));
        }
    }

    #[test]
    fn terminate_fpdu_has_known_bytes() {
        let fpdu = Terminate::new(TerminateCode::LLP_RTR).to_fpdu();
        let start = [0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 7, 0, 0];
        assert_eq!(fpdu[..24], start);
        assert_eq!(fpdu[24..], Crc::compute(&start).to_wire());
    }

    /// Linux siw on a little-endian machine: the layer is in the low half of byte 0, M in bit 0 of byte 2.
    #[test]
    fn terminate_in_layout_of_siw_is_parsed() {
        let code = |body: &[u8]| Terminate::parse(body).expect("long enough").code;
        assert_eq!(code(&[0x02, 0x02, 0, 0]), TerminateCode::LLP_CRC);
        assert_eq!(code(&[0x20, 0x06, 0, 0]), TerminateCode::LLP_IRD);
        let tagged = [0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5];
        let siw = [&[0x11, 0x00, 0x03, 0, 0, 14], &tagged[..]].concat();
        let terminate = Terminate::parse(&siw).expect("long enough");
        assert_eq!(terminate.code, TerminateCode::TAGGED_STAG_INVALID);
        assert_eq!(terminate.offender.map(|offender| offender.segment_len), Some(14));
    }

    #[test]
    fn terminate_parse_accepts_unassigned_codes() {
        assert_eq!(Terminate::parse(&[0, 0, 0]), None);
        let odd = Terminate::parse(&[0xff, 0xff, 0xff, 0xff, 0, 1]).expect("long enough");
        assert_eq!(odd.offender, None);
        assert!(odd.code.to_string().starts_with("unassigned (layer 15"));
    }

    #[test]
    fn terminate_codes_are_distinct() {
        let mut codes: Vec<TerminateCode> = TerminateCode::ASSIGNED.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), TerminateCode::ASSIGNED.len());
        assert_eq!(
            TerminateCode::LLP_CRC.to_string(),
            "MPA: CRC does not match (layer 2, type 0, code 0x02)"
        );
    }
}
