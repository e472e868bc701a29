//! Type signatures: the sequence of basic types of a type map, hashed to a number that can be repeated and concatenated without
//! walking it (MPI 5.0, section 3.3.1).

use crate::Basic;

/// The modulus of the polynomials, the prime 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;
/// The point at which they are evaluated: an arbitrary large odd number.
const POINT: u64 = 0x0bad_5eed_c0de_cafd;

/// A sequence of basic types. Equal sequences compare equal; unequal ones differ except with a probability of about 2^-50.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Signature {
    /// Number of basic types in the sequence.
    pub elements: u64,
    /// Their handles as a polynomial, modulo [`PRIME`].
    hash: u64,
}

impl Signature {
    /// The empty sequence.
    pub(crate) const EMPTY: Self = Self { elements: 0, hash: 0 };

    /// The sequence of one element; a pair has two.
    pub(crate) fn from_basic(basic: Basic) -> Self {
        match basic.pair() {
            Some((value, index)) => Self::from_basic(value).concat(Self::from_basic(index)),
            None => Self { elements: 1, hash: u64::from(basic.abi()) },
        }
    }

    /// This sequence followed by the other one.
    pub(crate) fn concat(self, next: Self) -> Self {
        let hash = (multiply(self.hash, power(POINT, next.elements)) + next.hash) % PRIME;
        Self { elements: self.elements.wrapping_add(next.elements), hash }
    }

    /// This sequence repeated, in logarithmic time.
    pub(crate) fn repeated(self, count: u64) -> Self {
        let (mut result, mut doubled, mut left) = (Self::EMPTY, self, count);
        while left > 0 {
            if left & 1 == 1 {
                result = result.concat(doubled);
            }
            doubled = doubled.concat(doubled);
            left >>= 1;
        }
        result
    }
}

/// The product modulo [`PRIME`].
fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

/// The power modulo [`PRIME`].
fn power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut left) = (1, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concatenation_is_ordered_and_associative() {
        let (int, float) = (Signature::from_basic(Basic::Int), Signature::from_basic(Basic::Float));
        assert_ne!(int.concat(float), float.concat(int));
        assert_eq!(int.concat(float).concat(int), int.concat(float.concat(int)));
        assert_eq!(Signature::from_basic(Basic::FloatInt), float.concat(int));
        assert_eq!(
            int.concat(float).repeated(3),
            (0..3).fold(Signature::EMPTY, |all, _| all.concat(int).concat(float))
        );
        assert_eq!(int.repeated(0), Signature::EMPTY);
        assert_ne!(int.repeated(2), int.repeated(3));
    }

    #[test]
    fn repetition_takes_logarithmic_time() {
        let many = Signature::from_basic(Basic::Double).repeated(1 << 62);
        assert_eq!(many.elements, 1 << 62);
    }
}
