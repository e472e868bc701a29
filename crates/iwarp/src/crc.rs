//! CRC32c as FPDUs carry it, computed piece by piece or combined from the CRCs of pieces.

use crc_fast::{CrcAlgorithm, Digest};

/// The running state of a CRC32c (RFC 5044 section 4.4; polynomial and bit reflection of RFC 3720 section 12.1).
///
/// On the wire the least significant byte of the value comes first: RFC 5044 uses the bit order of RFC 3720.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// The CRC of no bytes.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The CRC of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        let mut crc = Self::new();
        crc.update(bytes);
        crc
    }

    /// Wraps a CRC value that was computed elsewhere, for instance by a copy loop.
    pub const fn from_value(value: u32) -> Self {
        Self(value)
    }

    /// The value in the usual notation, where `crc32c("123456789") = 0xe3069283`.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Continues the CRC over these bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        // The register starts with all bits set, and its final content is inverted (RFC 3720 section 12.1).
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
        digest.update(bytes);
        self.0 = !(digest.get_state() as u32);
    }

    /// Continues the CRC over `len` bytes whose CRC is `piece`. This takes longer than reading a few KiB,
    /// so use it only for bytes that cannot be read.
    pub const fn append(&mut self, piece: Self, len: usize) {
        // A CRC is a remainder. Appending `len` bytes multiplies it by x to the power of 8 * `len`. The usual
        // algorithm with matrices took 33 us where this one takes less than 1 us.
        let (mut shifted, mut left, mut power) = (self.0, len, 3);
        while left > 0 {
            if left & 1 == 1 {
                shifted = multiply(shifted, POWERS[power]);
            }
            left >>= 1;
            power += 1;
        }
        self.0 = shifted ^ piece.0;
    }

    /// The four bytes at the end of an FPDU.
    pub const fn to_wire(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// The CRC polynomial, lowest power in the highest bit, without the power of 32 (RFC 3720 section 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The powers x^1, x^2, x^4, x^8 and so on, modulo the CRC polynomial. The table covers every `usize` number of
/// bytes.
const POWERS: [u32; 67] = {
    let mut powers = [1 << 30; 67];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials over GF(2), modulo the polynomial of the CRC.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut term, mut rest) = (0, b, a);
    while rest != 0 {
        // The coefficient of the next power is the highest bit of `rest`; `term` is `b` times that power.
        if rest >> 31 == 1 {
            product ^= term;
        }
        rest <<= 1;
        term = term >> 1 ^ if term & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720 appendix B.4 (RFC 7143 appendix A.4), which print the bytes as they are sent.
    #[test]
    fn crc_matches_examples_of_rfc_3720() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(Crc::compute(&[0; 32]).to_wire(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Crc::compute(&[0xff; 32]).to_wire(), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(Crc::compute(&up).to_wire(), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(Crc::compute(&down).to_wire(), [0x5c, 0xdb, 0x3f, 0x11]);
        assert_eq!(Crc::compute(b"123456789").value(), 0xe306_9283);
    }

    /// The iSCSI read command of the same appendices.
    #[test]
    fn crc_matches_iscsi_read_command() {
        let mut command = [0; 48];
        command[0] = 0x01;
        command[1] = 0xc0;
        command[16] = 0x14;
        command[22] = 0x04;
        command[27] = 0x14;
        command[31] = 0x18;
        command[32] = 0x28;
        command[40] = 0x02;
        assert_eq!(Crc::compute(&command).to_wire(), [0x56, 0x3a, 0x96, 0xd9]);
    }

    /// Goal: the CRC is right for every length and alignment. Method: compares with the `crc32c` crate.
    #[test]
    fn crc_agrees_with_other_crate() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|i| (i * 31 + i / 7) as u8).collect();
        for len in (0..600).chain([1023, 1024, 4095, 4096, 16_384, 65_535, 69_990]) {
            for begin in [0, 1, 7] {
                let (bytes, before) = (&bytes[begin..begin + len], 0x1234_5678_u32.wrapping_mul(len as u32));
                let mut crc = Crc::from_value(before);
                crc.update(bytes);
                assert_eq!(crc.value(), crc32c::crc32c_append(before, bytes), "{len} bytes from {begin}");
            }
        }
    }

    /// Compares with the `crc32c` crate.
    #[test]
    fn crc_append_agrees_with_other_crate() {
        for len in [1, 7, 508, 65_535, 1 << 31, usize::MAX >> 8] {
            for (a, b) in [(0, 0), (1, 0), (0xdead_beef, 0x1234_5678), (u32::MAX, u32::MAX)] {
                let mut joined = Crc::from_value(a);
                joined.append(Crc::from_value(b), len);
                assert_eq!(joined.value(), crc32c::crc32c_combine(a, b, len), "{a:x} {b:x} {len}");
            }
        }
    }

    #[test]
    fn pieces_and_their_crcs_give_the_same() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 + 3) as u8).collect();
        let whole = Crc::compute(&bytes);
        for cut in [0, 1, 2, 3, 4, 5, 63, 64, 65, 500, 999, 1000] {
            let (head, tail) = bytes.split_at(cut);
            let mut fed = Crc::new();
            fed.update(head);
            fed.update(tail);
            let mut joined = Crc::new();
            joined.append(Crc::compute(head), head.len());
            joined.append(Crc::compute(tail), tail.len());
            assert_eq!((fed, joined), (whole, whole), "cut at {cut}");
        }
    }
}
