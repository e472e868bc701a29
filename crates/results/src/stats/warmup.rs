//! Warm-up detection by MSER-5 on block medians (rule 3; White, Simulation 69(6), 1997).
//!
//! The cut minimises the squared standard error of the mean of the remaining samples. Blocks of five are represented
//! by their medians and not their means, so that one interrupt is not taken for a transient.

/// Samples in a block.
pub const MSER_BLOCK: usize = 5;
/// Blocks below which nothing is said.
const BLOCKS_MIN: usize = 10;
/// A transient below this fraction of the level is not worth a cut.
const RELEVANT: f64 = 1e-3;

/// Where the steady state begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUpCut {
    /// Samples to cut from the start; 0 if there is no steady state.
    pub cut: usize,
    /// Whether there is a steady state: the best cut leaves at least half.
    pub steady: bool,
}

/// MSER-5 on samples in time order; `resolution` is the clock's, in the unit of the samples.
///
/// `None` below 50 samples: too few to decide. Without the resolution as a lower bound of the noise, a stretch of
/// equal readings at the end would seem infinitely steady. Linear time, no allocation.
#[must_use]
pub fn mser5(samples: &[f64], resolution: f64) -> Option<WarmUpCut> {
    let blocks = samples.len() / MSER_BLOCK;
    if blocks < BLOCKS_MIN {
        return None;
    }
    let block = |i: usize| median5(&samples[i * MSER_BLOCK..(i + 1) * MSER_BLOCK]);
    // Any constant near the level keeps the sums well conditioned.
    let level = block(blocks - 1);
    let noise = resolution.max(level.abs() * RELEVANT).powi(2) / 12.0;
    // A handful of last blocks can be equal by chance: they cannot be the steady state alone.
    let last = blocks - (blocks / 10).max(BLOCKS_MIN / 2);
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for start in (0..blocks).rev() {
        let value = block(start) - level;
        sum += value;
        squares += value * value;
        let left = (blocks - start) as f64;
        let error = (((squares - sum * sum / left) / left).max(0.0) + noise) / left;
        if start <= last && error <= best.0 {
            best = (error, start);
        }
    }
    let steady = best.1 <= blocks / 2;
    Some(WarmUpCut { cut: if steady { best.1 * MSER_BLOCK } else { 0 }, steady })
}

fn median5(block: &[f64]) -> f64 {
    let mut sorted = [0.0; MSER_BLOCK];
    sorted.copy_from_slice(block);
    super::sort(&mut sorted);
    sorted[MSER_BLOCK / 2]
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;

    fn transient(seed: u64, n: usize, decay: f64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        (0..n).map(|i| 100.0 + 50.0 * (-(i as f64) / decay).exp() + rng.normal()).collect()
    }

    /// 50 exp(-i/100) falls to the noise (1) at i = 391 and to a third of it at 500.
    #[test]
    fn a_transient_is_cut_where_it_drowns_in_the_noise() {
        for seed in 0..50 {
            let found = mser5(&transient(seed, 5000, 100.0), 0.01).expect("enough");
            assert!(found.steady && (250..=900).contains(&found.cut), "{found:?}");
        }
    }

    #[test]
    fn a_step_is_cut_at_the_step() {
        let mut rng = Rng::new(3);
        let samples: Vec<f64> =
            (0..2000).map(|i| if i < 600 { 3.0 } else { 2.0 } + 0.02 * rng.normal()).collect();
        let found = mser5(&samples, 0.0).expect("enough");
        assert!(found.steady && (600..=640).contains(&found.cut), "{found:?}");
    }

    #[test]
    fn steady_data_loses_almost_nothing() {
        let mut cut = 0;
        for seed in 0..100 {
            let samples = Rng::new(seed).draws(2000, |r| r.log_normal(0.3));
            let found = mser5(&samples, 0.0).expect("enough");
            assert!(found.steady, "seed {seed}");
            cut += found.cut;
        }
        assert!(cut < 100 * 2000 / 20, "{cut} of 200000");
    }

    #[test]
    fn a_drift_has_no_steady_state() {
        let mut rng = Rng::new(4);
        let samples: Vec<f64> = (0..2000).map(|i| 100.0 + 0.02 * f64::from(i) + rng.normal()).collect();
        assert_eq!(mser5(&samples, 0.01), Some(WarmUpCut { cut: 0, steady: false }));
    }

    /// A late change is not a warm-up.
    #[test]
    fn a_step_in_the_second_half_is_no_steady_state() {
        let mut rng = Rng::new(6);
        let samples: Vec<f64> =
            (0..2000).map(|i| if i < 1500 { 3.0 } else { 2.0 } + 0.02 * rng.normal()).collect();
        assert!(!mser5(&samples, 0.0).expect("enough").steady);
    }

    #[test]
    fn one_interrupt_is_no_transient() {
        let mut samples = Rng::new(8).draws(2000, |r| 100.0 + r.normal());
        samples[800] = 1e6;
        assert!(mser5(&samples, 0.01).expect("enough").cut < 300);
    }

    /// A coarse clock: long stretches of equal readings are not "steadier" than the rest.
    #[test]
    fn quantised_and_constant_data_are_steady() {
        let samples = Rng::new(9).draws(2000, |r| if r.unit() < 0.02 { 121.0 } else { 120.0 });
        assert_eq!(mser5(&samples, 1.0), Some(WarmUpCut { cut: 0, steady: true }));
        let mut calm_end = Rng::new(10).draws(2000, |r| (120.0 + 2.0 * r.unit()).floor());
        calm_end[1700..].fill(120.0);
        assert!(mser5(&calm_end, 1.0).expect("enough").steady);
        assert_eq!(mser5(&[7.0; 500], 0.0), Some(WarmUpCut { cut: 0, steady: true }));
        assert_eq!(mser5(&[0.0; 500], 0.0), Some(WarmUpCut { cut: 0, steady: true }));
    }

    #[test]
    fn too_few_samples_say_nothing() {
        assert_eq!(mser5(&[1.0; 49], 0.0), None);
    }
}
