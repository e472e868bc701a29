//! [`Rng`]: pseudo-random numbers that depend on a seed alone, for everything that must be reproducible.

/// A random number generator (`SplitMix64`; Steele, Lea and Flood, OOPSLA 2014): equal seeds give equal sequences in
/// all versions, on every machine. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The generator for a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 uniform bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`, 0 if `bound` is 0. Uniform but for a bias below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// An index into a list of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with a probability of 1 / `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random item.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// A number uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The next `len` bytes. A longer sequence begins with the bytes of a shorter one.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next_u64().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// Shuffles the items; each is equally likely at each position (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// Mixes all bits of a word: the finalizer of `SplitMix64`, a bijection.
#[must_use]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector of `SplitMix64` for seed 1234567.
    #[test]
    fn sequence_equals_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for value in expected {
            assert_eq!(rng.next_u64(), value);
        }
    }

    #[test]
    fn shuffle_is_a_permutation_with_equally_likely_positions() {
        let mut counts = [[0u32; 4]; 4];
        let mut rng = Rng::new(1);
        for _ in 0..8000 {
            let mut items = [0, 1, 2, 3];
            rng.shuffle(&mut items);
            for (place, item) in items.iter().enumerate() {
                counts[*item][place] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|c| (1850..2150).contains(c)), "{counts:?}");
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::new(2);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).all(|_| rng.unit() < 1.0));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn shorter_bytes_are_a_prefix_of_longer_ones() {
        let long = Rng::new(3).bytes(100);
        assert!((0..100).all(|len| Rng::new(3).bytes(len) == long[..len]));
    }
}
