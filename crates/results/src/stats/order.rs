//! Intervals for medians and quantiles by order statistics: no distribution is assumed (rule 5).
//!
//! The interval between two order statistics covers the quantile with a binomial probability whatever the
//! distribution (Le Boudec, Performance Evaluation, 2.2; Hoefler & Belli 4.2.2). Samples must be independent;
//! [`widened_median_interval`](super::widened_median_interval) is for dependent samples.

use super::special::binomial_cdf;
use super::summary::{median, quantile};

/// Two-sided 95 % point of the standard normal.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;
const ALPHA: f64 = 0.05;

/// A 95 % interval around a point, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half of the width over the value, a fraction; infinite if the value is 0 and the width is not.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        let half = (self.high - self.low) / 2.0;
        if half == 0.0 { 0.0 } else { (half / self.value).abs() }
    }

    /// Whether `truth` is within, ends included.
    #[must_use]
    pub fn covers(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }
}

/// Ranks, from 1, of the order statistics that bound an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Rank of the lower end.
    pub low: u64,
    /// Rank of the upper end.
    pub high: u64,
}

/// Smallest number of samples whose range covers quantile `p` with 95 %: p^n + (1-p)^n <= 0.05.
///
/// 6 for the median, 59 for p95, 299 for p99, 2 995 for p99.9, 29 956 for p99.99. `None` unless 0 < p < 1.
#[must_use]
pub fn needed(p: f64) -> Option<u64> {
    if !(p > 0.0 && p < 1.0) {
        return None;
    }
    let miss = |n: u64| p.powf(n as f64) + (1.0 - p).powf(n as f64);
    let mut n = (ALPHA.ln() / p.max(1.0 - p).ln()).ceil().max(1.0) as u64;
    while miss(n) > ALPHA {
        n += 1;
    }
    Some(n)
}

/// Ranks of a 95 % interval of the median of `n` values: floor((n - z sqrt n) / 2) and
/// ceil(1 + (n + z sqrt n) / 2), exact binomial ones where that has no rank. `None` below 6.
#[must_use]
pub fn median_ranks(n: u64) -> Option<Ranks> {
    spread_ranks(n, 1.0).or_else(|| quantile_ranks(n, 0.5).ok())
}

/// The printed ranks with the distance from the middle multiplied by `widen`; `None` if they leave 1..=n.
pub(crate) fn spread_ranks(n: u64, widen: f64) -> Option<Ranks> {
    let (count, reach) = (n as f64, widen * Z95 * (n as f64).sqrt());
    let low = ((count - reach) / 2.0).floor();
    let high = (1.0 + (count + reach) / 2.0).ceil();
    (low >= 1.0 && high <= count).then_some(Ranks { low: low as u64, high: high as u64 })
}

/// Ranks of a 95 % interval of quantile `p` of `n` values, from the binomial distribution.
///
/// Tails of 2.5 % each where both exist; else the largest value is the upper end and the lower tail gets what
/// is left, so that an interval exists from [`needed`] on.
///
/// # Errors
/// The number of samples needed, if `n` is below it (`u64::MAX` if `p` is not between 0 and 1).
pub fn quantile_ranks(n: u64, p: f64) -> Result<Ranks, u64> {
    let needs = needed(p).unwrap_or(u64::MAX);
    if n < needs {
        return Err(needs);
    }
    if p < 0.5 {
        // Mirrored, so that only the upper tail can be the short one.
        return quantile_ranks(n, 1.0 - p).map(|r| Ranks { low: n + 1 - r.high, high: n + 1 - r.low });
    }
    let above = p.powf(n as f64);
    let lower_tail = if above > ALPHA / 2.0 { ALPHA - above } else { ALPHA / 2.0 };
    // Smallest k with P(X <= k) > tail: then rank k misses low with P(X <= k - 1) <= tail.
    let low = first_holding(n, |k| binomial_cdf(k, n, p) > lower_tail).max(1);
    let high = (1 + first_holding(n, |k| binomial_cdf(k, n, p) >= 1.0 - ALPHA / 2.0)).min(n);
    Ok(Ranks { low, high })
}

/// Smallest k in 0..=n for which the monotone condition holds.
fn first_holding(n: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Median of sorted independent values with its 95 % interval; `None` below 6 values.
#[must_use]
pub fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let ranks = median_ranks(sorted.len() as u64)?;
    interval_at(sorted, median(sorted)?, ranks)
}

