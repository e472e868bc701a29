//! Two modes: a valley test on a histogram (rule 10).
//!
//! Two-component fits call skewed unimodal data bimodal, and the dip test does so with quantised data; latencies are
//! both. Here two peaks count only if the valley between them is at most half of the lower peak, deeper than counting
//! noise explains, and each side holds a tenth of the samples.

use super::summary::quantile;

const BINS_MAX: usize = 64;
const SAMPLES_MIN: usize = 100;
/// Each side of the valley holds at least this share of the samples.
const SHARE: f64 = 0.1;
/// Depth of the valley in standard deviations of the counts; high, since the deepest of many valleys is taken.
const SIGMAS: f64 = 5.0;

/// Two modes, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Centre of the lower mode's bin.
    pub low: f64,
    /// Centre of the upper mode's bin.
    pub high: f64,
    /// Share of the samples on the lower side of the valley.
    pub share_low: f64,
}

/// The two modes of sorted samples, or `None` if one mode explains them or there are fewer than 100.
///
/// `resolution` is the clock's, in the unit of the samples: bins are whole multiples of it, since other widths would
/// show quantised data as a comb, and modes nearer than three steps are one.
#[must_use]
pub fn bimodal(sorted: &[f64], resolution: f64) -> Option<Modes> {
    if sorted.len() < SAMPLES_MIN {
        return None;
    }
    // The far tails would stretch the bins until everything is in the first.
    let (low, high) = (quantile(sorted, 0.005)?, quantile(sorted, 0.98)?);
    // Twice the cube root (Rice's rule) is too fine for a peak to stand out of its noise at small n.
    let bins = (2.0 * (sorted.len() as f64).cbrt()).min(BINS_MAX as f64);
    let mut width = (high - low) / bins;
    if resolution > 0.0 {
        width = (width / resolution).ceil() * resolution;
    }
    if width.is_nan() || width <= low.abs() * 1e-9 {
        return None;
    }
    let start = low - if resolution > 0.0 { resolution } else { width } / 2.0;
    let mut counts = [0.0; BINS_MAX + 2];
    for value in sorted {
        let bin = ((value - start) / width).floor();
        if bin >= 0.0 && bin < counts.len() as f64 {
            counts[bin as usize] += 1.0;
        }
    }
    let (left, valley, right) = deepest_valley(&counts, SHARE * sorted.len() as f64)?;
    let centre = |bin: usize| start + (bin as f64 + 0.5) * width;
    let modes = Modes {
        low: centre(left),
        high: centre(right),
        share_low: counts[..=valley].iter().sum::<f64>() / sorted.len() as f64,
    };
    (modes.high - modes.low >= 3.0 * resolution).then_some(modes)
}

/// Left peak, valley and right peak of the most significant valley that meets the criterion.
fn deepest_valley(counts: &[f64], share: f64) -> Option<(usize, usize, usize)> {
    let total: f64 = counts.iter().sum();
    let mut before = 0.0;
    let mut best = (0.0, None);
    for (valley, count) in counts.iter().enumerate() {
        let (left, right) = (peak(counts, 0..valley), peak(counts, valley + 1..counts.len()));
        if let (Some(left), Some(right)) = (left, right) {
            let lower = counts[left].min(counts[right]);
            let depth = (lower - count) / (lower + count).sqrt().max(1.0);
            let halves = before >= share && total - before - count >= share;
            if halves && *count <= lower / 2.0 && depth > SIGMAS && depth > best.0 {
                best = (depth, Some((left, valley, right)));
            }
        }
        before += count;
    }
    best.1
}

fn peak(counts: &[f64], range: std::ops::Range<usize>) -> Option<usize> {
    range.max_by(|a, b| counts[*a].total_cmp(&counts[*b]))
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng, sort};
    use super::*;

    fn found(n: usize, seed: u64, resolution: f64, draw: impl FnMut(&mut Rng) -> f64) -> Option<Modes> {
        let mut samples = Rng::new(seed).draws(n, draw);
        sort(&mut samples);
        bimodal(&samples, resolution)
    }

    /// At most 1 % of unimodal sets of each shape and size are called bimodal.
    #[test]
    fn one_mode_is_one_mode_whatever_its_shape() {
        type Draw = fn(&mut Rng) -> f64;
        let shapes: [(&str, Draw); 7] = [
            ("normal", |r| 10.0 + r.normal()),
            ("uniform", |r| 1.0 + r.unit()),
            ("exponential", |r| 1.0 + r.exponential()),
            ("log-normal", |r| r.log_normal(0.3)),
            ("heavy tail", |r| r.log_normal(1.5)),
            ("quantised", |r| (120.0 + 1.5 * r.normal()).round()),
            ("with interrupts", |r| if r.unit() < 0.01 { 100.0 } else { 10.0 + 0.1 * r.normal() }),
        ];
        for (name, draw) in shapes {
            let resolution = if name == "quantised" { 1.0 } else { 0.001 };
            for n in [200, 1000, 5000] {
                let wrong = (0..100).filter(|seed| found(n, *seed, resolution, draw).is_some()).count();
                assert!(wrong <= 1, "{name}, n = {n}: {wrong} of 100");
            }
        }
    }

    #[test]
    fn two_modes_are_found_where_they_are() {
        for (share, gap) in [(0.5, 6.0), (0.8, 6.0), (0.85, 50.0), (0.5, 5.0)] {
            let draw = |r: &mut Rng| 100.0 + if r.unit() < share { 0.0 } else { gap } + r.normal();
            let hits = (0..50).filter(|seed| match found(2000, *seed, 0.001, draw) {
                Some(m) => (m.high - m.low - gap).abs() < 1.5 && (m.share_low - share).abs() < 0.05,
                None => false,
            });
            let count = hits.count();
            assert!(count >= 48, "share {share}, gap {gap}: {count} of 50");
        }
    }

    #[test]
    fn quantised_modes_need_three_steps_between_them() {
        let two = |gap: f64| move |r: &mut Rng| if r.unit() < 0.5 { 120.0 } else { 120.0 + gap };
        assert_eq!(found(1000, 1, 1.0, two(2.0)), None);
        let modes = found(1000, 1, 1.0, two(8.0)).expect("two modes");
        assert!((modes.low - 120.0).abs() <= 0.5 && (modes.high - 128.0).abs() <= 0.5, "{modes:?}");
    }

    #[test]
    fn constants_and_small_sets_have_no_modes() {
        assert_eq!(bimodal(&[7.0; 500], 0.0), None);
        assert_eq!(bimodal(&[0.0; 500], 0.0), None);
        assert_eq!(found(99, 1, 0.0, |r| if r.unit() < 0.5 { 1.0 } else { 9.0 }), None);
    }
}
