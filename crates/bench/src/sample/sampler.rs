//! The sampler: a state machine that asks for rounds of work and stops when the median is known well enough.
//!
//! A *batch* is the operations that one sample times together, enough for the clock's resolution; the sample is their
//! mean. A *round* is the samples that the caller takes in one go, between two decisions of the sampler.
//!
//! Order of calls: [`Sampler::next_round`], do that work, [`Sampler::push`] its durations, until no round is
//! returned; then [`Sampler::finish`]. Rounds are: the first operation alone (first touch); pilots that find the
//! batch (rule 1), or, where the batch is given, a round that warms up if the plan asks for it; then samples up to growing
//! checkpoints. The stop rule is evaluated only at a checkpoint (rule 6), to limit peeking. Only `new` allocates memory, so that the allocator does not disturb the measurement.

use super::clock::{Calibration, choose_batch};
use super::sampled::{Sampled, Steadiness};
use results::stats::{
    Interval, LogHistogram, Reservoir, effective_size, median, mser5, sort, widened_median_interval,
};

/// Samples of a pilot, and of one whose operation is slow.
const PILOT: u64 = 16;
const PILOT_SLOW: u64 = 3;
const SLOW_NS: f64 = 1e7;
/// Pilots at most; each can raise the batch sixteenfold.
const PILOTS_MAX: u32 = 12;
/// Samples that are taken even if the time is already up: fewer say nothing at all.
const SAMPLES_FLOOR: u64 = 5;

/// How to sample. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Wanted half-width of the 95 % interval over the median; default 0.01.
    pub half_width_target: f64,
    /// Samples before the rule may stop, after the warm-up is cut; default 100.
    pub samples_min: u64,
    /// Samples at most, warm-up included; default 262 144.
    pub samples_max: u64,
    /// Time before the rule may stop; default 10 ms.
    pub time_min_ns: f64,
    /// Maximum time, including warm-up, exceeded by at most one sample or five; default 1 s.
    pub time_max_ns: f64,
    /// Growth from checkpoint to checkpoint; default 1.5, kept within 1.5 to 2.
    pub growth: f64,
    /// Samples stored individually; further ones are stored in a histogram and a reservoir of this size. Default 262
    /// 144 (24 B each).
    pub samples_kept_max: usize,
    /// Maximum samples in a round: the capacity of the caller's buffer; default 16 384.
    pub round_max: u64,
    /// Maximum time of a round, once it is known what a sample takes; no limit unless given.
    pub round_time_ns: Option<f64>,
    /// Maximum operations in a sample; default 1 048 576.
    pub batch_max: u64,
    /// A given batch instead of a search, if both sides must agree on it.
    pub batch: Option<u64>,
    /// Operations before the first sample where the batch is given: no search warms anything up then. Default 0.
    pub warm_up: u64,
    /// Seed of the reservoir and the bootstrap; default 1.
    pub seed: u64,
    /// The clock that times.
    pub clock: Calibration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            half_width_target: 0.01,
            samples_min: 100,
            samples_max: 1 << 18,
            time_min_ns: 1e7,
            time_max_ns: 1e9,
            growth: 1.5,
            samples_kept_max: 1 << 18,
            round_max: 1 << 14,
            round_time_ns: None,
            batch_max: 1 << 20,
            batch: None,
            warm_up: 0,
            seed: 1,
            clock: Calibration::default(),
        }
    }
}

impl Plan {
    /// Bounds made consistent: whatever is given, the sampler ends.
    fn sound(mut self) -> Self {
        self.samples_max = self.samples_max.max(1);
        self.samples_min = self.samples_min.clamp(1, self.samples_max);
        self.growth = if self.growth.is_nan() { 1.5 } else { self.growth.clamp(1.5, 2.0) };
        // MSER-5 needs this many samples before the buffer may turn into a reservoir.
        self.samples_kept_max = self.samples_kept_max.max(100);
        self.round_max = self.round_max.max(PILOT);
        self.batch_max = self.batch_max.max(1);
        self.warm_up = self.warm_up.min(self.batch_max);
        self.time_max_ns = if self.time_max_ns.is_nan() { 1e9 } else { self.time_max_ns };
        self
    }
}

/// The purpose of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundKind {
    /// The very first operation, stored separately.
    First,
    /// Finding the batch, or warming up; not part of the result.
    Pilot,
    /// Samples.
    Main,
}

/// Work to do: time `samples` samples of `batch` operations each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Samples.
    pub samples: u64,
    /// Operations in each.
    pub batch: u64,
    /// The purpose of the round.
    pub kind: RoundKind,
}

impl Round {
    /// Operations of the round: the other side of a ping-pong must know this in advance.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.samples.saturating_mul(self.batch)
    }
}