/// Quantile `p` of sorted independent values with its 95 % interval.
///
/// # Errors
/// The number of samples needed, if there are fewer.
pub fn quantile_interval(sorted: &[f64], p: f64) -> Result<Interval, u64> {
    let ranks = quantile_ranks(sorted.len() as u64, p)?;
    let found = quantile(sorted, p).and_then(|value| interval_at(sorted, value, ranks));
    found.ok_or(u64::MAX)
}

/// The interval between two ranks.
pub(crate) fn interval_at(sorted: &[f64], value: f64, ranks: Ranks) -> Option<Interval> {
    let low = *sorted.get(ranks.low.checked_sub(1)? as usize)?;
    let high = *sorted.get(ranks.high.checked_sub(1)? as usize)?;
    Some(Interval { value, low, high })
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng, sort};
    use super::*;

    #[test]
    fn the_needed_counts_are_the_published_ones() {
        for (p, n) in [(0.5, 6), (0.95, 59), (0.99, 299), (0.999, 2995), (0.9999, 29956), (0.05, 59)] {
            assert_eq!(needed(p), Some(n), "p = {p}");
            assert_eq!(quantile_ranks(n - 1, p), Err(n));
            assert!(quantile_ranks(n, p).is_ok());
        }
        for p in [0.0, 1.0, -1.0, f64::NAN] {
            assert_eq!(needed(p), None);
            assert_eq!(quantile_ranks(1000, p), Err(u64::MAX));
        }
    }

    #[test]
    fn the_median_ranks_are_the_printed_ones() {
        assert_eq!(median_ranks(5), None);
        assert_eq!(median_ranks(6), Some(Ranks { low: 1, high: 6 }));
        assert_eq!(median_ranks(100), Some(Ranks { low: 40, high: 61 }));
        assert_eq!(median_ranks(1000), Some(Ranks { low: 469, high: 532 }));
    }

    /// The exact coverage of ranks (l, u) of quantile p is P(l <= X < u): never below 95 %, never wasteful.
    #[test]
    fn every_pair_of_ranks_covers_95_percent_exactly_computed() {
        let coverage =
            |n: u64, p: f64, r: Ranks| binomial_cdf(r.high - 1, n, p) - binomial_cdf(r.low - 1, n, p);
        for n in 6..1500 {
            let exact = coverage(n, 0.5, median_ranks(n).expect("ranks"));
            assert!(exact >= 0.95, "median of {n}: {exact}");
        }
        for p in [0.05, 0.5, 0.9, 0.95, 0.99, 0.999] {
            let needs = needed(p).expect("p");
            for n in [needs, needs + 1, needs * 5 / 4, needs * 3 / 2, needs * 4, needs * 50] {
                let exact = coverage(n, p, quantile_ranks(n, p).expect("ranks"));
                assert!(exact >= 0.95 - 1e-9, "p = {p}, n = {n}: {exact}");
                assert!(n < 50 * needs || exact < 0.965, "too wide: p = {p}, n = {n}: {exact}");
            }
        }
    }

    /// Skewed data with a known median (1) and p99: simulated coverage is what is promised.
    #[test]
    fn simulated_coverage_on_skewed_data() {
        let mut rng = Rng::new(5);
        let p99 = (0.5f64 * 2.326_347_874).exp();
        let (mut median_hits, mut tail_hits) = (0, 0);
        for _ in 0..1000 {
            let mut values = rng.draws(400, |r| r.log_normal(0.5));
            sort(&mut values);
            median_hits += u32::from(median_interval(&values).expect("n").covers(1.0));
            tail_hits += u32::from(quantile_interval(&values, 0.99).expect("n").covers(p99));
        }
        assert!((930..=985).contains(&median_hits), "{median_hits}");
        assert!((935..=1000).contains(&tail_hits), "{tail_hits}");
    }

    #[test]
    fn a_constant_has_an_interval_of_no_width() {
        let interval = median_interval(&[0.0; 10]).expect("n");
        assert_eq!(interval.half_width(), 0.0);
        assert!(Interval { value: 0.0, low: -1.0, high: 1.0 }.half_width().is_infinite());
    }
}
