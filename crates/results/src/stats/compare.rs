//! Comparing two sets of launch medians: ratio, interval, verdict (rule 15).
//!
//! The ratio is Hodges-Lehmann's on logarithms (median of all pairwise ratios) with the exact interval of the Mann-
//! Whitney test: no distribution is assumed and no ratios are averaged.

use super::special::{normal_upper, student_upper};
use super::summary::{mean, median, sort, standard_deviation};

const TAIL: f64 = 0.025;

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Times: lower is better.
    LowerIsBetter,
    /// Rates: higher is better.
    HigherIsBetter,
}

/// Ratio new / old with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// Hodges-Lehmann ratio; above 1 if the new values are larger.
    pub ratio: f64,
    /// Lower end; `None` with [`high`](Self::high) if the launches are too few for 95 % (four on each side suffice).
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// The verdict of new against old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is beyond the threshold on the bad side.
    Worse,
    /// The whole interval is beyond the threshold on the good side.
    Better,
    /// The whole interval is within the threshold.
    Same,
    /// Anything else.
    CannotTell,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::CannotTell => "cannot tell",
        })
    }
}

/// Ratio new / old of two sets of launch medians; `None` if either is empty or has a value that is not above 0.
#[must_use]
pub fn ratio_interval(old: &[f64], new: &[f64]) -> Option<RatioInterval> {
    let usable = |v: &f64| *v > 0.0 && v.is_finite();
    if old.is_empty() || new.is_empty() || !old.iter().chain(new).all(usable) {
        return None;
    }
    let mut ratios: Vec<f64> = new.iter().flat_map(|n| old.iter().map(move |o| n / o)).collect();
    sort(&mut ratios);
    let ratio = hodges_lehmann(&ratios)?;
    let ends =
        critical_rank(old.len(), new.len()).map(|rank| (ratios[rank - 1], ratios[ratios.len() - rank]));
    Some(RatioInterval { ratio, low: ends.map(|e| e.0), high: ends.map(|e| e.1) })
}

/// Median of sorted ratios; of an even number, the geometric mean of the middle two, so that new / old and
/// old / new are reciprocal.
fn hodges_lehmann(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { median(sorted) } else { Some((sorted[half - 1] * sorted[half]).sqrt()) }
}

/// Largest rank k with P(U <= k - 1) <= 2.5 % for the Mann-Whitney statistic; `None` if even k = 1 exceeds it.
fn critical_rank(a: usize, b: usize) -> Option<usize> {
    let pairs = (a * b) as f64;
    // Exact counting is quadratic in the pairs; beyond this the normal approximation is good to three digits.
    if a * b > 900 {
        let sd = (pairs * (a + b + 1) as f64 / 12.0).sqrt();
        let rank = (pairs / 2.0 - super::order::Z95 * sd).floor();
        return (rank >= 1.0).then_some(rank as usize);
    }
    let counts = mann_whitney_counts(a, b);
    let total: f64 = counts.iter().sum();
    let mut below = 0.0;
    let inside = counts.iter().take_while(|count| {
        below += **count / total;
        below <= TAIL
    });
    Some(inside.count()).filter(|rank| *rank >= 1)
}

/// Number of orders of a + b values with each value of U: the Gaussian binomial coefficient, as a product of
/// (1 - q^(b+i)) / (1 - q^i) over i = 1..=a.
fn mann_whitney_counts(a: usize, b: usize) -> Vec<f64> {
    let size = a * b + 1;
    let mut counts = vec![0.0; size];
    counts[0] = 1.0;
    for i in 1..=a {
        for u in (b + i..size).rev() {
            counts[u] -= counts[u - b - i];
        }
        for u in i..size {
            counts[u] += counts[u - i];
        }
    }
    counts
}

/// How far the later half of a run's launches moved from the earlier half, as a fraction; 0 if chance explains it.
///
/// The interval of a ratio covers the scatter of launches. It cannot cover a machine that changed during the
/// measurement: then launches of another hour differ by as much.
#[must_use]
pub fn drift(launches: &[f64]) -> f64 {
    let (early, late) = launches.split_at(launches.len() / 2);
    let moved = ratio_interval(early, late).filter(|r| r.low > Some(1.0) || r.high.is_some_and(|h| h < 1.0));
    moved.map_or(0.0, |r| r.ratio.max(r.ratio.recip()) - 1.0)
}

/// Verdict of an interval against `threshold` (a fraction: 0.05 allows 5 %, symmetric as a ratio).
///
/// A difference has to be larger than the drift of the runs, too. "Same" has no such allowance: noise never makes two
/// runs the same.
#[must_use]
pub fn verdict(ratio: &RatioInterval, threshold: f64, drift: f64, direction: Direction) -> Verdict {
    let (Some(low), Some(high)) = (ratio.low, ratio.high) else { return Verdict::CannotTell };
    let bounds = |share: f64| (1.0 + share.max(0.0), 1.0 / (1.0 + share.max(0.0)));
    let ((upper, lower), (beyond, below_it)) = (bounds(threshold), bounds(threshold.max(drift)));
    let (above, below) = match direction {
        Direction::LowerIsBetter => (Verdict::Worse, Verdict::Better),
        Direction::HigherIsBetter => (Verdict::Better, Verdict::Worse),
    };
    if low > beyond {
        above
    } else if high < below_it {
        below
    } else if low >= lower && high <= upper {
        Verdict::Same
    } else {
        Verdict::CannotTell
    }
}

