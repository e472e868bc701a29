//! What one launch sampled, in ns for one operation, analysed.

use super::clock::Calibration;
use results::schema;
use results::stats::{
    Fences, Interval, LogHistogram, bimodal, block_bootstrap_median, count_outliers, lag1_clipped, median,
    trend,
};

/// Above this many samples a bootstrap takes longer than it is worth; the widened ranks agree with it there.
const BOOTSTRAP_MAX: usize = 1 << 14;
const REPLICATES: usize = 200;
/// Severe outliers whose positions are kept.
const POSITIONS: usize = 32;
/// A trend below this share of the median is not flagged.
const TREND: f64 = 0.01;

/// Warm-up and dependence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steadiness {
    pub(crate) cut: usize,
    pub(crate) steady: Option<bool>,
    pub(crate) n_eff: f64,
}

/// Samples of one launch, after the warm-up was cut. Times in ns for one operation.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The very first operation; not among the samples.
    pub first_ns: Option<f64>,
    /// Operations in a sample.
    pub batch: u64,
    /// The clock that timed.
    pub clock: Calibration,
    /// Samples.
    pub n: u64,
    /// Whether [`samples`](Self::samples) is complete, otherwise a uniform reservoir.
    pub complete: bool,
    /// Samples in time order.
    pub samples: Vec<f64>,
    /// All samples in ascending order.
    pub sorted: Vec<f64>,
    /// All samples, in bins.
    pub histogram: LogHistogram,
    /// Sum of all samples.
    pub sum_ns: f64,
    /// Shortest of all.
    pub min_ns: f64,
    /// Longest of all.
    pub max_ns: f64,
    /// Median with its 95 % interval; `None` if too few.
    pub interval: Option<Interval>,
    /// How the interval was made, if not by plain ranks, or why there is none.
    pub interval_reason: Option<String>,
    pub(crate) steadiness: Steadiness,
    /// Lag-1 autocorrelation within Tukey's outer fences; `None` for a reservoir.
    pub lag1: Option<f64>,
    /// Half-width over the median by which the stop rule was judged.
    pub half_width: Option<f64>,
    /// The half-width that was wanted.
    pub half_width_target: f64,
    /// What ended it, if not the stop rule.
    pub because: Option<&'static str>,
    /// Time of all operations, warm-up and pilots included.
    pub elapsed_ns: f64,
    /// Anomalies of the samples; the caller may add others (`context switches`).
    pub flags: Vec<String>,
}

