//! Where curves have steps: protocol switches, cache sizes, packet boundaries.
//!
//! A time of the form start-up + bytes / rate has a log-log slope that only grows. A step is where the time
//! jumps beyond what the slope after it explains, by more than the intervals allow.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Noise, Tone};
use crate::number::{plural, size, times};
use crate::series::{Series, interval, words};
use results::schema::Measurement;

/// A jump below this factor beyond the trend is no step.
const STEP: f64 = 1.25;
/// Fewer sizes than this are no curve.
const MIN_SIZES: usize = 4;

/// A jump between two neighbouring sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Factor of the time beyond the trend.
    pub(super) excess: f64,
}

/// Time for one message, with its interval, from any unit.
fn time(r: &Measurement) -> Option<[f64; 3]> {
    let [low, high] = interval(r)?;
    let positive = low > 0.0 && r.size_bytes > 0;
    let bytes = r.size_bytes as f64;
    match r.unit.as_str() {
        "us" if positive => Some([low, r.median, high]),
        "MB/s" if positive => Some([bytes / high, bytes / r.median, bytes / low]),
        "1/s" if positive => Some([1.0 / high, 1.0 / r.median, 1.0 / low]),
        _ => None,
    }
}

/// Steps of one curve; pairs without intervals are left out.
pub(super) fn steps_of(points: &[&Measurement], noise: f64) -> Vec<Step> {
    let timed: Vec<_> = points.iter().filter_map(|r| Some((r.size_bytes, time(r)?))).collect();
    if timed.len() < MIN_SIZES {
        return Vec::new();
    }
    let slope = |i: usize| {
        let ((x0, t0), (x1, t1)) = (timed[i], timed[i + 1]);
        (t1[1] / t0[1]).ln() / (x1 as f64 / x0 as f64).ln()
    };
    let mut out = Vec::new();
    for i in 0..timed.len() - 1 {
        // Beyond the last size nothing is measured: proportional growth is then assumed, the steepest growth without
        // a step.
        let next = if i + 2 < timed.len() { slope(i + 1).clamp(0.0, 1.0) } else { 1.0 };
        let ((from, t0), (to, t1)) = (timed[i], timed[i + 1]);
        let trend = (to as f64 / from as f64).powf(next);
        let excess = t1[1] / t0[1] / trend;
        if excess > STEP.max(1.0 + noise) && t1[0] / t0[2] > trend {
            out.push(Step { from, to, excess });
        }
    }
    out
}

/// Experiments by operation.
type ByOp<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Curves that step at the same size.
#[derive(Default)]
struct StepAt<'a> {
    curves: usize,
    most: f64,
    by_op: ByOp<'a>,
    /// Whether the machine itself steps there.
    floor: bool,
}

/// The examined curves.
#[derive(Default)]
struct Looked<'a> {
    curves: usize,
    by_op: ByOp<'a>,
    /// Number of curves with a size without an interval.
    blind: usize,
}

/// One finding for all curves, including floors.
pub(super) fn steps(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    let mut places: BTreeMap<(u64, u64), StepAt<'_>> = BTreeMap::new();
    let mut looked = Looked::default();
    // A message rate repeats the bandwidth of its size.
    let curves = || all.iter().filter(|s| s.points.len() >= MIN_SIZES && s.metric != "message_rate");
    for s in curves().filter(|s| !s.is_floor()) {
        looked.curves += 1;
        looked.by_op.entry(s.op()).or_default().insert(s.experiment);
        looked.blind += usize::from(s.points.iter().any(|r| interval(r).is_none()));
        for step in steps_of(&s.points, noise.on(s.device)) {
            let place = places.entry((step.from, step.to)).or_default();
            place.curves += 1;
            place.most = place.most.max(step.excess);
            place.by_op.entry(s.op()).or_default().insert(s.experiment);
        }
    }
    for step in curves().filter(|s| s.is_floor()).flat_map(|s| steps_of(&s.points, noise.on(s.device))) {
        if let Some(place) = places.get_mut(&(step.from, step.to)) {
            place.floor = true;
        }
    }
    if looked.curves == 0 { Vec::new() } else { vec![finding(&places, &looked)] }
}

fn finding(places: &BTreeMap<(u64, u64), StepAt<'_>>, looked: &Looked<'_>) -> Finding {
    let unseen = match looked.blind {
        0 => String::new(),
        1 => " 1 curve has sizes without an interval: steps cannot be found there.".to_owned(),
        n => format!(" {n} curves have sizes without an interval: steps cannot be found there."),
    };
    if places.is_empty() {
        let tone = if looked.blind == looked.curves { Tone::CannotTell } else { Tone::Fact };
        let text = format!("None beyond {} in {}.{unseen}", times(STEP), plural(looked.curves, "curve"));
        return Finding::new(tone, "Steps", text);
    }
    let text =
        format!("Times jump beyond the trend of their curve in {}.{unseen}", plural(places.len(), "place"));
    let items = places.iter().map(|((from, to), place)| item(*from, *to, place, looked));
    Finding::new(Tone::Fact, "Steps", text).with(items.collect())
}