/// P value of "the ratio is within the threshold", two-sided: Yuen's test on logarithms, shifted to the threshold.
///
/// For the correction over many cells only. A rank test is unsuitable: with five launches a side its least p is
/// 1/126, and no cell of a hundred could ever pass. So is Welch's: a single disturbed launch widens its deviation
/// until a clear difference is not significant (Yuen 1974 trims a fifth at each end). `None` below two launches on a
/// side or without a ratio.
#[must_use]
pub fn p_beyond(old: &[f64], new: &[f64], threshold: f64) -> Option<f64> {
    ratio_interval(old, new)?;
    let (old, new) = (Trimmed::of_logarithms(old)?, Trimmed::of_logarithms(new)?);
    let excess = (new.mean - old.mean).abs() - threshold.max(0.0).ln_1p();
    let (a, b) = (old.variance, new.variance);
    if a + b <= 0.0 {
        return Some(if excess > 0.0 { 0.0 } else { 1.0 });
    }
    let freedom = (a + b).powi(2) / (a * a / old.freedom + b * b / new.freedom);
    let t = excess / (a + b).sqrt();
    let tail = if freedom > 1e4 { normal_upper(t) } else { student_upper(t, freedom) };
    Some((2.0 * tail).min(1.0))
}

/// The mean after trimming a fifth at each end, and its precision.
struct Trimmed {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    freedom: f64,
}

impl Trimmed {
    /// That of the values' logarithms; the variance is from the values with the trimmed ones replaced by the nearest kept (Winsorized).
    /// `None` if fewer than two values are kept.
    fn of_logarithms(values: &[f64]) -> Option<Self> {
        let mut logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        sort(&mut logs);
        let cut = logs.len() / 5;
        let kept = logs.get(cut..logs.len() - cut).filter(|kept| kept.len() >= 2)?.to_vec();
        let (count, left) = (logs.len() as f64, kept.len() as f64);
        let (least, most) = (*kept.first()?, *kept.last()?);
        logs.iter_mut().for_each(|v| *v = v.clamp(least, most));
        let squares = standard_deviation(&logs)?.powi(2) * (count - 1.0);
        Some(Self { mean: mean(&kept)?, variance: squares / (left * (left - 1.0)), freedom: left - 1.0 })
    }
}

