//! The clock's own cost, and how many operations a sample must hold for it not to matter (rule 1).

use results::schema::{ClockInfo, ClockKind};

/// The timer may cost this share of the timed interval.
const OVERHEAD_SHARE: f64 = 0.05;
/// And this where an operation is shorter than [`SHORT_NS`]: what is compared there is a few cache misses apart.
const OVERHEAD_SHARE_SHORT: f64 = 0.01;
/// Operations from here on keep their own quantiles, if the clock is fast.
const SHORT_NS: f64 = 2000.0;
/// The interval is at least this many steps of the clock.
const STEPS: f64 = 10.0;
const READS: usize = 100;

/// A clock as measured at start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Which clock.
    pub kind: ClockKind,
    /// Cost of one reading in ns; 0 for virtual time.
    pub overhead_ns: f64,
    /// Smallest step in ns.
    pub resolution_ns: f64,
}

impl Calibration {
    /// Shortest interval in ns that this clock times within the rule: 20 overheads, ten steps.
    #[must_use]
    pub fn shortest_ns(&self) -> f64 {
        (self.overhead_ns / OVERHEAD_SHARE).max(self.resolution_ns * STEPS)
    }
}

impl From<Calibration> for ClockInfo {
    fn from(c: Calibration) -> Self {
        Self { kind: c.kind, overhead_ns: c.overhead_ns, resolution_ns: c.resolution_ns }
    }
}

/// Measures a clock that `read` reads in ticks of `ns_per_tick`, over `chunks` times 100 readings (at least one chunk).
///
/// The overhead is the median over chunks, so that an interrupt does not count. The resolution is the smallest step
/// if two readings are ever equal; otherwise steps are hidden below the overhead, and it is the smallest difference
/// between two differing steps (one tick if all are equal).
#[must_use]
pub fn calibrate(
    kind: ClockKind,
    ns_per_tick: f64,
    chunks: usize,
    mut read: impl FnMut() -> u64,
) -> Calibration {
    let mut costs = Vec::with_capacity(chunks.max(1));
    let mut steps = Vec::with_capacity(chunks.max(1) * READS);
    let mut ticks = [0; READS + 1];
    for _ in 0..chunks.max(1) {
        ticks.fill_with(&mut read);
        costs.push(ticks[READS].saturating_sub(ticks[0]) as f64 / READS as f64);
        steps.extend(ticks.windows(2).map(|w| w[1].saturating_sub(w[0])));
    }
    results::stats::sort(&mut costs);
    steps.sort_unstable();
    steps.dedup();
    let resolution = match steps.as_slice() {
        [0, step, ..] => *step,
        several => several.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(1),
    };
    let overhead = results::stats::median(&costs).unwrap_or_default();
    Calibration { kind, overhead_ns: overhead * ns_per_tick, resolution_ns: resolution as f64 * ns_per_tick }
}

/// Operations in one sample: the least power of two that makes the interval long enough, at most `batch_max`.
///
/// `op_ns` is the pilot's time for one operation. Powers of two, so that launches of a cell agree despite noise.
#[must_use]
pub fn choose_batch(op_ns: f64, clock: &Calibration, batch_max: u64) -> u64 {
    let limit = batch_max.max(1);
    // An operation below the clock's sight: half a step at most, so go on from there.
    let op_ns = if op_ns > 0.0 { op_ns } else { (clock.resolution_ns / 16.0).max(f64::MIN_POSITIVE) };
    let fine = if op_ns < SHORT_NS { clock.overhead_ns / OVERHEAD_SHARE_SHORT } else { 0.0 };
    let wanted = (clock.shortest_ns().max(fine) / op_ns).ceil();
    if wanted >= limit as f64 { limit } else { (wanted.max(1.0) as u64).next_power_of_two().min(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::stats::Rng;

    fn clock(overhead_ns: f64, resolution_ns: f64) -> Calibration {
        Calibration { kind: ClockKind::Tsc, overhead_ns, resolution_ns }
    }

    #[test]
    fn a_fast_counter_has_its_overhead_found_despite_interrupts() {
        let (mut rng, mut now) = (Rng::new(1), 0);
        let found = calibrate(ClockKind::Tsc, 0.5, 50, || {
            now += 20 + rng.below(3) + if rng.below(500) == 0 { 40_000 } else { 0 };
            now
        });
        assert!((found.overhead_ns - 10.5).abs() < 0.2, "{found:?}");
        assert_eq!(found.resolution_ns, 0.5);
    }

    #[test]
    fn a_coarse_clock_shows_its_step() {
        let mut now = 0;
        let found = calibrate(ClockKind::Monotonic, 1.0, 50, || {
            now += 30;
            now / 1000 * 1000
        });
        assert_eq!(found.resolution_ns, 1000.0);
        assert!((found.overhead_ns - 30.0).abs() < 11.0, "{found:?}");
    }

    #[test]
    fn a_stopped_or_backward_clock_does_not_break_it() {
        assert_eq!(calibrate(ClockKind::Virtual, 1.0, 0, || 7).overhead_ns, 0.0);
        let mut now = 1_000_000;
        let found = calibrate(ClockKind::Monotonic, 1.0, 2, || {
            now -= 1;
            now
        });
        assert_eq!(found.overhead_ns, 0.0);
    }

    /// 100 overheads for what is short, else 20; or ten steps, whichever is longer.
    #[test]
    fn the_batch_meets_both_halves_of_the_rule() {
        assert_eq!(choose_batch(1000.0, &clock(10.0, 1.0), 1 << 20), 1);
        assert_eq!(choose_batch(999.0, &clock(10.0, 1.0), 1 << 20), 2);
        assert_eq!(choose_batch(10.0, &clock(10.0, 1.0), 1 << 20), 128);
        assert_eq!(choose_batch(200.0, &clock(1.0, 1000.0), 1 << 20), 64);
        // From 2 us on a slow clock may take its 5 %, so that quantiles are kept.
        assert_eq!(choose_batch(2000.0, &clock(100.0, 1.0), 1 << 20), 1);
        assert_eq!(choose_batch(1999.0, &clock(100.0, 1.0), 1 << 20), 8);
        for op in [0.3, 1.0, 7.0, 55.0, 1e6] {
            let clock = clock(9.0, 4.0);
            let interval = op * choose_batch(op, &clock, 1 << 20) as f64;
            assert!(
                clock.overhead_ns <= if op < 2000.0 { 0.01 } else { 0.05 } * interval
                    && clock.resolution_ns <= 0.1 * interval,
                "{op}"
            );
        }
    }

    #[test]
    fn the_batch_is_bounded_and_survives_nonsense() {
        assert_eq!(choose_batch(1e-9, &clock(10.0, 1.0), 1000), 1000);
        for op in [0.0, -1.0, f64::NAN] {
            assert!((1..=1000).contains(&choose_batch(op, &clock(10.0, 1.0), 1000)));
        }
        assert_eq!(choose_batch(5.0, &Calibration::default(), 1000), 1);
        assert_eq!(choose_batch(5.0, &clock(10.0, 1.0), 0), 1);
    }
}