impl Sampled {
    /// Median of the samples, in nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> f64 {
        median(&self.sorted).unwrap_or_default()
    }

    /// Samples cut as warm-up.
    #[must_use]
    pub const fn warm_up_cut(&self) -> usize {
        self.steadiness.cut
    }

    /// Whether a steady state was found; `None` if the samples were too few to decide.
    #[must_use]
    pub const fn steady(&self) -> Option<bool> {
        self.steadiness.steady
    }

    /// Effective sample size, 1 to n.
    #[must_use]
    pub fn n_eff(&self) -> f64 {
        if self.complete {
            self.steadiness.n_eff
        } else {
            self.steadiness.n_eff / self.samples.len() as f64 * self.n as f64
        }
    }

    /// The clock's resolution for one operation.
    fn resolution(&self) -> f64 {
        self.clock.resolution_ns / self.batch as f64
    }

    /// Interval for dependent samples, and the flags.
    pub(crate) fn analyse(&mut self, seed: u64) {
        let fences = Fences::new(&self.sorted, self.resolution());
        if self.complete {
            let (low, high) = fences.map_or((f64::NEG_INFINITY, f64::INFINITY), |f| f.outer());
            self.lag1 = lag1_clipped(&self.samples, low, high);
        }
        self.widen(seed);
        let interval_ns = self.median_ns() * self.batch as f64;
        let odd = [
            (self.steadiness.steady == Some(false), "no steady state"),
            (self.complete && trend(&self.samples).is_some_and(|t| t.flagged(TREND)), "trend"),
            (bimodal(&self.sorted, self.resolution()).is_some(), "bimodal"),
            (interval_ns < self.clock.shortest_ns(), "timer too coarse for this batch"),
        ];
        self.flags.extend(odd.iter().filter(|(holds, _)| *holds).map(|(_, text)| (*text).to_owned()));
    }

    fn widen(&mut self, seed: u64) {
        let (n, n_eff) = (self.samples.len(), self.steadiness.n_eff);
        if self.interval.is_none() {
            let reason = if n < 6 { "fewer than 6 samples" } else { "too dependent for their number" };
            self.interval_reason = Some(format!("{n} samples carry no 95 % interval: {reason}"));
        }
        if n_eff >= n as f64 / 2.0 {
            return;
        }
        let dependent = format!("samples depend on each other (n_eff = {:.0} of {n})", n_eff);
        if self.complete && n <= BOOTSTRAP_MAX {
            // The block must span the dependence that n_eff saw, also where it is not that of lag 1.
            let rho = ((n as f64 - n_eff) / (n as f64 + n_eff)).max(self.lag1.unwrap_or_default());
            if let Some(found) = block_bootstrap_median(&self.samples, rho, REPLICATES, seed) {
                self.interval = Some(found);
                self.interval_reason = Some(format!("{dependent}: block bootstrap"));
            }
        } else if self.interval.is_some() {
            self.interval_reason = Some(format!("{dependent}: ranks widened"));
        }
    }

    /// How the stop rule ended, for the result file.
    #[must_use]
    pub fn stop(&self) -> schema::Stop {
        let reached = self.half_width.is_some_and(|w| w <= self.half_width_target);
        let state = match self.half_width.filter(|w| w.is_finite()) {
            _ if reached => "reached".to_owned(),
            Some(width) => format!("not reached: {:.1} %", 100.0 * width),
            None => "not reached: no interval".to_owned(),
        };
        let half_width = self.half_width.filter(|w| w.is_finite());
        schema::Stop {
            state,
            half_width,
            target: self.half_width_target,
            because: self.because.map(str::to_owned),
        }
    }

    /// The launch for the result file; `map` takes ns for one operation to the result's unit and is monotone.
    /// At most `samples` samples are stored, spread evenly over time.
    #[must_use]
    pub fn launch(&self, map: impl Fn(f64) -> f64, samples: usize) -> schema::Launch {
        let outliers = Fences::new(&self.sorted, self.resolution()).map(|fences| {
            let (mild, severe, positions) = count_outliers(&self.samples, &fences, POSITIONS);
            // Of a reservoir the positions would be wrong and the counts those of a part.
            let scale =
                |count: u64| (count as f64 * self.n as f64 / self.samples.len() as f64).round() as u64;
            let positions = if self.complete { positions } else { Vec::new() };
            schema::Outliers { mild: scale(mild), severe: scale(severe), positions }
        });
        let shown = samples.min(self.samples.len());
        schema::Launch {
            n: self.n,
            median: map(self.median_ns()),
            ci95: self.interval.and_then(|i| ascending(map(i.low), map(i.high))),
            ci95_reason: self.interval_reason.clone(),
            warm_up: schema::WarmUp { cut: self.steadiness.cut as u64, steady: self.steadiness.steady },
            lag1: self.lag1,
            n_eff: Some(self.n_eff()),
            outliers: outliers.unwrap_or_default(),
            stop: self.stop(),
            batch: self.batch,
            first: self.first_ns.map(&map).filter(|v| v.is_finite()),
            flags: self.flags.clone(),
            samples: (0..shown)
                .map(|i| map(self.samples[i * self.samples.len() / shown]))
                .filter(|v| v.is_finite())
                .collect(),
            // The driver has these.
            intervals: Vec::new(),
        }
    }
}

/// Ends of an interval after a map that may have swapped them; `None` if it took one to infinity.
pub(crate) fn ascending(a: f64, b: f64) -> Option<[f64; 2]> {
    (a.is_finite() && b.is_finite()).then(|| [a.min(b), a.max(b)])
}
