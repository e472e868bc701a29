//! DDP segment headers (RFC 5041 section 4), which name the buffer and offset of a segment's payload.

use crate::wire::{FieldReader, InlineBytes};

/// Bytes of the header of a tagged segment (RFC 5041 section 4.2).
pub const TAGGED_LEN: usize = 14;
/// Bytes of the header of an untagged segment (RFC 5041 section 4.3).
pub const UNTAGGED_LEN: usize = 18;
/// The protocol's version, field DV (RFC 5041 section 4.1).
pub const VERSION: u8 = 1;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_BITS: u8 = 0x03;

/// Queue of Sends and Immediate Data (RFC 5040 section 5.3, RFC 7306 section 6).
pub const QUEUE_SEND: u32 = 0;
/// Queue of Read Requests and Atomic Requests (RFC 5040 section 5.2, RFC 7306 section 5).
pub const QUEUE_REQUEST: u32 = 1;
/// Queue of Terminate (RFC 5040 section 5.4).
pub const QUEUE_TERMINATE: u32 = 2;
/// Queue of Atomic Responses (RFC 7306 section 5).
pub const QUEUE_ATOMIC: u32 = 3;
/// Number of untagged queues.
pub const QUEUES: usize = 4;

/// The first byte of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// The payload goes to the buffer that a steering tag names (T).
    pub tagged: bool,
    /// This is the last segment of its message (L).
    pub last: bool,
    /// Protocol version, field DV.
    pub version: u8,
}

impl Control {
    /// Parses the byte. Reserved bits are not checked (RFC 5041 section 4.1).
    pub const fn parse(byte: u8) -> Self {
        Self { tagged: byte & TAGGED != 0, last: byte & LAST != 0, version: byte & VERSION_BITS }
    }

    /// Length of the whole header in bytes.
    pub const fn header_len(self) -> usize {
        if self.tagged { TAGGED_LEN } else { UNTAGGED_LEN }
    }

    const fn emit(tagged: bool, last: bool) -> u8 {
        (if tagged { TAGGED } else { 0 }) | (if last { LAST } else { 0 }) | VERSION
    }
}

/// Header of a tagged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// This is the last segment of its message.
    pub last: bool,
    /// The byte that DDP carries for RDMAP: RDMAP's control field.
    pub ulp: u8,
    /// Steering tag of the buffer.
    pub stag: u32,
    /// Offset in the buffer of this segment's payload, in bytes.
    pub to: u64,
}

/// Header of an untagged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untagged {
    /// This is the last segment of its message.
    pub last: bool,
    /// The byte that DDP carries for RDMAP: RDMAP's control field.
    pub ulp: u8,
    /// The word that DDP carries for RDMAP: the steering tag to invalidate.
    pub ulp_word: u32,
    /// Queue number.
    pub queue: u32,
    /// Message number in the queue; the first is 1, and the number wraps.
    pub msn: u32,
    /// Offset in the message of this segment's payload, in bytes.
    pub mo: u32,
}

/// A segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Tagged buffer model.
    Tagged(Tagged),
    /// Untagged buffer model.
    Untagged(Untagged),
}

impl Header {
    /// Parses a header; `None` if `bytes` are shorter than the header. The caller checks the version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let control = Control::parse(fields.u8()?);
        let (last, ulp) = (control.last, fields.u8()?);
        Some(if control.tagged {
            Self::Tagged(Tagged { last, ulp, stag: fields.u32()?, to: fields.u64()? })
        } else {
            Self::Untagged(Untagged {
                last,
                ulp,
                ulp_word: fields.u32()?,
                queue: fields.u32()?,
                msn: fields.u32()?,
                mo: fields.u32()?,
            })
        })
    }

    /// Length of the header in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// Always false: a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the header.
    pub fn emit<const N: usize>(&self, out: &mut InlineBytes<N>) {
        match self {
            Self::Tagged(tagged) => out.put(&tagged.to_wire()),
            Self::Untagged(untagged) => out.put(&untagged.to_wire()),
        }
    }
}

impl Tagged {
    /// The header's bytes. Reserved bits are zero (RFC 5041 section 4.1).
    #[inline]
    pub(crate) fn to_wire(self) -> [u8; TAGGED_LEN] {
        let mut bytes = [0; TAGGED_LEN];
        bytes[..2].copy_from_slice(&[Control::emit(true, self.last), self.ulp]);
        bytes[2..6].copy_from_slice(&self.stag.to_be_bytes());
        bytes[6..].copy_from_slice(&self.to.to_be_bytes());
        bytes
    }
}

impl Untagged {
    /// The header's bytes. Reserved bits are zero (RFC 5041 section 4.1).
    #[inline]
    pub(crate) fn to_wire(self) -> [u8; UNTAGGED_LEN] {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[..2].copy_from_slice(&[Control::emit(false, self.last), self.ulp]);
        bytes[2..6].copy_from_slice(&self.ulp_word.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.queue.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.msn.to_be_bytes());
        bytes[14..].copy_from_slice(&self.mo.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_header_has_the_bytes_of_the_rfc() {
        let header =
            Header::Tagged(Tagged { last: true, ulp: 0x40, stag: 0x0102_0304, to: 0x1112_1314_1516_1718 });
        let mut out = InlineBytes::<TAGGED_LEN>::new();
        header.emit(&mut out);
        let wire = [0xc1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_eq!(out.as_slice(), wire);
        assert_eq!(Header::parse(&wire), Some(header));
        assert_eq!(Header::parse(&wire[..13]), None);
    }

    #[test]
    fn untagged_header_has_the_bytes_of_the_rfc() {
        let header = Header::Untagged(Untagged {
            last: false,
            ulp: 0x44,
            ulp_word: 0xaabb_ccdd,
            queue: 0,
            msn: 7,
            mo: 0x0001_0000,
        });
        let mut out = InlineBytes::<UNTAGGED_LEN>::new();
        header.emit(&mut out);
        let wire = [0x01, 0x44, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0];
        assert_eq!(out.as_slice(), wire);
        assert_eq!(Header::parse(&wire), Some(header));
        assert_eq!(Header::parse(&wire[..17]), None);
    }

    /// RFC 5041 section 4.1: the receiver does not check reserved bits.
    #[test]
    fn reserved_bits_are_ignored() {
        assert_eq!(Control::parse(0xfd), Control { tagged: true, last: true, version: 1 });
        assert_eq!(Control::parse(0x3d), Control { tagged: false, last: false, version: 1 });
    }
}
