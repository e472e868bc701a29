//! Comparing two runs cell by cell, with the correction for many cells (rule 15).

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{
    Direction, RatioInterval, Verdict, benjamini_hochberg, drift, p_beyond, ratio_interval, verdict,
};
use crate::schema::{Cell, ClockKind, Measurement, Run};

/// The criteria for a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareOptions {
    /// Effects within this fraction are the same; default 0.05.
    pub threshold: f64,
    /// Accepted share of false alarms among the differences found; default 0.05.
    pub false_discovery: f64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self { threshold: 0.05, false_discovery: 0.05 }
    }
}

/// One cell present in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CellComparison {
    /// Which.
    pub cell: Cell,
    /// Unit of the medians.
    pub unit: String,
    /// Median in the old run.
    pub old: f64,
    /// Median in the new run.
    pub new: f64,
    /// Ratio new / old; `None` if a median is not above 0 or the units differ.
    pub ratio: Option<RatioInterval>,
    /// How far either run moved while this cell was measured, a fraction: a difference has to be larger.
    pub drift: f64,
    /// P value after Benjamini-Hochberg; `None` if there is none.
    pub q: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is undecided, in words.
    pub reason: Option<String>,
}

/// Two runs compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The threshold, a fraction.
    pub threshold: f64,
    /// Cells of both runs, in order.
    pub cells: Vec<CellComparison>,
    /// Cells of the old run only.
    pub only_old: Vec<Cell>,
    /// Cells of the new run only.
    pub only_new: Vec<Cell>,
}

impl Comparison {
    /// Number of cells with a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cells.iter().filter(|c| c.verdict == verdict).count()
    }

    /// Number of cells that only one of the runs has.
    #[must_use]
    pub fn without_counterpart(&self) -> usize {
        self.only_old.len() + self.only_new.len()
    }
}

/// Compares the cells that both runs have; of duplicate cells, the first counts.
#[must_use]
pub fn compare_runs(old: &Run, new: &Run, options: &CompareOptions) -> Comparison {
    let threshold = options.threshold;
    let (before, after) = (by_cell(old), by_cell(new));
    let both: BTreeSet<&Cell> = before.keys().filter(|c| after.contains_key(*c)).collect();
    let mut p_values = Vec::new();
    let mut cells = Vec::new();
    for cell in both {
        let (compared, p_value) = compare_cell(cell, before[cell], after[cell], threshold);
        p_values.push(p_value);
        cells.push(compared);
    }
    // Cells without a p value (one launch, virtual time) are not tests and do not count among them.
    let tested: Vec<f64> = p_values.iter().copied().flatten().collect();
    let mut q = benjamini_hochberg(&tested).into_iter();
    for (cell, p) in cells.iter_mut().zip(&p_values) {
        cell.q = p.and_then(|_| q.next());
        demote(cell, options.false_discovery, tested.len());
    }
    let only = |a: &BTreeMap<Cell, &Measurement>, b: &BTreeMap<Cell, &Measurement>| {
        a.keys().filter(|c| !b.contains_key(*c)).cloned().collect()
    };
    Comparison { threshold, cells, only_old: only(&before, &after), only_new: only(&after, &before) }
}

fn by_cell(run: &Run) -> BTreeMap<Cell, &Measurement> {
    run.results.iter().rev().map(|r| (r.cell(), r)).collect()
}

