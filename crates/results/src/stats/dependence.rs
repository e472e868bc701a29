//! Samples that depend on each other: how much, and an interval that allows for it (rule 4).

use super::order::{Interval, interval_at, spread_ranks};
use super::summary::median;
use host::Rng;

/// Lag-1 autocorrelation, -1 to 1; `None` below three samples or without variation.
#[must_use]
pub fn lag1(samples: &[f64]) -> Option<f64> {
    lag1_clipped(samples, f64::NEG_INFINITY, f64::INFINITY)
}

/// Lag-1 autocorrelation of samples limited to `low..=high`.
///
/// A single huge outlier swells the variance until any dependence reads as zero; limiting to Tukey's outer fences
/// ([`Fences`](super::Fences)) keeps it visible.
#[must_use]
pub fn lag1_clipped(samples: &[f64], low: f64, high: f64) -> Option<f64> {
    if samples.len() < 3 {
        return None;
    }
    let clip = |v: f64| v.max(low).min(high);
    let mean = samples.iter().map(|v| clip(*v)).sum::<f64>() / samples.len() as f64;
    let variance: f64 = samples.iter().map(|v| (clip(*v) - mean).powi(2)).sum();
    let products: f64 = samples.windows(2).map(|w| (clip(w[0]) - mean) * (clip(w[1]) - mean)).sum();
    let rho = products / variance;
    rho.is_finite().then_some(rho)
}

/// Effective sample size: as many independent samples would locate the median as well. 1 to n.
///
/// The smaller of two estimates on "at most the median": n (1-r)/(1+r), exact for AR(1), and the estimate from the
/// variance of block means (blocks of sqrt n), which also detects longer dependence. The dependence of this yes-or-no
/// series, not of the samples, widens the median's interval, and outliers cannot hide it.
#[must_use]
pub fn effective_size(samples: &[f64], median: f64) -> f64 {
    let n = samples.len() as f64;
    let below = |v: &f64| f64::from(u8::from(*v <= median));
    let share = samples.iter().map(below).sum::<f64>() / n;
    let variance = share * (1.0 - share);
    if samples.len() < 3 || variance <= 0.0 {
        return n;
    }
    let products: f64 = samples.windows(2).map(|w| (below(&w[0]) - share) * (below(&w[1]) - share)).sum();
    let rho = (products / n / variance).clamp(-0.99, 0.99);
    let by_lag1 = n * (1.0 - rho) / (1.0 + rho);
    let length = n.sqrt() as usize;
    let by_blocks = if length >= 10 {
        let blocks = samples.chunks_exact(length);
        let count = blocks.len() as f64;
        let spread: f64 =
            blocks.map(|b| (b.iter().map(below).sum::<f64>() / length as f64 - share).powi(2)).sum();
        // Share of independent samples has variance v / length over blocks.
        n * (variance / length as f64) / (spread / (count - 1.0)).max(f64::MIN_POSITIVE)
    } else {
        n
    };
    by_lag1.min(by_blocks).clamp(1.0, n)
}

/// Median of sorted values with the printed ranks spread as if there were only `n_eff` of them.
///
/// `None` if the ranks then leave the sample: it cannot carry 95 %. Costs nothing, so it serves at every checkpoint.
#[must_use]
pub fn widened_median_interval(sorted: &[f64], n_eff: f64) -> Option<Interval> {
    let n = sorted.len() as u64;
    let widen = (n as f64 / n_eff.clamp(1.0, n.max(1) as f64)).sqrt();
    interval_at(sorted, median(sorted)?, spread_ranks(n, widen)?)
}

/// Median of samples in time order with a moving block bootstrap interval (Künsch 1989; percentile, 95 %).
///
/// `rho` sets the block length by Carlstein's rule for AR(1), at least the cube root of n. Seeded, so repeatable.
/// `None` below 30 samples. Time is replicates x n: meant for thousands of samples, not millions.
#[must_use]
pub fn block_bootstrap_median(samples: &[f64], rho: f64, replicates: usize, seed: u64) -> Option<Interval> {
    let n = samples.len();
    if n < 30 || replicates < 40 {
        return None;
    }
    let length = block_length(n, rho);
    let mut rng = Rng::new(seed);
    let mut resample = Vec::with_capacity(n + length);
    let mut medians = Vec::with_capacity(replicates);
    for _ in 0..replicates {
        resample.clear();
        while resample.len() < n {
            let start = rng.below((n - length + 1) as u64) as usize;
            resample.extend_from_slice(&samples[start..start + length]);
        }
        resample.truncate(n);
        medians.push(median_in_place(&mut resample));
    }
    super::sort(&mut medians);
    resample.clear();
    resample.extend_from_slice(samples);
    let tail = replicates / 40;
    Some(Interval {
        value: median_in_place(&mut resample),
        low: medians[tail],
        high: medians[replicates - 1 - tail],
    })
}

