//! Trend over a run: Mann-Kendall test with Sen's slope (rule 10; Mann 1945, Sen 1968).

use super::special::normal_upper;
use super::summary::{median, sort};

/// Points compared pairwise; longer series are reduced to the medians of as many blocks.
const POINTS: usize = 120;

/// Outcome of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Two-sided p value; small if there is a monotone trend.
    pub p: f64,
    /// Change from the first to the last sample, by Sen's slope, in the unit of the samples.
    pub change: f64,
    /// The change over the median, a fraction.
    pub relative: f64,
}

impl Trend {
    /// Whether to flag it: significant at 1 %, and at least `effect` (a fraction) of the median.
    #[must_use]
    pub fn flagged(&self, effect: f64) -> bool {
        self.p < 0.01 && self.relative.abs() >= effect
    }
}

/// Tests samples in time order; `None` below ten. Block medians also take out most short-range dependence, which
/// the test does not allow for.
#[must_use]
pub fn trend(samples: &[f64]) -> Option<Trend> {
    if samples.len() < 10 {
        return None;
    }
    let points = reduced(samples);
    let n = points.len();
    let mut score = 0.0;
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (i, early) in points.iter().enumerate() {
        for (j, late) in points.iter().enumerate().skip(i + 1) {
            let rise = late - early;
            score += if rise > 0.0 {
                1.0
            } else if rise < 0.0 {
                -1.0
            } else {
                0.0
            };
            slopes.push(rise / (j - i) as f64);
        }
    }
    sort(&mut slopes);
    let change = median(&slopes)? * (n - 1) as f64;
    let mut sorted = points;
    sort(&mut sorted);
    let variance = score_variance(&sorted);
    // Continuity correction; without variation there is no trend.
    let z = if variance > 0.0 { (f64::abs(score) - 1.0).max(0.0) / variance.sqrt() } else { 0.0 };
    let relative = if change == 0.0 { 0.0 } else { change / median(&sorted)?.abs() };
    Some(Trend { p: (2.0 * normal_upper(z)).min(1.0), change, relative })
}

fn reduced(samples: &[f64]) -> Vec<f64> {
    if samples.len() <= POINTS {
        return samples.to_vec();
    }
    let edge = |i: usize| i * samples.len() / POINTS;
    let block = |i: usize| {
        let mut block = samples[edge(i)..edge(i + 1)].to_vec();
        sort(&mut block);
        median(&block).unwrap_or_default()
    };
    (0..POINTS).map(block).collect()
}

/// Variance of the score under no trend, corrected for ties.
fn score_variance(sorted: &[f64]) -> f64 {
    let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|group| term(group.len() as f64)).sum();
    (term(sorted.len() as f64) - ties) / 18.0
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;

    #[test]
    fn no_trend_is_flagged_in_at_most_its_level() {
        let flagged = (0..500).filter(|seed| {
            let samples = Rng::new(*seed).draws(300, |r| r.log_normal(0.5));
            trend(&samples).expect("n").p < 0.01
        });
        let count = flagged.count();
        assert!(count <= 12, "{count} of 500");
    }

    #[test]
    fn a_drift_is_found_with_its_size_and_sign() {
        let mut rng = Rng::new(1);
        let samples: Vec<f64> = (0..5000).map(|i| 100.0 - 0.001 * f64::from(i) + rng.normal()).collect();
        let found = trend(&samples).expect("n");
        assert!(found.flagged(0.01) && (found.change + 5.0).abs() < 1.0, "{found:?}");
        assert!(!found.flagged(0.1), "5 % is not 10 %");
    }

    #[test]
    fn ties_and_constants_are_no_trend() {
        assert!(trend(&[3.0; 100]).expect("n").p > 0.999);
        assert!(!trend(&[0.0; 100]).expect("n").flagged(0.0));
        let quantised = Rng::new(2).draws(1000, |r| (120.0 + 2.0 * r.unit()).floor());
        assert!(trend(&quantised).expect("n").p > 0.01);
        assert_eq!(trend(&[1.0; 9]), None);
    }

    /// By hand: 1 2 3 4 5 6 7 8 9 10 has S = 45 and Var = 125, z = 44 / 11.18 = 3.935.
    #[test]
    fn a_perfect_order_has_the_tabulated_p() {
        let rising: Vec<f64> = (1..=10).map(f64::from).collect();
        let found = trend(&rising).expect("n");
        assert!((found.p - 8.3e-5).abs() < 2e-6, "{found:?}");
        assert_eq!(found.change, 9.0);
    }
}