/// Compares one cell of two runs. Also returns the p value of a change beyond the threshold and the drift, if it was tested.
fn compare_cell(
    cell: &Cell,
    old: &Measurement,
    new: &Measurement,
    threshold: f64,
) -> (CellComparison, Option<f64>) {
    let mut result = CellComparison {
        cell: cell.clone(),
        unit: new.unit.clone(),
        old: old.median,
        new: new.median,
        ratio: None,
        drift: 0.0,
        q: None,
        verdict: Verdict::CannotTell,
        reason: None,
    };
    let virtual_time = |m: &Measurement| m.clock == ClockKind::Virtual;
    if old.unit != new.unit {
        result.reason = Some(format!("the units differ: {} and {}", old.unit, new.unit));
        return (result, None);
    }
    if virtual_time(old) != virtual_time(new) {
        result.reason = Some("one is in virtual time, the other is not".to_owned());
        return (result, None);
    }
    let direction = if new.higher_is_better() { Direction::HigherIsBetter } else { Direction::LowerIsBetter };
    let (before, after) = (medians(old), medians(new));
    // Virtual time is exact: the values are their own interval.
    let (ratio, p) = if virtual_time(new) {
        (exact(old.median, new.median), None)
    } else {
        result.drift = drift(&before).max(drift(&after));
        (ratio_interval(&before, &after), p_beyond(&before, &after, threshold.max(result.drift)))
    };
    result.ratio = ratio;
    match ratio {
        Some(found) => result.verdict = verdict(&found, threshold, result.drift, direction),
        None => result.reason = Some("a median is not above 0".to_owned()),
    }
    if let (Some(found), Verdict::CannotTell) = (ratio, result.verdict) {
        let launches = (before.len(), after.len());
        result.reason = Some(undecided_reason(&found, threshold, result.drift, launches));
    }
    (result, p)
}

/// Why an interval carries no verdict.
fn undecided_reason(found: &RatioInterval, threshold: f64, drift: f64, (old, new): (usize, usize)) -> String {
    let Some((low, high)) = found.low.zip(found.high) else {
        return format!("{old} against {new} launches carry no 95 % interval; 4 of each do");
    };
    let limit = 1.0 + threshold;
    if drift > threshold && (low > limit || high < limit.recip()) {
        return format!(
            "it differs by more than {:.1} %, but a run drifted by as much while it was measured",
            100.0 * threshold
        );
    }
    format!("the interval crosses the threshold of {:.1} %", 100.0 * threshold)
}

fn exact(old: f64, new: f64) -> Option<RatioInterval> {
    let ratio = ratio_interval(&[old], &[new])?.ratio;
    Some(RatioInterval { ratio, low: Some(ratio), high: Some(ratio) })
}

fn medians(result: &Measurement) -> Vec<f64> {
    if result.launches.is_empty() {
        vec![result.median]
    } else {
        result.launches.iter().map(|l| l.median).collect()
    }
}

