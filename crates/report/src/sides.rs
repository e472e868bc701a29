//! Devices side by side: columns, the rows that they share, and which device leads in a row.

use std::collections::BTreeSet;

use super::columns::Column;
use super::figures::Figure;
use super::number::{alike, size, times};
use super::series::{Series, apart, interval, low_high};
use results::schema::{ClockKind, Measurement, Run};
use results::stats::ratio_interval;

/// The columns with results, or with a reason for a missing one, in a figure. With several runs, others did not
/// measure it.
pub(super) fn columns_of(figure: &Figure<'_>, columns: &[Column], runs: &[Run]) -> Vec<Column> {
    let blocks = blocks(figure, columns, runs);
    let slots = |i: usize| blocks.iter().flat_map(|b| &b.rows).map(move |row| &row.slots[i]);
    let told = |(i, _): &(usize, &Column)| slots(*i).any(|slot| !matches!(slot, Slot::Empty));
    columns.iter().enumerate().filter(told).map(|(_, column)| column.clone()).collect()
}

/// The content of a table cell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot<'a> {
    /// A result.
    Measured(&'a Measurement),
    /// None, for this reason.
    Missing(&'a str),
    /// No result, as it was not requested.
    Empty,
}

impl<'a> Slot<'a> {
    /// The result, if any.
    pub(super) fn measured(&self) -> Option<&'a Measurement> {
        if let Self::Measured(r) = self { Some(r) } else { None }
    }
}

/// A cell's results on all devices.
pub(super) struct Row<'a> {
    /// Its size, or another property that distinguishes it from the other rows of its block.
    pub(super) name: String,
    /// Whether it is of messages.
    sized: bool,
    /// One slot for each column.
    pub(super) slots: Vec<Slot<'a>>,
}

/// Rows that have all but the size in common.
pub(super) struct Block<'a> {
    /// What the rows have in common; may be empty.
    pub(super) title: String,
    pub(super) rows: Vec<Row<'a>>,
}

/// The rows of a figure: a block for each variant, or a single block if each variant has only one size.
pub(super) fn blocks<'a>(figure: &Figure<'a>, columns: &[Column], runs: &'a [Run]) -> Vec<Block<'a>> {
    let mut all: Vec<Block<'_>> = Vec::new();
    let flat = figure.panels.iter().all(|panel| panel.dots);
    for panel in &figure.panels {
        let mut named: Vec<(String, Vec<&Series<'a>>)> = Vec::new();
        for (_, s) in &panel.curves {
            let name = if panel.dots { s.name() } else { panel.title.clone() };
            match named.iter_mut().find(|(known, _)| *known == name) {
                Some((_, curves)) => curves.push(s),
                None => named.push((name, vec![s])),
            }
        }
        for (title, curves) in named {
            all.push(Block { rows: rows(&curves, columns, runs), title });
        }
    }
    if flat { vec![flattened(all)] } else { all }
}

fn rows<'a>(curves: &[&Series<'a>], columns: &[Column], runs: &'a [Run]) -> Vec<Row<'a>> {
    let sizes: BTreeSet<u64> = curves.iter().flat_map(|s| s.points.iter().map(|r| r.size_bytes)).collect();
    let slot = |column: &Column, at: u64| {
        let own = curves.iter().find(|s| s.run == column.run && s.device == column.device);
        match own.and_then(|s| s.points.iter().copied().find(|r| r.size_bytes == at)) {
            Some(r) => Slot::Measured(r),
            None => reason(&runs[column.run], column, curves[0], at).map_or(Slot::Empty, Slot::Missing),
        }
    };
    let row =
        |at| Row { name: size(at), slots: columns.iter().map(|c| slot(c, at)).collect(), sized: at > 0 };
    sizes.into_iter().map(row).collect()
}

/// One block with rows named after their variants.
fn flattened(blocks: Vec<Block<'_>>) -> Block<'_> {
    let mut rows = Vec::new();
    for Block { title, rows: own } in blocks {
        rows.extend(own.into_iter().map(|row| Row {
            name: if row.sized { format!("{title}, {}", row.name) } else { title.clone() },
            ..row
        }));
    }
    Block { title: String::new(), rows }
}

/// Why a device has no result where another has one.
fn reason<'a>(run: &'a Run, column: &Column, alike: &Series<'_>, size_bytes: u64) -> Option<&'a str> {
    let same = run.missing.iter().find(|m| {
        (m.experiment.as_str(), m.metric.as_str(), m.size_bytes)
            == (alike.experiment, alike.metric, size_bytes)
            && m.device == column.device
            && m.variant == *alike.variant
    });
    same.map(|m| m.why.as_str())
}

/// The ratio by which one result is ahead of another: above 1, with the 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lead {
    pub(super) ratio: f64,
    pub(super) interval: [f64; 2],
}

