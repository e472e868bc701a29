//! What the machine does to a program that only computes, and to the same measurement twice (rule 10).

use results::schema::{AaNoise, NoiseSummary};
use results::stats::{needed, quantile, ratio_interval, sort};

/// A quantum longer than this many shortest ones was interrupted.
const DETOUR: f64 = 1.5;

/// Summary of a fixed-work-quantum probe: `quanta` are the durations in ns of equal pieces of work (Sottile &
/// Minnich 2004). `None` without quanta, or if one is not a positive number.
#[must_use]
pub fn noise_summary(quanta: &[f64]) -> Option<NoiseSummary> {
    let mut sorted = quanta.to_vec();
    sort(&mut sorted);
    let (shortest, longest) = (*sorted.first()?, *sorted.last()?);
    // Sorted by total order: a NaN would be first or last.
    if !(shortest > 0.0 && longest.is_finite()) {
        return None;
    }
    let total: f64 = sorted.iter().sum();
    let count = sorted.len() as u64;
    let p99 = quantile(&sorted, 0.99).filter(|_| needed(0.99).is_some_and(|n| count >= n));
    let limit = DETOUR * shortest;
    Some(NoiseSummary {
        quanta: count,
        quantum_ns: shortest,
        stolen: (1.0 - shortest * count as f64 / total).max(0.0),
        detours: (sorted.len() - sorted.partition_point(|q| *q <= limit)) as u64,
        detour_max_ns: if longest > limit { longest - shortest } else { 0.0 },
        p99_ratio: p99.map(|p| p / shortest),
    })
}

/// The noise floor from launch medians of one cell measured as if it were two, launches alternating.
///
/// `None` if the launches carry no 95 % interval (four of each do).
#[must_use]
pub fn aa_noise(a: &[f64], b: &[f64]) -> Option<AaNoise> {
    let found = ratio_interval(a, b)?;
    let (low, high) = (found.low?, found.high?);
    let floor = (low.recip().max(high) - 1.0).max(0.0);
    Some(AaNoise { floor, ratio: found.ratio, launches: a.len().min(b.len()) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::stats::{Draw as _, Rng};

    #[test]
    fn planted_detours_are_found_with_their_share() {
        let mut quanta = vec![1000.0; 9990];
        quanta.extend([11_000.0; 10]);
        Rng::new(1).shuffle(&mut quanta);
        let noise = noise_summary(&quanta).expect("quanta");
        assert_eq!((noise.quanta, noise.detours, noise.detour_max_ns), (10_000, 10, 10_000.0));
        assert!((noise.stolen - 1e5 / 10_100_000.0).abs() < 1e-9, "{noise:?}");
        assert_eq!(noise.p99_ratio, Some(1.0));
    }

    #[test]
    fn a_quiet_machine_loses_nothing_and_few_quanta_carry_no_p99() {
        let noise = noise_summary(&[5.0; 298]).expect("quanta");
        assert_eq!((noise.stolen, noise.detours, noise.detour_max_ns, noise.p99_ratio), (0.0, 0, 0.0, None));
    }

    #[test]
    fn impossible_durations_have_no_summary() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(noise_summary(&[1.0, bad]), None, "{bad}");
        }
        assert_eq!(noise_summary(&[]), None);
    }

    /// The floor covers the true ratio, 1, and it is what it says: later A/A ratios exceed it rarely.
    #[test]
    fn the_floor_is_seldom_exceeded_by_another_comparison_with_itself() {
        let mut rng = Rng::new(2);
        let mut launches = |n| rng.draws(n, |r| r.log_normal(0.03));
        let exceeded = (0..500).filter(|_| {
            let floor = aa_noise(&launches(6), &launches(6)).expect("launches").floor;
            let again = aa_noise(&launches(6), &launches(6)).expect("launches").ratio;
            again.max(again.recip()) - 1.0 > floor
        });
        let count = exceeded.count();
        assert!(count <= 40, "{count} of 500");
        assert_eq!(aa_noise(&[1.0; 3], &[1.0; 3]), None);
    }
}