fn item(from: u64, to: u64, place: &StepAt<'_>, looked: &Looked<'_>) -> String {
    let of = if place.curves == looked.curves {
        format!("all {} curves", looked.curves)
    } else {
        format!("{} of {} curves: {}", place.curves, looked.curves, who(place, looked))
    };
    let floor = if place.floor { "; the machine's own floor steps there too" } else { "" };
    format!("{} → {}: up to {} in {of}{floor}", size(from), size(to), times(place.most))
}

/// Operations, with their experiments unless all of an operation's experiments step.
fn who(place: &StepAt<'_>, looked: &Looked<'_>) -> String {
    let named = place.by_op.iter().map(|(op, experiments)| {
        let told = experiments.iter().map(|e| words(e)).collect::<Vec<_>>().join(", ");
        match *op {
            "" => told,
            op if looked.by_op.get(op) == Some(experiments) => op.to_owned(),
            op => format!("{op} ({told})"),
        }
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{curve, run};
    use super::*;
    use crate::series::series;
    use results::schema::Environment;

    fn found(results: &[Measurement]) -> Vec<(u64, u64)> {
        steps_of(&results.iter().collect::<Vec<_>>(), 0.0).iter().map(|s| (s.from, s.to)).collect()
    }

    #[test]
    fn start_up_plus_bytes_over_rate_has_no_step() {
        let smooth = |x: f64| 0.1 + x / 10_000.0;
        assert!(found(&curve("latency", "op=write", 0..=22, smooth)).is_empty());
        assert!(found(&curve("bandwidth", "op=write", 0..=22, |x| x / smooth(x))).is_empty());
        assert!(found(&curve("rate", "op=write", 0..=22, |x| 1.0 / smooth(x))).is_empty());
    }

    #[test]
    fn a_protocol_switch_is_found_where_it_is_in_times_and_in_rates() {
        let switch = |x: f64| 0.1 + x / 10_000.0 + if x > 16384.0 { 3.0 } else { 0.0 };
        assert_eq!(found(&curve("latency", "op=send", 0..=22, switch)), [(16384, 32768)]);
        assert_eq!(found(&curve("bandwidth", "op=send", 0..=22, |x| x / switch(x))), [(16384, 32768)]);
    }

    #[test]
    fn a_step_at_the_last_size_needs_more_than_proportional_growth() {
        let last = |x: f64| if x > 4096.0 { 3.0 * x } else { x };
        assert_eq!(found(&curve("latency", "op=send", 0..=13, last)), [(4096, 8192)]);
        assert!(found(&curve("latency", "op=send", 0..=13, |x| x)).is_empty());
    }

    #[test]
    fn a_jump_within_the_intervals_is_no_step() {
        let switch = |x: f64| 0.1 + if x > 64.0 { 0.05 } else { 0.0 };
        let mut results = curve("latency", "op=send", 0..=10, switch);
        assert_eq!(found(&results), [(64, 128)]);
        results.iter_mut().for_each(|r| r.ci95 = Some([r.median * 0.7, r.median * 1.4]));
        assert!(found(&results).is_empty());
        results.iter_mut().for_each(|r| r.ci95 = None);
        let told = steps(&series(&[run(results)]), &Noise(&Environment::default()));
        assert_eq!(told[0].tone, Tone::CannotTell);
    }

    #[test]
    fn curves_that_step_together_share_a_line_and_the_floor_is_told() {
        let switch = |x: f64| if x > 64.0 { 0.3 } else { 0.1 };
        let mut results = Vec::new();
        for op in ["a", "b"] {
            results.extend(curve("latency", &format!("op={op}"), 0..=10, switch));
        }
        results.extend(curve("latency", "op=smooth", 0..=10, |_| 0.1));
        let line = |results: &[Measurement]| {
            steps(&series(&[run(results.to_vec())]), &Noise(&Environment::default()))[0].items.clone()
        };
        let told = "64 B → 128 B: up to 3.00× in 2 of 3 curves: a, b";
        assert_eq!(line(&results), [told]);
        results.extend(curve("floor", "what=memcpy", 0..=10, |x| x / switch(x)));
        assert_eq!(line(&results), [format!("{told}; the machine's own floor steps there too")]);
    }
}
