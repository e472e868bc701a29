//! Log histogram in fixed memory, relative error at most 1 % (rule 2).

use hdrhistogram::Histogram as Hdr;

use crate::schema;

/// Counts per unit at the smallest resolved value: from here up a bin is at most 1/128 wide.
const COUNTS_AT_SMALLEST: f64 = 256.0;
/// Largest scaled value: integers above it lose precision in f64.
const TOP: u64 = 1 << 52;

/// Histogram of positive values; about 50 KiB for twelve decades, allocated up front.
#[derive(Clone, Debug)]
pub struct LogHistogram {
    counts: Hdr<u64>,
    scale: f64,
}

impl LogHistogram {
    /// Largest relative width of a bin.
    pub const RELATIVE_ERROR: f64 = 1.0 / 128.0;

    /// A histogram that resolves values from `smallest` (in their unit) to `1.7e13 * smallest`; values outside are
    /// counted in the outermost bins. `None` unless `smallest` is positive and finite.
    #[must_use]
    pub fn new(smallest: f64) -> Option<Self> {
        let scale = COUNTS_AT_SMALLEST / smallest;
        let usable = smallest > 0.0 && scale.is_normal();
        let counts = Hdr::new_with_bounds(1, TOP, 2).ok().filter(|_| usable)?;
        Some(Self { counts, scale })
    }

    /// Counts one value. Does not allocate; NaN and negative values count as the smallest.
    pub fn record(&mut self, value: f64) {
        // A float-to-integer cast saturates, and NaN gives 0.
        self.counts.saturating_record(((value * self.scale).round() as u64).clamp(1, TOP));
    }

    /// How many values have been counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Value of a rank from 1, to the bin's middle; `None` if there is no such rank.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut seen = 0;
        for bin in self.counts.iter_recorded() {
            seen += bin.count_at_value();
            if rank >= 1 && rank <= seen {
                return Some(self.counts.median_equivalent(bin.value_iterated_to()) as f64 / self.scale);
            }
        }
        None
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// Adds the counts of another histogram of the same smallest value; false, and nothing added, if it differs.
    pub fn merge(&mut self, other: &Self) -> bool {
        self.scale == other.scale && self.counts.add(&other.counts).is_ok()
    }

    /// Bins for the result file, with values passed through a monotone `map` (unit conversion, time to rate).
    #[must_use]
    pub fn to_schema(&self, map: impl Fn(f64) -> f64) -> schema::Histogram {
        let edges = self.counts.iter_recorded().map(|bin| {
            let value = bin.value_iterated_to();
            // Half a count either way: the rounding of record().
            let low = (self.counts.lowest_equivalent(value) as f64 - 0.5) / self.scale;
            let high = (self.counts.highest_equivalent(value) as f64 + 0.5) / self.scale;
            let (a, b) = (map(low), map(high));
            schema::Bin(a.min(b), a.max(b), bin.count_at_value())
        });
        let mut bins: Vec<schema::Bin> = edges.collect();
        bins.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        schema::Histogram { relative_error: Self::RELATIVE_ERROR, bins }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng, quantile, sort};
    use super::*;

    #[test]
    fn every_value_lies_in_its_bin_and_no_bin_is_wider_than_one_percent() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let value = 0.5 * 10f64.powf(12.0 * rng.unit());
            let mut histogram = LogHistogram::new(0.5).expect("bounds");
            histogram.record(value);
            let bins = histogram.to_schema(|v| v).bins;
            assert_eq!(bins.len(), 1);
            let schema::Bin(low, high, count) = bins[0];
            assert!(low <= value && value <= high && count == 1, "{value} not in {low}..{high}");
            assert!((high - low) / value <= 0.01, "{value}: {low}..{high}");
            assert!((histogram.at_rank(1).expect("one") / value - 1.0).abs() <= 0.01);
        }
    }

    #[test]
    fn quantiles_of_a_million_are_within_one_percent() {
        let mut values = Rng::new(2).draws(200_000, |r| 100.0 * r.log_normal(1.0));
        let mut histogram = LogHistogram::new(0.1).expect("bounds");
        values.iter().for_each(|v| histogram.record(*v));
        sort(&mut values);
        for p in [0.01, 0.5, 0.99, 0.999, 1.0] {
            let exact = quantile(&values, p).expect("values");
            let rank = super::super::summary::rank(200_000, p);
            let found = histogram.at_rank(rank).expect("rank");
            assert!((found / exact - 1.0).abs() < 0.01, "{p}: {found}, {exact}");
        }
        assert_eq!(histogram.at_rank(200_001), None);
        assert_eq!(histogram.at_rank(0), None);
    }

    #[test]
    fn hostile_values_are_counted_and_do_no_harm() {
        let mut histogram = LogHistogram::new(1.0).expect("bounds");
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            histogram.record(value);
        }
        assert_eq!(histogram.len(), 5);
        for smallest in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(LogHistogram::new(smallest).is_none());
        }
    }

    #[test]
    fn a_decreasing_map_keeps_bins_in_order_and_counts() {
        let mut histogram = LogHistogram::new(1.0).expect("bounds");
        [10.0, 20.0, 20.0].iter().for_each(|v| histogram.record(*v));
        let bins = histogram.to_schema(|ns| 1000.0 / ns).bins;
        assert_eq!(bins.iter().map(|b| b.2).collect::<Vec<_>>(), [2, 1]);
        assert!(bins[0].0 <= 50.0 && 50.0 <= bins[0].1 && bins[0].1 < bins[1].0);
    }

    #[test]
    fn only_like_histograms_merge() {
        let mut a = LogHistogram::new(1.0).expect("bounds");
        a.record(5.0);
        let b = a.clone();
        assert!(a.merge(&b) && a.len() == 2);
        assert!(!a.merge(&LogHistogram::new(2.0).expect("bounds")));
        a.clear();
        assert!(a.is_empty());
    }
}