/// Why durations were not taken; the sampler is as before.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No round is open.
    #[error("durations were pushed without a round; call next_round first")]
    NoRound,
    /// Not exactly one duration per sample.
    #[error("a round of {expected} samples got {got} durations; push one for each sample")]
    WrongCount {
        /// Samples of the round.
        expected: u64,
        /// Durations given.
        got: usize,
    },
    /// Not a duration.
    #[error("sample {index} took {ns} ns, which no clock can say; check that the clock never runs backwards")]
    BadDuration {
        /// Index within the round.
        index: usize,
        /// The duration.
        ns: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    First,
    Pilot { step: u32, confirmed: bool },
    WarmUp,
    Main,
    Done,
}

/// The state machine; see the module.
#[derive(Clone, Debug)]
pub struct Sampler {
    plan: Plan,
    phase: Phase,
    open: Option<Round>,
    batch: u64,
    elapsed_ns: f64,
    main_ns: f64,
    taken: u64,
    checkpoint: u64,
    first_ns: Option<f64>,
    kept: Reservoir,
    histogram: Option<LogHistogram>,
    overflow: Option<Overflow>,
    scratch: Vec<f64>,
    steadiness: Steadiness,
    half_width: Option<f64>,
    because: Option<&'static str>,
}

/// Statistics fixed at the time when the buffer overflowed.
#[derive(Clone, Copy, Debug)]
struct Overflow {
    sum: f64,
    min: f64,
    max: f64,
    eff_share: f64,
}

