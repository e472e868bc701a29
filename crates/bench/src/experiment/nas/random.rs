//! [`Random`]: the numbers of NAS' specification, x' = 5^13 x mod 2^46.

/// Binary places of a number.
pub(super) const BITS: u32 = 46;
const MASK: u64 = (1 << BITS) - 1;
const MULTIPLIER: u64 = 1_220_703_125;
/// The seed of both kernels.
const SEED: u64 = 314_159_265;

/// A place in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Random(u64);

impl Random {
    /// The sequence of both kernels, from `skipped` numbers after its seed on.
    pub(super) fn after(skipped: u64) -> Self {
        let (mut x, mut factor, mut rest) = (SEED, MULTIPLIER, skipped);
        while rest > 0 {
            if rest % 2 == 1 {
                x = product(x, factor);
            }
            factor = product(factor, factor);
            rest /= 2;
        }
        Self(x)
    }

    /// The next number, as a whole multiple of 2^-46.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = product(self.0, MULTIPLIER);
        self.0
    }

    /// The next number, between 0 and 1.
    pub(super) fn unit(&mut self) -> f64 {
        self.next() as f64 / (MASK + 1) as f64
    }
}

/// Modulo 2^46, which 2^64 is a multiple of.
fn product(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b) & MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a rank that starts in the middle of the sequence draws the numbers of that position.
    #[test]
    fn skipping_is_drawing() {
        let mut drawn = Random::after(0);
        for skipped in 0..1000 {
            assert_eq!(Random::after(skipped), drawn, "{skipped}");
            let exact = u128::from(drawn.0) * u128::from(MULTIPLIER) % (1 << BITS);
            assert_eq!(u128::from(drawn.next()), exact);
        }
        assert!((0.0..1.0).contains(&drawn.unit()));
    }
}
