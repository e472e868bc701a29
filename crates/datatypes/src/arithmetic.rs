//! The predefined operators on elements of basic types, in bytes without alignment (MPI 5.0, section 6.9.2).
//!
//! Elements of the machine's types are processed as byte arrays of constant length, which the compiler turns into vector
//! instructions: those of every x86-64, and again those of AVX2, which take half as long where the processor has them. AVX-512 was
//! not faster than AVX2 for 64 KiB on an AMD EPYC. Other floating point formats use software.

use crate::float::{Format, Number};
use crate::operator::Operator;
use crate::{Basic, BasicKind, integer};
use std::cmp::Ordering;

/// `right` becomes `left op right`; an illegal combination leaves it unchanged.
pub(crate) fn reduce(operator: Operator, basic: Basic, left: &[u8], right: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if right.len() >= avx2::BYTES_MIN && std::is_x86_feature_detected!("avx2") {
        return avx2::reduce(operator, basic, left, right);
    }
    reduce_inline(operator, basic, left, right);
}

/// The same code for processors with AVX2. None of its instructions rounds otherwise, so the bits are the same.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Basic, Operator, reduce_inline};

    /// From this many bytes on, another call pays.
    pub(super) const BYTES_MIN: usize = 256;

    /// Does [`reduce`](super::reduce), after the caller has found AVX2.
    #[expect(unsafe_code, reason = "to call what not every processor executes")]
    #[inline]
    pub(super) fn reduce(operator: Operator, basic: Basic, left: &[u8], right: &mut [u8]) {
        // SAFETY: the processor has AVX2, as the only caller has checked. Test: bits_are_the_same_with_and_without_avx2.
        unsafe { reduce_with(operator, basic, left, right) }
    }

    #[target_feature(enable = "avx2")]
    fn reduce_with(operator: Operator, basic: Basic, left: &[u8], right: &mut [u8]) {
        reduce_inline(operator, basic, left, right);
    }
}

#[inline(always)] // once for each set of instructions
fn reduce_inline(operator: Operator, basic: Basic, left: &[u8], right: &mut [u8]) {
    match (basic.reduced_kind(), basic.size()) {
        (BasicKind::CUnsigned | BasicKind::Byte, 1) => reduce_u8(operator, left, right),
        (BasicKind::CUnsigned, 2) => reduce_u16(operator, left, right),
        (BasicKind::CUnsigned, 4) => reduce_u32(operator, left, right),
        (BasicKind::CUnsigned, 8) => reduce_u64(operator, left, right),
        // Truth values are only zero or not.
        (BasicKind::CSigned | BasicKind::FInteger | BasicKind::Multi | BasicKind::Logical, size) => {
            match size {
                1 => reduce_i8(operator, left, right),
                2 => reduce_i16(operator, left, right),
                4 => reduce_i32(operator, left, right),
                8 => reduce_i64(operator, left, right),
                _ => reduce_i128(operator, left, right),
            }
        }
        (BasicKind::Real, 4) => reduce_f32(operator, left, right),
        (BasicKind::Real, 8) => reduce_f64(operator, left, right),
        (BasicKind::Complex, 8) if operator == Operator::Prod => multiply_complex_f32(left, right),
        (BasicKind::Complex, 16) if operator == Operator::Prod => multiply_complex_f64(left, right),
        // Complex numbers are summed by their parts.
        (BasicKind::Complex, 8) => reduce_f32(operator, left, right),
        (BasicKind::Complex, 16) => reduce_f64(operator, left, right),
        (kind, _) => {
            if let Some(format) = basic.format() {
                reduce_in_software(operator, kind, format, left, right);
            }
        }
    }
}

/// Compares two elements; `None` for a NaN, and for types without an order.
pub(crate) fn compare(basic: Basic, left: &[u8], right: &[u8]) -> Option<Ordering> {
    match (basic.kind(), basic.format()) {
        (BasicKind::Real, Some(format)) => format.read(left).compare(format.read(right)),
        (BasicKind::CUnsigned, _) => Some(integer::read(left, false).cmp(&integer::read(right, false))),
        (BasicKind::CSigned | BasicKind::FInteger | BasicKind::Multi, _) => {
            Some(integer::read(left, true).cmp(&integer::read(right, true)))
        }
        _ => None,
    }
}

impl Basic {
    /// `right` becomes `left op right`, element by element. Both sides have the same number of whole elements of this type, and
    /// need no alignment. A type that the operator does not reduce stays unchanged.
    pub fn reduce(self, operator: Operator, left: &[u8], right: &mut [u8]) {
        reduce(operator, self, left, right);
    }

    /// Whether an operator reduces elements of this type: as listed in the standard, and `MPI_CHAR` like `MPI_SIGNED_CHAR`.
    #[inline]
    pub fn is_reduced_by(self, operator: Operator) -> bool {
        operator.reduces(self.reduced_kind())
    }

    /// Compares two elements of this type, in bytes that need no alignment; `None` for a NaN, and for types without an order.
    pub fn compare(self, left: &[u8], right: &[u8]) -> Option<Ordering> {
        compare(self, left, right)
    }
}

/// Replaces each `N` bytes on the right by the combination of both sides.
#[inline(always)] // as above
fn combine_elements<const N: usize>(
    left: &[u8],
    right: &mut [u8],
    combine: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (left, _) = left.as_chunks::<N>();
    let (right, _) = right.as_chunks_mut::<N>();
    for (right, left) in right.iter_mut().zip(left) {
        *right = combine(*left, *right);
    }
}