/// Benjamini-Hochberg adjusted p values (q values), in the order given; the share of false alarms among cells
/// with q <= x is at most x.
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_unstable_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut q = vec![1.0; p.len()];
    let mut least = 1.0f64;
    for (from_top, index) in order.into_iter().enumerate() {
        let rank = p.len() - from_top;
        least = least.min(p[index] * p.len() as f64 / rank as f64);
        q[index] = least;
    }
    q
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;

    fn launches(rng: &mut Rng, n: usize, level: f64, noise: f64) -> Vec<f64> {
        rng.draws(n, |r| level * r.log_normal(noise))
    }

    /// Critical values of the Mann-Whitney test, 5 % two-sided, from the printed table (U <= k - 1 rejects).
    #[test]
    fn the_critical_ranks_are_the_tabulated_ones() {
        for (a, b, u) in
            [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23), (20, 20, 127), (5, 10, 8)]
        {
            assert_eq!(critical_rank(a, b), Some(u + 1), "{a}, {b}");
            assert_eq!(critical_rank(b, a), Some(u + 1), "{b}, {a}");
        }
        assert_eq!(critical_rank(3, 3), None);
        assert_eq!(critical_rank(1, 1), None);
        // The approximation continues the exact values: 30 x 30 has 317.
        assert_eq!(critical_rank(30, 30), Some(318));
        assert!(critical_rank(31, 31).is_some_and(|k| (340..346).contains(&k)));
    }

    #[test]
    fn the_interval_covers_a_known_ratio_and_is_symmetric() {
        let mut rng = Rng::new(1);
        let mut hits = 0;
        for _ in 0..1000 {
            let (old, new) = (launches(&mut rng, 8, 2.0, 0.05), launches(&mut rng, 8, 2.4, 0.05));
            let there = ratio_interval(&old, &new).expect("launches");
            let back = ratio_interval(&new, &old).expect("launches");
            assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
            hits += u32::from(there.low <= Some(1.2) && Some(1.2) <= there.high);
        }
        assert!((935..=985).contains(&hits), "{hits}");
    }

    #[test]
    fn known_effects_get_their_verdicts() {
        let mut rng = Rng::new(2);
        let old = launches(&mut rng, 10, 1.0, 0.01);
        let check =
            |new: &[f64], direction| verdict(&ratio_interval(&old, new).expect("n"), 0.05, 0.0, direction);
        let slower = launches(&mut rng, 10, 1.2, 0.01);
        assert_eq!(check(&slower, Direction::LowerIsBetter), Verdict::Worse);
        assert_eq!(check(&slower, Direction::HigherIsBetter), Verdict::Better);
        let equal = launches(&mut rng, 10, 1.0, 0.01);
        assert_eq!(check(&equal, Direction::LowerIsBetter), Verdict::Same);
        // An effect at the threshold, and noise beyond it: neither can be told.
        let at = launches(&mut rng, 10, 1.05, 0.01);
        assert_eq!(check(&at, Direction::LowerIsBetter), Verdict::CannotTell);
        let wild = launches(&mut rng, 10, 1.0, 0.5);
        assert_eq!(check(&wild, Direction::LowerIsBetter), Verdict::CannotTell);
        assert_eq!(check(&slower[..1], Direction::LowerIsBetter), Verdict::CannotTell);
        assert_eq!(Verdict::CannotTell.to_string(), "cannot tell");
    }

    /// Noise may withhold a verdict. It never makes a difference beyond the threshold "same".
    #[test]
    fn drift_withholds_a_difference_and_never_grants_sameness() {
        let found = RatioInterval { ratio: 1.3, low: Some(1.283), high: Some(1.312) };
        let check = |drift| verdict(&found, 0.05, drift, Direction::LowerIsBetter);
        assert_eq!(
            [check(0.0), check(0.2), check(0.381)],
            [Verdict::Worse, Verdict::Worse, Verdict::CannotTell]
        );
    }

    #[test]
    fn drift_is_the_significant_difference_of_halves() {
        let steps =
            |late: f64| [1.0, 1.01, 0.99, 1.0, 1.02, late, 1.01 * late, 0.99 * late, late, late, late];
        assert!((drift(&steps(1.4)) - 0.4).abs() < 0.02 && (drift(&steps(1.0 / 1.4)) - 0.4).abs() < 0.02);
        assert_eq!(drift(&steps(1.0)), 0.0);
        assert_eq!(drift(&[1.0, 9.0]), 0.0, "too few to tell");
    }

    /// A single disturbed launch out of eleven: the other ten are still evidence.
    #[test]
    fn a_disturbed_launch_hides_no_difference() {
        let mut rng = Rng::new(5);
        let (old, mut new) = (launches(&mut rng, 11, 1.0, 0.01), launches(&mut rng, 11, 1.3, 0.01));
        new[3] = 30.0;
        assert!(p_beyond(&old, &new, 0.05).expect("n") < 1e-6);
    }

    #[test]
    fn values_without_ratio_give_none() {
        assert_eq!(ratio_interval(&[], &[1.0]), None);
        assert_eq!(ratio_interval(&[1.0], &[0.0]), None);
        assert_eq!(ratio_interval(&[f64::NAN], &[1.0]), None);
        assert_eq!(p_beyond(&[1.0], &[2.0], 0.0), None);
    }

    /// A/A at threshold 0: at most the 5 % that the interval guarantees, over both sides.
    #[test]
    fn the_false_positive_rate_of_a_comparison_with_itself_is_within_its_level() {
        let mut rng = Rng::new(3);
        let wrong = (0..2000).filter(|_| {
            let (old, new) = (launches(&mut rng, 6, 1.0, 0.1), launches(&mut rng, 6, 1.0, 0.1));
            let found = verdict(&ratio_interval(&old, &new).expect("n"), 0.0, 0.0, Direction::LowerIsBetter);
            matches!(found, Verdict::Worse | Verdict::Better)
        });
        let count = wrong.count();
        assert!(count <= 115, "{count} of 2000");
    }

    #[test]
    fn p_values_are_uniform_at_the_threshold_and_vanish_beyond_it() {
        let mut rng = Rng::new(4);
        let at = (0..1000).filter(|_| {
            let (old, new) = (launches(&mut rng, 8, 1.0, 0.05), launches(&mut rng, 8, 1.1, 0.05));
            p_beyond(&old, &new, 0.1).expect("n") < 0.1
        });
        let count = at.count();
        assert!((25..=75).contains(&count), "one side of the 10 %: {count} of 1000");
        let (old, new) = (launches(&mut rng, 5, 1.0, 0.02), launches(&mut rng, 5, 2.0, 0.02));
        assert!(p_beyond(&old, &new, 0.05).expect("n") < 1e-4);
        assert_eq!(p_beyond(&[1.0, 1.0], &[1.2, 1.2], 0.05), Some(0.0));
        assert_eq!(p_beyond(&[1.0, 1.0], &[1.0, 1.0], 0.05), Some(1.0));
    }

    /// The worked example of Benjamini & Hochberg (1995): four of fifteen pass at 5 %.
    #[test]
    fn the_published_example_of_benjamini_and_hochberg() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let q = benjamini_hochberg(&p);
        assert_eq!(q.iter().filter(|q| **q <= 0.05).count(), 4);
        assert!(q.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(benjamini_hochberg(&[0.5, 0.01]), [0.5, 0.02]);
        assert!(benjamini_hochberg(&[]).is_empty());
    }
}
