//! Floating point formats without a Rust type: half, x87's 80 bits and quad, added, multiplied, compared and converted in software,
//! rounded to nearest even.
//!
//! A number is `(-1)^negative * significand * 2^exponent`. Bits lost in a right shift are *jammed* into the lowest bit; with two
//! more bits than a format has, rounding then works as if nothing had been lost.

use std::cmp::Ordering;

/// The layout of a format's bits: sign, exponent, fraction, from the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    /// Bytes in memory.
    pub(crate) bytes: usize,
    exponent_bits: u32,
    /// Bits of the fraction.
    fraction_bits: u32,
    /// Whether the integer bit is stored.
    explicit: bool,
}

impl Format {
    pub(crate) const HALF: Self = Self { bytes: 2, exponent_bits: 5, fraction_bits: 10, explicit: false };
    pub(crate) const SINGLE: Self = Self { bytes: 4, exponent_bits: 8, fraction_bits: 23, explicit: false };
    pub(crate) const DOUBLE: Self = Self { bytes: 8, exponent_bits: 11, fraction_bits: 52, explicit: false };
    pub(crate) const X87: Self = Self { bytes: 16, exponent_bits: 15, fraction_bits: 63, explicit: true };
    pub(crate) const QUAD: Self = Self { bytes: 16, exponent_bits: 15, fraction_bits: 112, explicit: false };
    /// C's `long double` on this machine.
    pub(crate) const LONG_DOUBLE: Self = if cfg!(target_arch = "x86_64") { Self::X87 } else { Self::QUAD };

    const fn stored_bits(self) -> u32 {
        self.fraction_bits + self.explicit as u32
    }

    const fn exponent_max(self) -> u128 {
        (1 << self.exponent_bits) - 1
    }

    /// The exponent of a significand's last bit for the smallest numbers.
    const fn exponent_min(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1)) - self.fraction_bits as i32
    }

    /// Reads a number of this format from memory, in the host's byte order.
    pub(crate) fn read(self, bytes: &[u8]) -> Number {
        let mut padded = [0; 16];
        if cfg!(target_endian = "little") {
            padded[..self.bytes].copy_from_slice(bytes);
        } else {
            padded[16 - self.bytes..].copy_from_slice(bytes);
        }
        self.decode(u128::from_ne_bytes(padded))
    }

    /// Writes a number in this format; unused bytes are zero.
    pub(crate) fn write(self, number: Number, bytes: &mut [u8]) {
        let padded = self.encode(number).to_ne_bytes();
        if cfg!(target_endian = "little") {
            bytes.copy_from_slice(&padded[..self.bytes]);
        } else {
            bytes.copy_from_slice(&padded[16 - self.bytes..]);
        }
    }

    /// Decodes a number.
    pub(crate) fn decode(self, bits: u128) -> Number {
        let stored = self.stored_bits();
        let fraction = bits & ((1 << stored) - 1);
        let exponent = (bits >> stored) & self.exponent_max();
        let negative = (bits >> (stored + self.exponent_bits)) & 1 == 1;
        let below_point = fraction & ((1 << self.fraction_bits) - 1);
        if exponent == self.exponent_max() {
            return if below_point == 0 { Number::Infinite { negative } } else { Number::Nan };
        }
        let hidden = if exponent > 0 && !self.explicit { 1 << self.fraction_bits } else { 0 };
        let exponent = self.exponent_min() + exponent.saturating_sub(1) as i32;
        Number::Finite { negative, exponent, significand: fraction | hidden }
    }

    /// The bits of a number in this format, rounded to nearest, ties to even.
    pub(crate) fn encode(self, number: Number) -> u128 {
        let stored = self.stored_bits();
        let whole_bit = if self.explicit { 1 << self.fraction_bits } else { 0 };
        let infinite = (self.exponent_max() << stored) | whole_bit;
        let signed = |negative: bool, bits| bits | (u128::from(negative) << (stored + self.exponent_bits));
        match number {
            Number::Nan => infinite | (1 << (self.fraction_bits - 1)),
            Number::Infinite { negative } => signed(negative, infinite),
            Number::Finite { negative, exponent, significand } => {
                let (exponent, significand) = self.round(exponent, significand);
                let normal = significand >> self.fraction_bits != 0;
                let biased = if normal { (exponent - self.exponent_min() + 1) as u128 } else { 0 };
                if biased >= self.exponent_max() {
                    return signed(negative, infinite);
                }
                let kept =
                    if self.explicit { significand } else { significand & ((1 << self.fraction_bits) - 1) };
                signed(negative, (biased << stored) | kept)
            }
        }
    }

    /// Exponent and significand rounded to this format's bits, normalized unless the number is subnormal.
    fn round(self, exponent: i32, significand: u128) -> (i32, u128) {
        if significand == 0 {
            return (self.exponent_min(), 0);
        }
        let excess = 128 - significand.leading_zeros() as i32 - (self.fraction_bits as i32 + 1);
        let shift = excess.max(self.exponent_min() - exponent);
        let exponent = exponent + shift;
        if shift <= 0 {
            return (exponent, significand << -shift);
        }
        if shift >= 128 {
            return (exponent, 0);
        }
        let (kept, lost, half) = (significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1));
        let kept = kept + u128::from(lost > half || (lost == half && kept & 1 == 1));
        if kept >> (self.fraction_bits + 1) != 0 { (exponent + 1, kept >> 1) } else { (exponent, kept) }
    }
}