macro_rules! integers {
    ($($name:ident $type:ty;)*) => {$(
        #[inline(always)] // as above
        fn $name(operator: Operator, left: &[u8], right: &mut [u8]) {
            macro_rules! with {
                ($combine:expr) => {
                    combine_elements(left, right, |left, right| {
                        let combine: fn($type, $type) -> $type = $combine;
                        combine(<$type>::from_ne_bytes(left), <$type>::from_ne_bytes(right)).to_ne_bytes()
                    })
                };
            }
            match operator {
                Operator::Sum => with!(|a, b| a.wrapping_add(b)),
                Operator::Prod => with!(|a, b| a.wrapping_mul(b)),
                Operator::Min => with!(|a, b| a.min(b)),
                Operator::Max => with!(|a, b| a.max(b)),
                Operator::Band => with!(|a, b| a & b),
                Operator::Bor => with!(|a, b| a | b),
                Operator::Bxor => with!(|a, b| a ^ b),
                Operator::Land => with!(|a, b| <$type>::from(a != 0 && b != 0)),
                Operator::Lor => with!(|a, b| <$type>::from(a != 0 || b != 0)),
                Operator::Lxor => with!(|a, b| <$type>::from((a != 0) != (b != 0))),
                Operator::Minloc | Operator::Maxloc | Operator::Replace | Operator::NoOp => {}
            }
        }
    )*};
}

integers! {
    reduce_i8 i8;
    reduce_i16 i16;
    reduce_i32 i32;
    reduce_i64 i64;
    reduce_i128 i128;
    reduce_u8 u8;
    reduce_u16 u16;
    reduce_u32 u32;
    reduce_u64 u64;
}

macro_rules! floats {
    ($($name:ident $complex:ident $type:ty, $size:literal;)*) => {$(
        #[inline(always)] // as above
        fn $name(operator: Operator, left: &[u8], right: &mut [u8]) {
            macro_rules! with {
                ($combine:expr) => {
                    combine_elements(left, right, |left, right| {
                        let combine: fn($type, $type) -> $type = $combine;
                        combine(<$type>::from_ne_bytes(left), <$type>::from_ne_bytes(right)).to_ne_bytes()
                    })
                };
            }
            match operator {
                Operator::Sum => with!(|a, b| a + b),
                Operator::Prod => with!(|a, b| a * b),
                // As in software: the right operand unless the left one wins.
                Operator::Min => with!(|a, b| if a < b { a } else { b }),
                Operator::Max => with!(|a, b| if a > b { a } else { b }),
                _ => {}
            }
        }

        #[inline(always)] // as above
        fn $complex(left: &[u8], right: &mut [u8]) {
            const SIZE: usize = $size;
            let (left, _) = left.as_chunks::<SIZE>();
            let (left, _) = left.as_chunks::<2>();
            let (right, _) = right.as_chunks_mut::<SIZE>();
            let (right, _) = right.as_chunks_mut::<2>();
            for ([re, im], [a, b]) in right.iter_mut().zip(left) {
                let (a, b) = (<$type>::from_ne_bytes(*a), <$type>::from_ne_bytes(*b));
                let (c, d) = (<$type>::from_ne_bytes(*re), <$type>::from_ne_bytes(*im));
                *re = (a * c - b * d).to_ne_bytes();
                *im = (a * d + b * c).to_ne_bytes();
            }
        }
    )*};
}

floats! {
    reduce_f32 multiply_complex_f32 f32, 4;
    reduce_f64 multiply_complex_f64 f64, 8;
}

/// Floating point formats without a machine type.
fn reduce_in_software(operator: Operator, kind: BasicKind, format: Format, left: &[u8], right: &mut [u8]) {
    let rounded = |number: Number| format.decode(format.encode(number));
    let product = |a: Number, b: Number| rounded(a.multiply(b));
    if kind == BasicKind::Complex && operator == Operator::Prod {
        let width = 2 * format.bytes;
        for (left, right) in left.chunks_exact(width).zip(right.chunks_exact_mut(width)) {
            let halves =
                |bytes: &[u8]| (format.read(&bytes[..format.bytes]), format.read(&bytes[format.bytes..]));
            let ((a, b), (c, d)) = (halves(left), halves(right));
            format.write(product(a, c).add(product(b, d).negate()), &mut right[..format.bytes]);
            format.write(product(a, d).add(product(b, c)), &mut right[format.bytes..]);
        }
        return;
    }
    for (left, right) in left.chunks_exact(format.bytes).zip(right.chunks_exact_mut(format.bytes)) {
        let (a, b) = (format.read(left), format.read(right));
        let result = match operator {
            Operator::Sum => a.add(b),
            Operator::Prod => a.multiply(b),
            Operator::Min if a.compare(b) == Some(Ordering::Less) => a,
            Operator::Max if a.compare(b) == Some(Ordering::Greater) => a,
            _ => b,
        };
        format.write(result, right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_same_with_and_without_avx2() {
        let bytes = |seed: u64, len: usize| -> Vec<u8> {
            let next = |state: &mut u64| {
                *state =
                    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                Some((*state >> 33) as u8)
            };
            let mut state = seed;
            std::iter::from_fn(|| next(&mut state)).take(len).collect()
        };
        for basic in Basic::ALL.iter().copied() {
            for operator in Operator::ALL.iter().copied().filter(|operator| basic.is_reduced_by(*operator)) {
                for count in [1, 16, 33, 500] {
                    let len = count * basic.size() as usize;
                    let (left, right) = (bytes(1, len), bytes(2, len));
                    let (mut plain, mut chosen) = (right.clone(), right);
                    reduce_inline(operator, basic, &left, &mut plain);
                    reduce(operator, basic, &left, &mut chosen);
                    assert_eq!(plain, chosen, "{count} elements of {basic:?}, {operator:?}");
                }
            }
        }
    }
}