impl Lead {
    /// The reciprocal of the lead.
    pub(super) fn inverted(self) -> Self {
        let [low, high] = self.interval;
        Self { ratio: self.ratio.recip(), interval: [high.recip(), low.recip()] }
    }

    /// `9.2× (8.8..9.6)`; without the interval if both are exact.
    pub(super) fn text(&self) -> String {
        let [low, high] = self.interval;
        if low == high {
            return times(self.ratio);
        }
        format!("{} ({})", times(self.ratio), low_high([low, high]))
    }
}

/// How far `best` leads `other`; `None` where that is undecided: an interval is missing, or they overlap, or the two
/// are closer than two measurements of the same thing were (`noise`).
pub(super) fn lead(best: &Measurement, other: &Measurement, noise: f64) -> Option<Lead> {
    let (small, large) = if best.higher_is_better() { (other, best) } else { (best, other) };
    if !apart(best, other)? || small.median <= 0.0 {
        return None;
    }
    let (a, b) = (interval(small)?, interval(large)?);
    let exact = best.clock == ClockKind::Virtual || other.clock == ClockKind::Virtual;
    let medians = |r: &Measurement| r.launches.iter().map(|l| l.median).collect::<Vec<_>>();
    let found = ratio_interval(&medians(small), &medians(large)).filter(|_| !exact);
    let found = found.and_then(|f| Some(Lead { ratio: f.ratio, interval: [f.low?, f.high?] }));
    // A side without noise has one launch: only the other's interval counts.
    let of_ends = Lead { ratio: large.median / small.median, interval: [b[0] / a[1], b[1] / a[0]] };
    let lead = found.unwrap_or(of_ends);
    let both_real = best.clock != ClockKind::Virtual && other.clock != ClockKind::Virtual;
    let least = if both_real { 1.0 + noise } else { 1.0 };
    (lead.interval[0] > 1.0 && lead.ratio > least && !alike(lead.ratio)).then_some(lead)
}

/// Whether the best two of a row are exact and practically equal: a tie, not an undecided comparison.
pub(super) fn even(row: &Row<'_>) -> bool {
    let [(_, first), (_, second), ..] = ranked(row)[..] else { return false };
    let exact = [first, second].iter().all(|r| r.clock == ClockKind::Virtual && r.median > 0.0);
    exact && alike(first.median.max(second.median) / first.median.min(second.median))
}

/// Columns with a result in order of merit.
pub(super) fn ranked<'a>(row: &Row<'a>) -> Vec<(usize, &'a Measurement)> {
    let mut all: Vec<(usize, &Measurement)> =
        row.slots.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.measured()?))).collect();
    all.sort_by(|(_, a), (_, b)| match a.higher_is_better() {
        true => b.median.total_cmp(&a.median),
        false => a.median.total_cmp(&b.median),
    });
    all
}

/// The column with a significant lead over all others.
pub(super) fn best(row: &Row<'_>, noise: f64) -> Option<usize> {
    let [(column, first), (_, second), ..] = ranked(row)[..] else { return None };
    lead(first, second, noise).map(|_| column)
}