/// A number in no particular format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    Nan,
    Infinite { negative: bool },
    Finite { negative: bool, exponent: i32, significand: u128 },
}

impl Number {
    const ZERO: Self = Self::Finite { negative: false, exponent: 0, significand: 0 };

    /// The sum, exact except for a jammed last bit.
    pub(crate) fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinite { negative: a }, Self::Infinite { negative: b }) if a != b => Self::Nan,
            (Self::Infinite { .. }, _) => self,
            (_, Self::Infinite { .. }) => other,
            (
                Self::Finite { negative: n1, exponent: e1, significand: s1 },
                Self::Finite { negative: n2, exponent: e2, significand: s2 },
            ) => match (s1, s2) {
                (0, 0) => Self::Finite { negative: n1 && n2, exponent: 0, significand: 0 },
                (_, 0) => self,
                (0, _) => other,
                _ => add_finite((n1, e1, s1), (n2, e2, s2)),
            },
        }
    }

    /// The product, exact except for a jammed last bit.
    pub(crate) fn multiply(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (
                Self::Finite { exponent: e1, significand: s1, .. },
                Self::Finite { exponent: e2, significand: s2, .. },
            ) => {
                let (dropped, significand) = multiply_wide(s1, s2);
                Self::Finite { negative, exponent: e1 + e2 + dropped, significand }
            }
            (Self::Finite { significand: 0, .. }, _) | (_, Self::Finite { significand: 0, .. }) => Self::Nan,
            _ => Self::Infinite { negative },
        }
    }

    pub(crate) fn negate(self) -> Self {
        match self {
            Self::Nan => Self::Nan,
            Self::Infinite { negative } => Self::Infinite { negative: !negative },
            Self::Finite { negative, exponent, significand } => {
                Self::Finite { negative: !negative, exponent, significand }
            }
        }
    }

    fn is_negative(self) -> bool {
        match self {
            Self::Nan => false,
            Self::Infinite { negative } | Self::Finite { negative, .. } => negative,
        }
    }

    /// Compares two numbers; `None` with a NaN. Zeros are equal.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        if self == other && self != Self::Nan {
            return Some(Ordering::Equal);
        }
        match self.add(other.negate()) {
            Self::Nan => None,
            Self::Finite { significand: 0, .. } => Some(Ordering::Equal),
            difference if difference.is_negative() => Some(Ordering::Less),
            _ => Some(Ordering::Greater),
        }
    }
}

/// Adds two nonzero numbers. Both are scaled to 125 bits, which leaves space for a carry, and shifted-out bits are jammed.
fn add_finite(a: (bool, i32, u128), b: (bool, i32, u128)) -> Number {
    let high = |(negative, exponent, significand): (bool, i32, u128)| {
        let shift = significand.leading_zeros() as i32 - 3;
        let significand =
            if shift >= 0 { significand << shift } else { shift_right_jam(significand, -shift as u32) };
        (negative, exponent - shift, significand)
    };
    let (a, b) = (high(a), high(b));
    let (large, small) = if (a.1, a.2) >= (b.1, b.2) { (a, b) } else { (b, a) };
    let shifted = shift_right_jam(small.2, (large.1 - small.1) as u32);
    let significand = if large.0 == small.0 { large.2 + shifted } else { large.2 - shifted };
    if significand == 0 {
        return Number::ZERO;
    }
    Number::Finite { negative: large.0, exponent: large.1, significand }
}

/// Shifts right, and sets the last bit if any lost bit was set.
fn shift_right_jam(significand: u128, shift: u32) -> u128 {
    match shift {
        0 => significand,
        1..=127 => (significand >> shift) | u128::from(significand & ((1 << shift) - 1) != 0),
        _ => u128::from(significand != 0),
    }
}