fn block_length(n: usize, rho: f64) -> usize {
    let rho = rho.abs().min(0.99);
    let factor = (6f64.sqrt() * rho / (1.0 - rho * rho)).powf(2.0 / 3.0).max(1.0);
    ((factor * (n as f64).cbrt()).ceil() as usize).clamp(1, n / 3)
}

/// Median without a full sort.
fn median_in_place(values: &mut [f64]) -> f64 {
    let (half, even) = (values.len() / 2, values.len().is_multiple_of(2));
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let upper = *upper;
    if !even {
        return upper;
    }
    (below.iter().copied().fold(f64::NEG_INFINITY, f64::max) + upper) / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, median_interval, sort};
    use super::*;

    fn sorted(samples: &[f64]) -> Vec<f64> {
        let mut sorted = samples.to_vec();
        sort(&mut sorted);
        sorted
    }

    #[test]
    fn lag1_of_ar1_is_its_coefficient() {
        for rho in [-0.5, 0.0, 0.3, 0.7, 0.9] {
            let found = lag1(&Rng::new(1).ar1(20_000, 10.0, rho)).expect("enough");
            assert!((found - rho).abs() < 0.03, "{rho}: {found}");
        }
        assert_eq!(lag1(&[1.0, 2.0]), None);
        assert_eq!(lag1(&[1.0; 9]), None);
    }

    #[test]
    fn an_outlier_hides_dependence_from_the_plain_estimate_but_not_from_the_clipped_one() {
        let mut samples = Rng::new(2).ar1(5000, 10.0, 0.7);
        samples[2500] = 1e5;
        assert!(lag1(&samples).expect("n") < 0.05);
        let clipped = lag1_clipped(&samples, 0.0, 20.0).expect("n");
        assert!((clipped - 0.7).abs() < 0.05, "{clipped}");
    }

    /// For an AR(1) the yes-or-no series has correlations 2/pi asin(rho^k), hence the exact effective size.
    #[test]
    fn the_effective_size_of_ar1_is_the_theoretical_one() {
        for rho in [0.0, 0.5, 0.9f64] {
            let lags: f64 = (1..200).map(|k| std::f64::consts::FRAC_2_PI * rho.powi(k).asin()).sum();
            let truth = 1.0 / (1.0 + 2.0 * lags);
            let mut ratio = 0.0;
            for seed in 0..20 {
                ratio += effective_size(&Rng::new(seed).ar1(10_000, 5.0, rho), 5.0) / 10_000.0 / 20.0;
            }
            assert!(ratio > 0.75 * truth && ratio < 1.25 * truth, "rho {rho}: {ratio}, truth {truth}");
        }
    }

    #[test]
    fn independent_samples_are_not_called_dependent() {
        for seed in 0..100 {
            let samples = Rng::new(seed).draws(1000, |r| r.exponential());
            assert!(effective_size(&samples, std::f64::consts::LN_2) > 500.0, "seed {seed}");
        }
        assert_eq!(effective_size(&[4.0; 100], 4.0), 100.0);
    }

    /// Samples of AR(1) with rho 0.8: the plain interval is far too narrow, the two that allow for dependence are
    /// not.
    #[test]
    fn intervals_that_allow_for_dependence_cover_where_the_plain_one_does_not() {
        let (mut plain, mut widened, mut bootstrap) = (0, 0, 0);
        for seed in 0..300 {
            let samples = Rng::new(seed).ar1(1000, 10.0, 0.8);
            let sorted = sorted(&samples);
            let rho = lag1(&samples).expect("n");
            let n_eff = effective_size(&samples, median(&sorted).expect("n"));
            let covers = |i: Option<Interval>| u32::from(i.expect("interval").covers(10.0));
            plain += covers(median_interval(&sorted));
            widened += covers(widened_median_interval(&sorted, n_eff));
            bootstrap += covers(block_bootstrap_median(&samples, rho, 200, seed));
        }
        assert!(plain < 210, "plain {plain} of 300");
        assert!(widened >= 270, "widened {widened} of 300");
        assert!(bootstrap >= 264, "bootstrap {bootstrap} of 300");
    }

    #[test]
    fn the_bootstrap_is_repeatable_and_refuses_too_little() {
        let samples = Rng::new(3).ar1(100, 1.0, 0.5);
        let once = block_bootstrap_median(&samples, 0.5, 100, 9);
        assert!(once.is_some());
        assert_eq!(once, block_bootstrap_median(&samples, 0.5, 100, 9));
        assert_eq!(once.map(|i| i.value), median(&sorted(&samples)));
        assert_eq!(block_bootstrap_median(&samples[..29], 0.5, 100, 9), None);
        assert_eq!(widened_median_interval(&sorted(&samples), 2.0), None);
    }
}