/// The relative difference below which results of a run are not distinguishable from noise.
pub(super) fn noise(runs: &[Run]) -> f64 {
    runs.iter().filter_map(|run| run.environment.aa_noise).map(|aa| aa.floor).fold(0.0, f64::max)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::columns::columns;
    use super::super::figures::figures_of;
    use super::super::findings::made_up::{curve, point, run};
    use super::super::series::series;
    use super::*;
    use results::schema::{DeviceInfo, Missing, Origin, Parameter};

    /// Goal: a figure has only the columns with results in it, even if the runs measured different things, and parts
    /// of a plan are columns by their names. Method: two parts; the second has no rates.
    #[test]
    fn columns_of_a_figure_are_those_it_says_something_of() {
        let mut runs = [three(), three()];
        runs[1].results.retain(|r| r.experiment == "latency");
        runs[1].missing.retain(|m| m.experiment == "latency");
        let (origin, value) = (Origin::Flag, "small".to_owned());
        runs[1].parameters.push(Parameter { key: "part".into(), value, unit: None, origin });
        let (columns, all) = (columns(&runs), series(&runs));
        assert_eq!(columns.len(), 6);
        let figures = figures_of(&all, &columns);
        let labels = |i: usize| -> Vec<String> {
            columns_of(&figures[i], &columns, &runs).into_iter().map(|c| c.label).collect()
        };
        let (latency, rate) = (labels(0), labels(1));
        assert_eq!(latency.len(), 6);
        assert!(latency.contains(&"shm, run 1".to_owned()) && latency.contains(&"shm, small".to_owned()));
        assert_eq!(rate, latency[..3]);
    }

    /// Three devices: shm is ten times as fast as iwarp, the model is in between and exact. The model lacks a size.
    pub(crate) fn three() -> Run {
        let mut results = Vec::new();
        for (device, times) in [("shm", 1.0), ("iwarp", 10.0), ("model:card", 4.0)] {
            for op in ["op=write,source=nic,sink=nic", "op=write,source=host,sink=host"] {
                let mut all = curve("latency", op, 0..8, |x| times * (1.0 + x / 100.0));
                all.push(point("rate", op, 8, 1e6 / times));
                for r in &mut all {
                    r.device = device.to_owned();
                    if device.starts_with("model") {
                        r.clock = ClockKind::Virtual;
                        r.ci95 = Some([r.median; 2]);
                        r.launches.truncate(1);
                    }
                }
                results.extend(all);
            }
        }
        let lost = |r: &Measurement| r.device == "model:card" && r.size_bytes == 64;
        let missing = results.iter().filter(|r| lost(r)).map(|r| Missing {
            experiment: r.experiment.clone(),
            device: r.device.clone(),
            variant: r.variant.clone(),
            size_bytes: r.size_bytes,
            metric: r.metric.clone(),
            why: "the card is out of breath".to_owned(),
        });
        let missing: Vec<Missing> = missing.collect();
        results.retain(|r| !lost(r));
        let mut run = Run { missing, ..run(results) };
        run.environment.clock.kind = ClockKind::Tsc;
        run.environment.devices = ["shm", "iwarp", "model:card"]
            .map(|name| DeviceInfo { name: name.to_owned(), ..DeviceInfo::default() })
            .to_vec();
        run
    }

    #[test]
    fn columns_are_in_the_order_asked_for_and_say_what_is_virtual() {
        let all = columns(&[three()]);
        let labels: Vec<&str> = all.iter().map(|c| c.label.as_str()).collect();
        assert_eq!(labels, ["shm", "iwarp", "model:card (virtual)"]);
        let one = run(curve("latency", "op=write", 0..3, |x| x));
        assert!(columns(std::slice::from_ref(&one)).is_empty(), "one device is no comparison");
        assert!(columns(&[one.clone(), one.clone()]).is_empty());
        let mut other = one.clone();
        other.results.iter_mut().for_each(|r| r.device = "iwarp".to_owned());
        assert_eq!(columns(&[one, other])[1].label, "iwarp, run 2");
    }

    #[test]
    fn rows_have_a_slot_for_each_device_and_what_is_missing_has_its_reason() {
        let runs = [three()];
        let (columns, all) = (columns(&runs), series(&runs));
        let figures = figures_of(&all, &columns);
        let blocks = blocks(&figures[0], &columns, &runs);
        let titles: Vec<&str> = blocks.iter().map(|b| b.title.as_str()).collect();
        assert_eq!(titles, ["nic → nic", "host → host"]);
        assert_eq!(blocks[0].rows.len(), 8);
        let row = &blocks[0].rows[6];
        assert_eq!(row.name, "64 B");
        assert!(matches!(row.slots[2], Slot::Missing("the card is out of breath")), "{:?}", row.slots[2]);
        assert_eq!(best(row, 0.0), Some(0));
        let rates = super::blocks(&figures[1], &columns, &runs);
        assert_eq!((rates[0].rows.len(), rates[0].rows[0].name.as_str()), (2, "write (nic → nic), 8 B"));
    }

    #[test]
    fn a_lead_needs_intervals_that_are_apart_and_more_than_noise() {
        let (a, b) = (point("latency", "op=write", 8, 1.0), point("latency", "op=write", 8, 1.5));
        let found = lead(&a, &b, 0.1).expect("apart");
        assert!((found.ratio - 1.5).abs() < 1e-9 && found.interval[0] > 1.0);
        assert!(lead(&a, &b, 0.6).is_none(), "no more than the same thing measured twice");
        assert!(lead(&a, &point("latency", "op=write", 8, 1.01), 0.0).is_none(), "the intervals overlap");
        assert!(lead(&a, &Measurement { ci95: None, ..b.clone() }, 0.0).is_none());
        let exact = Measurement { clock: ClockKind::Virtual, ci95: Some([1.5; 2]), ..b };
        assert!(lead(&a, &exact, 0.6).is_some(), "a model has no noise to be lost in");
        let (fast, slow) = (point("rate", "op=write", 8, 3.0), point("rate", "op=write", 8, 1.0));
        assert!((lead(&fast, &slow, 0.0).expect("apart").ratio - 3.0).abs() < 1e-9);
    }
}