/// A difference that the number of cells explains as chance is none.
fn demote(cell: &mut CellComparison, level: f64, cells: usize) {
    let difference = matches!(cell.verdict, Verdict::Worse | Verdict::Better);
    if let Some(q) = cell.q.filter(|q| difference && *q > level) {
        cell.verdict = Verdict::CannotTell;
        cell.reason = Some(format!("may be chance among {cells} cells (q = {q:.2}); run more launches"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draw as _, Rng};
    use super::*;
    use crate::schema::{AaNoise, Launch};

    fn result(size: u64, unit: &str, medians: &[f64]) -> Measurement {
        let launch = |m: &f64| Launch { median: *m, ..Launch::default() };
        Measurement {
            size_bytes: size,
            unit: unit.to_owned(),
            median: medians[medians.len() / 2],
            clock: ClockKind::Tsc,
            launches: medians.iter().map(launch).collect(),
            ..Measurement::default()
        }
    }

    fn run(seed: u64, cells: u64, unit: &str, level: impl Fn(u64) -> f64) -> Run {
        let mut rng = Rng::new(seed);
        let results = (0..cells).map(|c| result(c, unit, &rng.draws(6, |r| level(c) * r.log_normal(0.02))));
        Run { results: results.collect(), ..Run::default() }
    }

    /// 200 cells against themselves, twenty times, with no threshold at all: uncorrected one in forty is "worse".
    #[test]
    fn a_run_against_itself_raises_no_alarms() {
        let options = CompareOptions { threshold: 0.0, false_discovery: 0.05 };
        let mut runs_with_alarm = 0;
        for seed in 0..20 {
            let compared =
                compare_runs(&run(seed, 200, "us", |_| 1.0), &run(seed + 100, 200, "us", |_| 1.0), &options);
            let alarms = compared.count(Verdict::Worse) + compared.count(Verdict::Better);
            runs_with_alarm += u32::from(alarms > 0);
        }
        assert!(runs_with_alarm <= 3, "{runs_with_alarm} of 20");
    }

    #[test]
    fn planted_regressions_are_found_in_the_right_direction() {
        let slow = |c: u64| if c < 5 { 1.5 } else { 1.0 };
        let options = CompareOptions::default();
        let times = compare_runs(&run(1, 100, "us", |_| 1.0), &run(2, 100, "us", slow), &options);
        let worse: Vec<u64> =
            times.cells.iter().filter(|c| c.verdict == Verdict::Worse).map(|c| c.cell.size_bytes).collect();
        assert_eq!(worse, [0, 1, 2, 3, 4]);
        assert!(times.count(Verdict::Same) >= 80, "{}", times.count(Verdict::Same));
        let rates = compare_runs(&run(1, 100, "MB/s", |_| 1.0), &run(2, 100, "MB/s", slow), &options);
        assert_eq!((rates.count(Verdict::Better), rates.count(Verdict::Worse)), (5, 0));
    }

    /// The cell measured twice shows the noise of that cell only: it excuses no other.
    #[test]
    fn the_noise_of_one_cell_does_not_hide_a_regression_in_another() {
        let mut old = run(1, 10, "us", |_| 1.0);
        old.environment.aa_noise = Some(AaNoise { floor: 0.381, ..AaNoise::default() });
        let compared = compare_runs(&old, &run(2, 10, "us", |_| 1.3), &CompareOptions::default());
        assert_eq!((compared.threshold, compared.count(Verdict::Worse)), (0.05, 10));
    }

    #[test]
    fn difference_within_the_drift_of_a_run_is_undecided() {
        let drifting: Vec<f64> =
            (0..12).map(|i| if i < 6 { 1.0 } else { 1.4 } + 0.001 * f64::from(i)).collect();
        let of = |medians: &[f64]| Run { results: vec![result(1, "us", medians)], ..Run::default() };
        let compared = compare_runs(&of(&drifting), &of(&[1.6; 12]), &CompareOptions::default());
        let cell = &compared.cells[0];
        assert_eq!(cell.verdict, Verdict::CannotTell, "{cell:?}");
        assert!(cell.reason.as_deref().is_some_and(|why| why.contains("drifted")), "{cell:?}");
        let compared = compare_runs(&of(&drifting), &of(&[3.0; 12]), &CompareOptions::default());
        assert_eq!(compared.cells[0].verdict, Verdict::Worse);
    }

    #[test]
    fn results_that_cannot_be_compared_have_the_reason() {
        let one =
            |unit: &str, medians: &[f64]| Run { results: vec![result(1, unit, medians)], ..Run::default() };
        let reason = |old: Run, new: Run| {
            let compared = compare_runs(&old, &new, &CompareOptions::default());
            assert_eq!(compared.cells[0].verdict, Verdict::CannotTell);
            compared.cells[0].reason.clone().expect("a reason")
        };
        assert!(reason(one("us", &[1.0]), one("us", &[9.0])).contains("1 against 1 launches"));
        assert!(reason(one("us", &[1.0]), one("MB/s", &[1.0])).contains("units differ"));
        assert!(reason(one("us", &[0.0]), one("us", &[1.0])).contains("not above 0"));
        let mut exact = one("us", &[1.0]);
        exact.results[0].clock = ClockKind::Virtual;
        assert!(reason(one("us", &[1.0]), exact).contains("virtual time"));
    }

    #[test]
    fn virtual_time_is_compared_exactly() {
        let one = |median: f64| {
            let mut result = result(1, "us", &[median]);
            result.clock = ClockKind::Virtual;
            Run { results: vec![result], ..Run::default() }
        };
        let options = CompareOptions { threshold: 0.0, ..CompareOptions::default() };
        assert_eq!(compare_runs(&one(1.0), &one(1.0), &options).cells[0].verdict, Verdict::Same);
        assert_eq!(compare_runs(&one(1.0), &one(1.001), &options).cells[0].verdict, Verdict::Worse);
    }

    #[test]
    fn cells_of_one_run_only_are_listed() {
        let compared = compare_runs(
            &run(1, 3, "us", |_| 1.0),
            &Run { results: run(2, 5, "us", |_| 1.0).results.split_off(1), ..Run::default() },
            &CompareOptions::default(),
        );
        assert_eq!((compared.cells.len(), compared.only_old.len(), compared.only_new.len()), (2, 1, 2));
    }
}
