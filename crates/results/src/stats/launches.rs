//! The run is the unit: one median for each launch, and statistics over those (rule 7).
//!
//! Page colours, queue numbers and placement change from launch to launch and not within one, so samples of
//! one launch say nothing about them (Kalibera & Jones 2013; Hunold & Carpen-Amarie 2016).

use super::order::{Interval, median_interval};
use super::summary::{iqr, median, sort};

/// Launches below which no order-statistic interval reaches 95 %: two launches in 2^n miss, 1 - 2/2^6 = 96.9 %.
pub const LAUNCHES_FOR_95: usize = 6;

/// Median over launches.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchMedian {
    /// Median of the launch medians.
    pub median: f64,
    /// 95 % interval, if there are six or more launches.
    pub interval: Option<Interval>,
    /// Why there is none.
    pub reason: Option<String>,
}

/// Median of launch medians (any order) with its interval; `None` without launches.
#[must_use]
pub fn over_launches(medians: &[f64]) -> Option<LaunchMedian> {
    let mut sorted = medians.to_vec();
    sort(&mut sorted);
    let median = median(&sorted)?;
    let interval = median_interval(&sorted);
    let reason = interval.is_none().then(|| reason(sorted.len()));
    Some(LaunchMedian { median, interval, reason })
}

fn reason(launches: usize) -> String {
    if launches == 1 {
        return format!("one launch says nothing of other launches; 95 % needs {LAUNCHES_FOR_95}");
    }
    let carried = 100.0 * (1.0 - 2.0 * 0.5f64.powi(launches as i32));
    format!("the range of {launches} launches carries {carried:.1} %; 95 % needs {LAUNCHES_FOR_95}")
}

/// The sources of the variation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Interquartile range of the launch medians; `None` below four launches.
    pub between: Option<f64>,
    /// Median over launches of the interquartile range within each; `None` without samples.
    pub within: Option<f64>,
}

/// Spread between and within launches, from the launch medians and the interquartile range of each launch.
#[must_use]
pub fn spread(medians: &[f64], iqrs: &[f64]) -> Spread {
    let mut between = medians.to_vec();
    let mut within = iqrs.to_vec();
    sort(&mut between);
    sort(&mut within);
    Spread { between: iqr(&between).filter(|_| between.len() >= 4), within: median(&within) }
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;

    #[test]
    fn fewer_than_six_launches_say_that_they_cannot_carry_95_percent() {
        let five = over_launches(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("launches");
        assert_eq!((five.median, five.interval), (3.0, None));
        assert_eq!(five.reason.as_deref(), Some("the range of 5 launches carries 93.8 %; 95 % needs 6"));
        let six = over_launches(&[6.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("launches");
        assert_eq!(six.interval.map(|i| (i.low, i.high)), Some((1.0, 6.0)));
        assert_eq!(six.reason, None);
        assert!(over_launches(&[1.0]).expect("one").reason.expect("reason").starts_with("one launch"));
        assert_eq!(over_launches(&[]), None);
    }

    /// Launch effects of 5 % over samples of 1 %: an interval over pooled samples misses the truth nearly always,
    /// that over launches covers it as promised.
    #[test]
    fn the_interval_over_launches_covers_where_pooled_samples_do_not() {
        let mut rng = Rng::new(7);
        let (mut by_launch, mut pooled_hits) = (0, 0);
        for _ in 0..400 {
            let mut pooled = Vec::new();
            let medians = rng.draws(10, |r| {
                let centre = 1.0 + 0.05 * r.normal();
                let mut samples = r.draws(200, |r| centre + 0.01 * r.normal());
                pooled.extend_from_slice(&samples);
                sort(&mut samples);
                median(&samples).expect("samples")
            });
            sort(&mut pooled);
            let interval = over_launches(&medians).and_then(|m| m.interval).expect("ten launches");
            by_launch += u32::from(interval.covers(1.0));
            pooled_hits += u32::from(median_interval(&pooled).expect("n").covers(1.0));
        }
        assert!(by_launch >= 376, "{by_launch} of 400");
        assert!(pooled_hits < 200, "{pooled_hits} of 400");
    }

    #[test]
    fn spread_separates_between_from_within() {
        let spread = spread(&[1.0, 2.0, 3.0, 4.0], &[0.1, 0.3, 0.2]);
        assert_eq!(spread, Spread { between: Some(2.0), within: Some(0.2) });
        assert_eq!(super::spread(&[1.0, 2.0, 3.0], &[]), Spread { between: None, within: None });
    }
}