/// The highest 128 bits of a product, jammed, and the number of bits dropped below them.
fn multiply_wide(a: u128, b: u128) -> (i32, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (a1, a0, b1, b0) = (a >> 64, a & LOW, b >> 64, b & LOW);
    let (lowest, cross, other) = (a0 * b0, a1 * b0, a0 * b1);
    let middle = (lowest >> 64) + (cross & LOW) + (other & LOW);
    let low = (middle << 64) | (lowest & LOW);
    let high = a1 * b1 + (cross >> 64) + (other >> 64) + (middle >> 64);
    let bits = 128 - high.leading_zeros();
    match bits {
        0 => (0, low),
        128 => (128, high | u128::from(low != 0)),
        _ => (bits as i32, (high << (128 - bits)) | shift_right_jam(low, bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn single(bits: u32) -> Number {
        Format::SINGLE.decode(u128::from(bits))
    }

    fn double(bits: u64) -> Number {
        Format::DOUBLE.decode(u128::from(bits))
    }

    /// Bits that are often special: small, huge, infinite or not a number.
    fn bits() -> impl Strategy<Value = u64> {
        let special = prop_oneof![Just(0_u64), Just(1 << 52), Just(0x7fe << 52), Just(0x7ff << 52), Just(1)];
        prop_oneof![
            3 => any::<u64>(),
            1 => (special, 0_u64..3, any::<bool>()).prop_map(|(b, d, n)| (b + d) | (u64::from(n) << 63)),
        ]
    }

    proptest! {
        #[test]
        fn doubles_match_the_processor(a in bits(), b in bits(), near in -60_i64..60) {
            let b = if near % 3 == 0 { a.wrapping_add((near << 52) as u64) ^ (b & 0x8000_0000_0000_fff1) } else { b };
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            same(double(a).add(double(b)), x + y)?;
            same(double(a).multiply(double(b)), x * y)?;
            prop_assert_eq!(double(a).compare(double(b)), x.partial_cmp(&y));
        }

        #[test]
        fn singles_match_the_processor(a in any::<u32>(), b in any::<u32>()) {
            let (x, y) = (f32::from_bits(a), f32::from_bits(b));
            let (sum, product) = (single(a).add(single(b)), single(a).multiply(single(b)));
            let encoded = Format::SINGLE.encode(sum);
            prop_assert!((x + y).is_nan() || encoded == u128::from((x + y).to_bits()));
            let encoded = Format::SINGLE.encode(product);
            prop_assert!((x * y).is_nan() || encoded == u128::from((x * y).to_bits()));
        }

        #[test]
        fn a_wider_format_preserves_values(a in bits(), small in any::<u32>()) {
            for format in [Format::X87, Format::QUAD] {
                let mut bytes = [0; 16];
                format.write(double(a), &mut bytes);
                same(format.read(&bytes), f64::from_bits(a))?;
            }
            let rounded = Format::SINGLE.encode(double(f64::from(f32::from_bits(small)).to_bits()));
            prop_assert!(f32::from_bits(small).is_nan() || rounded == u128::from(small));
        }

        #[test]
        fn doubles_round_to_singles_as_on_the_processor(a in bits()) {
            let x = f64::from_bits(a) as f32;
            prop_assert!(x.is_nan() || Format::SINGLE.encode(double(a)) == u128::from(x.to_bits()));
        }
    }

    fn same(number: Number, machine: f64) -> std::result::Result<(), TestCaseError> {
        let bits = Format::DOUBLE.encode(number) as u64;
        prop_assert!(
            (machine.is_nan() && number == Number::Nan) || bits == machine.to_bits(),
            "{number:?} is {bits:x}, not {:x}",
            machine.to_bits()
        );
        Ok(())
    }

    #[test]
    fn known_bits() {
        let one = double(1.0_f64.to_bits());
        assert_eq!(Format::X87.encode(one), 0x3fff_8000_0000_0000_0000);
        assert_eq!(Format::QUAD.encode(one), 0x3fff << 112);
        assert_eq!(Format::HALF.encode(one), 0x3c00);
        assert_eq!(Format::HALF.encode(double(65504.0_f64.to_bits())), 0x7bff, "the largest half");
        assert_eq!(Format::HALF.encode(double(65520.0_f64.to_bits())), 0x7c00, "rounds to infinity");
        assert_eq!(Format::X87.encode(Number::Infinite { negative: true }), 0xffff_8000_0000_0000_0000);
        let third = Number::Finite { negative: false, exponent: -127, significand: (1 << 127) / 3 * 2 + 1 };
        assert_eq!(Format::X87.encode(third), 0x3ffe_aaaa_aaaa_aaaa_aaab, "2/3");
    }
}