impl Sampler {
    /// A sampler with all the memory it will use.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let plan = plan.sound();
        let kept_max = (plan.samples_kept_max as u64).min(plan.samples_max) as usize;
        // From a hundredth of a step, so that batched samples below the resolution are distinguishable.
        let smallest = (plan.clock.resolution_ns / 100.0).clamp(1e-3, 1e3);
        Self {
            plan,
            phase: Phase::First,
            open: None,
            batch: plan.batch.unwrap_or(1).clamp(1, plan.batch_max),
            elapsed_ns: 0.0,
            main_ns: 0.0,
            taken: 0,
            checkpoint: plan.samples_min.max(SAMPLES_FLOOR).min(plan.samples_max),
            first_ns: None,
            kept: Reservoir::new(kept_max, plan.seed),
            histogram: LogHistogram::new(smallest),
            overflow: None,
            scratch: Vec::with_capacity(kept_max.max(PILOT as usize)),
            steadiness: Steadiness::default(),
            half_width: None,
            because: None,
        }
    }

    /// The next round, or `None` when done. Returns the same round until its durations are pushed.
    pub fn next_round(&mut self) -> Option<Round> {
        if self.open.is_none() {
            self.open = match self.phase {
                Phase::First => Some(Round { samples: 1, batch: 1, kind: RoundKind::First }),
                Phase::Pilot { .. } => {
                    let slow = self.first_ns.is_some_and(|ns| ns > SLOW_NS);
                    let samples = if slow { PILOT_SLOW } else { PILOT };
                    Some(Round { samples, batch: self.batch, kind: RoundKind::Pilot })
                }
                Phase::WarmUp => Some(Round { samples: 1, batch: self.plan.warm_up, kind: RoundKind::Pilot }),
                Phase::Main => self.main_round(),
                Phase::Done => None,
            };
        }
        self.open
    }

    /// Samples up to the checkpoint, as far as the caller's buffer and the time allow.
    fn main_round(&mut self) -> Option<Round> {
        let mut samples = (self.checkpoint - self.taken).min(self.plan.round_max);
        let left = self.plan.time_max_ns - self.elapsed_ns;
        let within = |ns: f64| (ns / (self.main_ns / self.taken as f64)).max(0.0) as u64;
        if let Some(ns) = self.plan.round_time_ns.filter(|_| self.taken > 0) {
            samples = samples.min(within(ns).max(1));
        }
        let fits = match self.taken {
            0 if left > 0.0 => samples.min(PILOT).min(self.first_fits(left)),
            0 => 0,
            _ => within(left),
        };
        if fits < samples {
            let owed = SAMPLES_FLOOR.min(self.checkpoint).saturating_sub(self.taken);
            samples = fits.max(owed);
        }
        if samples == 0 {
            self.evaluate();
            self.stop(if self.precise() { None } else { Some("maximum time") });
            return None;
        }
        Some(Round { samples, batch: self.batch, kind: RoundKind::Main })
    }

    /// How many samples fit into `ns` before any was taken. Without pilots only the first operation is known, which is slower than others.
    fn first_fits(&self, ns: f64) -> u64 {
        let first = self.first_ns.filter(|_| self.plan.batch.is_some()).unwrap_or(0.0);
        (ns / (first * self.batch as f64)) as u64
    }

    /// Takes the durations in ns of the open round's samples, each that of a whole batch.
    ///
    /// Durations are used as given: the timer's overhead, at most 5 % by rule 1, is not subtracted.
    ///
    /// # Errors
    /// [`PushError`]; nothing is taken then.
    pub fn push(&mut self, elapsed_ns: &[f64]) -> Result<(), PushError> {
        let round = self.open.ok_or(PushError::NoRound)?;
        if elapsed_ns.len() as u64 != round.samples {
            return Err(PushError::WrongCount { expected: round.samples, got: elapsed_ns.len() });
        }
        if let Some(index) = elapsed_ns.iter().position(|ns| !(*ns >= 0.0 && ns.is_finite())) {
            return Err(PushError::BadDuration { index, ns: elapsed_ns[index] });
        }
        self.open = None;
        let total: f64 = elapsed_ns.iter().sum();
        self.elapsed_ns += total;
        match round.kind {
            RoundKind::First => {
                self.first_ns = Some(total);
                self.phase = match (self.plan.batch, self.plan.warm_up) {
                    (None, _) => Phase::Pilot { step: 0, confirmed: false },
                    (Some(_), 0) => Phase::Main,
                    (Some(_), _) => Phase::WarmUp,
                };
            }
            RoundKind::Pilot if self.phase == Phase::WarmUp => self.phase = Phase::Main,
            RoundKind::Pilot => self.pilot(elapsed_ns),
            RoundKind::Main => {
                self.main_ns += total;
                elapsed_ns.iter().for_each(|ns| self.take(ns / round.batch as f64));
                self.check();
            }
        }
        Ok(())
    }

    /// Ends sampling early and keeps the samples. For Ctrl-C and vanished peers.
    pub fn interrupt(&mut self) {
        if self.phase != Phase::Done {
            self.open = None;
            self.evaluate();
            self.stop(Some("interrupted"));
        }
    }

    /// Samples taken, for a progress display.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Half-width over the median at the last checkpoint.
    #[must_use]
    pub const fn half_width(&self) -> Option<f64> {
        self.half_width
    }

    /// Maximum samples in a round: the capacity of a buffer that never grows.
    #[must_use]
    pub const fn round_max(&self) -> u64 {
        self.plan.round_max
    }

    /// Raises the batch until a pilot's interval is long enough twice: the first was cold.
    fn pilot(&mut self, elapsed_ns: &[f64]) {
        let Phase::Pilot { step, confirmed } = self.phase else { return };
        self.scratch.clear();
        self.scratch.extend_from_slice(elapsed_ns);
        sort(&mut self.scratch);
        let per_op = median(&self.scratch).unwrap_or_default() / self.batch as f64;
        let wanted = choose_batch(per_op, &self.plan.clock, self.plan.batch_max);
        let enough = wanted <= self.batch;
        if !enough {
            self.batch = wanted.min(self.batch.saturating_mul(16));
        }
        let late = self.elapsed_ns > self.plan.time_max_ns / 4.0;
        self.phase = if (enough && confirmed) || late || step + 1 >= PILOTS_MAX {
            Phase::Main
        } else {
            Phase::Pilot { step: step + 1, confirmed: enough }
        };
    }

    /// Stores a sample: individually while there is room, then also in the histogram.
    fn take(&mut self, ns: f64) {
        if self.overflow.is_none() && self.kept.seen() >= self.kept.capacity() as u64 {
            self.begin_overflow();
        }
        self.taken += 1;
        self.kept.push(ns);
        if let Some(all) = &mut self.overflow {
            all.sum += ns;
            all.min = all.min.min(ns);
            all.max = all.max.max(ns);
            if let Some(histogram) = &mut self.histogram {
                histogram.record(ns);
            }
        }
    }

    /// The buffer is full: the warm-up is cut for good, and further samples go to histogram and reservoir.
    fn begin_overflow(&mut self) {
        self.evaluate();
        let cut = self.steadiness.cut;
        self.kept.forget_first(cut);
        let kept = self.kept.kept();
        if let Some(histogram) = &mut self.histogram {
            kept.iter().for_each(|ns| histogram.record(*ns));
        }
        self.overflow = Some(Overflow {
            sum: kept.iter().sum(),
            min: kept.iter().copied().fold(f64::INFINITY, f64::min),
            max: kept.iter().copied().fold(0.0, f64::max),
            eff_share: self.steadiness.n_eff / kept.len().max(1) as f64,
        });
    }

    /// At a checkpoint: stop, or set the next one.
    fn check(&mut self) {
        if self.taken < self.checkpoint {
            return;
        }
        self.evaluate();
        let after_cut = self.taken - (self.steadiness.cut as u64).min(self.taken);
        let enough = after_cut >= self.plan.samples_min && self.elapsed_ns >= self.plan.time_min_ns;
        let half = self.taken >= self.plan.samples_max / 2 || self.elapsed_ns >= self.plan.time_max_ns / 2.0;
        let settled = self.steadiness.steady != Some(false) || half;
        if self.precise() && enough && settled {
            self.stop(None);
        } else if self.taken >= self.plan.samples_max {
            self.stop(if self.precise() { None } else { Some("maximum count") });
        } else {
            let next = (self.checkpoint as f64 * self.plan.growth).ceil() as u64;
            self.checkpoint = next.clamp(self.taken + 1, self.plan.samples_max);
        }
    }

    /// Whether the half-width is small enough.
    fn precise(&self) -> bool {
        self.half_width.is_some_and(|w| w <= self.plan.half_width_target)
    }

    /// Ends sampling; `because` is the reason, if not the stop rule.
    fn stop(&mut self, because: Option<&'static str>) {
        self.because = because;
        self.phase = Phase::Done;
    }

    /// Warm-up, dependence and half-width of the samples so far; leaves them sorted in the scratch.
    fn evaluate(&mut self) -> Option<Interval> {
        let all = self.kept.kept();
        if self.overflow.is_none() {
            let found = mser5(all, self.plan.clock.resolution_ns / self.batch as f64);
            self.steadiness.cut = found.map_or(0, |w| w.cut);
            self.steadiness.steady = found.map(|w| w.steady);
        }
        let from = if self.overflow.is_some() { 0 } else { self.steadiness.cut };
        self.scratch.clear();
        self.scratch.extend_from_slice(&all[from..]);
        sort(&mut self.scratch);
        let middle = median(&self.scratch)?;
        self.steadiness.n_eff = match self.overflow {
            // The reservoir is no longer in time order: the share found before holds on.
            Some(overflow) => overflow.eff_share * all.len() as f64,
            None => effective_size(&all[from..], middle),
        };
        let n = self.scratch.len() as f64;
        let n_eff = if self.steadiness.n_eff < n / 2.0 { self.steadiness.n_eff } else { n };
        let interval = widened_median_interval(&self.scratch, n_eff);
        self.half_width = interval.map(|i| i.half_width());
        interval
    }

    /// The analysed samples; `None` if there are none.
    #[must_use]
    pub fn finish(mut self) -> Option<Sampled> {
        if self.phase != Phase::Done {
            self.interrupt();
        }
        let interval = self.evaluate();
        if self.kept.kept().is_empty() {
            return None;
        }
        let mut histogram = self.histogram.take()?;
        let cut = self.steadiness.cut;
        let totals = self.overflow.map(|all| (all.sum, all.min, all.max));
        let n = if totals.is_some() { self.kept.seen() } else { self.kept.seen() - cut as u64 };
        let mut samples: Vec<f64> = self.kept.into_time_order().into_iter().map(|(_, ns)| ns).collect();
        if totals.is_none() {
            samples.drain(..cut);
            samples.iter().for_each(|ns| histogram.record(*ns));
        }
        let (sum_ns, min_ns, max_ns) = totals.unwrap_or_else(|| {
            (
                samples.iter().sum(),
                *self.scratch.first().unwrap_or(&0.0),
                *self.scratch.last().unwrap_or(&0.0),
            )
        });
        let mut sampled = Sampled {
            first_ns: self.first_ns,
            batch: self.batch,
            clock: self.plan.clock,
            n,
            complete: samples.len() as u64 == n,
            samples,
            sorted: self.scratch,
            histogram,
            sum_ns,
            min_ns,
            max_ns,
            interval,
            interval_reason: None,
            steadiness: self.steadiness,
            lag1: None,
            half_width: self.half_width,
            half_width_target: self.plan.half_width_target,
            because: self.because,
            elapsed_ns: self.elapsed_ns,
            flags: Vec::new(),
        };
        sampled.analyse(self.plan.seed);
        Some(sampled)
    }
}

/// Drives a sampler to its end with a function that does `batch` operations and returns their duration in ns.
///
/// # Errors
/// [`PushError::BadDuration`] if the function returns an invalid duration.
pub fn drive(sampler: &mut Sampler, mut work: impl FnMut(u64) -> f64) -> Result<(), PushError> {
    let mut buffer = Vec::with_capacity(sampler.round_max() as usize);
    while let Some(round) = sampler.next_round() {
        buffer.clear();
        buffer.extend((0..round.samples).map(|_| work(round.batch)));
        sampler.push(&buffer)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
