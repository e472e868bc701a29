//! A small seeded generator: its sequence is part of the results, so it must never change with a dependency.

/// SplitMix64 (Steele, Lea & Flood, OOPSLA'14). Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// A generator; equal seeds give equal sequences for ever.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 uniform bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0. The bias is below bound / 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fisher-Yates shuffle in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Distributions with known truth, for tests.
#[cfg(test)]
impl Rng {
    /// Standard normal (Box-Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Log-normal with median 1: the usual shape of latencies.
    pub(crate) fn log_normal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }

    /// `n` draws.
    pub(crate) fn draws(&mut self, n: usize, mut draw: impl FnMut(&mut Self) -> f64) -> Vec<f64> {
        (0..n).map(|_| draw(self)).collect()
    }

    /// AR(1) around `mean` with unit variance and lag-1 autocorrelation `rho`.
    pub(crate) fn ar1(&mut self, n: usize, mean: f64, rho: f64) -> Vec<f64> {
        let mut state = self.normal();
        self.draws(n, |rng| {
            state = rho * state + (1.0 - rho * rho).sqrt() * rng.normal();
            mean + state
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector of SplitMix64 for seed 1234567.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for value in expected {
            assert_eq!(rng.next_u64(), value);
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation_and_every_position_is_equally_likely() {
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
    fn below_stays_below() {
        let mut rng = Rng::new(2);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }
}
