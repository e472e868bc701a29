//! Outliers by Tukey's fences: classified and counted, never dropped (rule 9).

use super::summary::quantile;

/// How far out a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlierClass {
    /// Within 1.5 interquartile ranges of the quartiles.
    Inside,
    /// Beyond 1.5, not beyond 3.
    Mild,
    /// Beyond 3.
    Severe,
}

/// The fences of one sample set, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fences {
    q1: f64,
    q3: f64,
    mild: f64,
    severe: f64,
}

impl Fences {
    /// Fences of sorted samples; `None` if empty.
    ///
    /// `resolution` is the clock's, in the unit of the samples: nothing within one step of a quartile is mild and nothing
    /// within two is severe, else on quantised data (interquartile range 0) every other reading would be an outlier.
    #[must_use]
    pub fn new(sorted: &[f64], resolution: f64) -> Option<Self> {
        let (q1, q3) = (quantile(sorted, 0.25)?, quantile(sorted, 0.75)?);
        let iqr = q3 - q1;
        Some(Self { q1, q3, mild: (1.5 * iqr).max(resolution), severe: (3.0 * iqr).max(2.0 * resolution) })
    }

    /// Class of one value. The tolerance keeps rounding of 121.0 - 120.0 from beating a resolution of 1.
    #[must_use]
    pub fn class(&self, value: f64) -> OutlierClass {
        let out = (self.q1 - value).max(value - self.q3) * (1.0 - 1e-12);
        if out > self.severe {
            OutlierClass::Severe
        } else if out > self.mild {
            OutlierClass::Mild
        } else {
            OutlierClass::Inside
        }
    }

    /// The severe fences, lower and upper.
    #[must_use]
    pub fn outer(&self) -> (f64, f64) {
        (self.q1 - self.severe, self.q3 + self.severe)
    }
}

/// Mild count, severe count, and the indices of the first `keep` severe ones, of samples in time order.
#[must_use]
pub fn count_outliers(samples: &[f64], fences: &Fences, keep: usize) -> (u64, u64, Vec<u64>) {
    let (mut mild, mut severe, mut positions) = (0, 0, Vec::new());
    for (index, sample) in samples.iter().enumerate() {
        match fences.class(*sample) {
            OutlierClass::Inside => {}
            OutlierClass::Mild => mild += 1,
            OutlierClass::Severe => {
                severe += 1;
                if positions.len() < keep {
                    positions.push(index as u64);
                }
            }
        }
    }
    (mild, severe, positions)
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng, sort};
    use super::*;

    fn fences(samples: &[f64], resolution: f64) -> Fences {
        let mut sorted = samples.to_vec();
        sort(&mut sorted);
        Fences::new(&sorted, resolution).expect("samples")
    }

    /// A normal sample has 0.7 % beyond the inner and 0.0002 % beyond the outer fences.
    #[test]
    fn planted_outliers_are_found_where_they_are() {
        let mut samples = Rng::new(1).draws(10_000, |r| 100.0 + r.normal());
        samples[17] = 150.0;
        samples[4711] = 20.0;
        let (mild, severe, positions) = count_outliers(&samples, &fences(&samples, 0.01), 10);
        assert!((30..120).contains(&mild), "{mild}");
        assert_eq!((severe, positions), (2, vec![17, 4711]));
    }

    #[test]
    fn positions_are_bounded_and_counts_are_not() {
        let samples: Vec<f64> = (0..100).map(|i| if i % 10 == 9 { 1e3 } else { 1.0 }).collect();
        let (_, severe, positions) = count_outliers(&samples, &fences(&samples, 0.1), 3);
        assert_eq!((severe, positions), (10, vec![9, 19, 29]));
    }

    /// Quantised readings: one tick is nothing, three ticks are something.
    #[test]
    fn nothing_within_the_resolution_is_an_outlier() {
        let mut samples = vec![120.0; 1000];
        samples[3] = 121.0;
        samples[5] = 119.0;
        assert_eq!(count_outliers(&samples, &fences(&samples, 1.0), 9).1, 0);
        assert_eq!(count_outliers(&samples, &fences(&samples, 1.0), 9).0, 0);
        samples[7] = 123.0;
        assert_eq!(count_outliers(&samples, &fences(&samples, 1.0), 9), (0, 1, vec![7]));
    }

    #[test]
    fn no_samples_have_no_fences() {
        assert_eq!(Fences::new(&[], 1.0), None);
    }
}
