//! Descriptive values: quantiles, means, spread.

/// Sorts ascending; a total order, so NaN cannot break it. Does not allocate.
pub fn sort(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// Median of sorted values: the middle one, or the mean of the two middle ones; `None` if empty.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some((sorted[half - 1] + upper) / 2.0) }
}

/// Quantile `p` (0 to 1) of sorted values: an observed value, that of rank ceil(n p); `None` if empty.
///
/// Whether the sample can carry it is asked of [`quantile_ranks`](super::quantile_ranks).
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&p) {
        return None;
    }
    Some(sorted[rank(sorted.len() as u64, p) as usize - 1])
}

/// Rank from 1 of quantile `p` (0 to 1) among `n` values. The tolerance undoes 0.95 * 100 = 95.00000000000001.
#[must_use]
pub fn rank(n: u64, p: f64) -> u64 {
    let exact = n as f64 * p;
    ((exact - exact * 1e-12).ceil() as u64).clamp(1, n.max(1))
}

/// Interquartile range of sorted values; `None` if empty.
#[must_use]
pub fn iqr(sorted: &[f64]) -> Option<f64> {
    Some(quantile(sorted, 0.75)? - quantile(sorted, 0.25)?)
}

/// Arithmetic mean, for costs (times); `None` if empty.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Harmonic mean, for rates of equal work: total work / total time. `None` if empty or any rate is not above 0.
#[must_use]
pub fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    let usable = !rates.is_empty() && rates.iter().all(|r| *r > 0.0);
    usable.then(|| rates.len() as f64 / rates.iter().map(|r| r.recip()).sum::<f64>())
}

/// Sample standard deviation (n - 1), two passes in floating point; `None` below two values.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
    }

    #[test]
    fn a_quantile_is_an_observed_value_of_the_right_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        for (p, expected) in [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0)]
        {
            assert_eq!(quantile(&values, p), Some(expected), "p = {p}");
        }
        assert_eq!(quantile(&values, f64::NAN), None);
        assert_eq!(quantile(&values, 1.5), None);
    }

    /// perftest truncates deviations to whole microseconds: a true 0.26 us prints as 0.000, for four years.
    #[test]
    fn deviations_below_one_unit_are_not_lost() {
        let mut rng = Rng::new(26);
        let values = rng.draws(1000, |r| 2.0 + 0.26 * r.normal());
        let sd = standard_deviation(&values).expect("enough");
        assert!((sd - 0.26).abs() < 0.02, "{sd}");
    }

    /// 1 GB/s and 3 GB/s over equal bytes: 2 bytes in 4/3 of the time, 1.5 GB/s and not 2.
    #[test]
    fn the_mean_of_rates_is_work_over_time() {
        assert_eq!(harmonic_mean(&[1.0, 3.0]), Some(1.5));
        assert_eq!(harmonic_mean(&[1.0, 0.0]), None);
        assert_eq!(mean(&[1.0, 3.0]), Some(2.0));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn sorting_survives_nan() {
        let mut values = [2.0, f64::NAN, 1.0];
        sort(&mut values);
        assert_eq!(&values[..2], &[1.0, 2.0]);
    }
}
