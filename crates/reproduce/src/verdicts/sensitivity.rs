//! Makes the table of [`super::moves`]: all rows of a card again with one value changed, for each value and change.
//!
//! Streams are shorter and kernels smaller than for the rows themselves, as only the difference between two runs
//! counts. If a change leaves a small, a middle and a large cell of one kind unchanged, to the picosecond, the others
//! of that kind are not measured again. Claims about transfers are not tried: the card decides them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::judge::{Row, judge};
use super::machine::{Machine, Machines, Origin, Value};
use super::moves::{Effect, Move};
use crate::claims::claim::{Answer, Claim};
use crate::claims::quantity::{Probe, Source};
use crate::error::NoValue;
use crate::papers::published::{Published, dataset};
use crate::papers::rows;
use crate::probe_results::ProbeResults;
use bench::launch::world;
use results::variant::factor;

/// A row has moved if a number of it did by this share.
const MOVED: f64 = 0.02;
/// By this share a value that is not assumed is changed.
pub(super) const TENTH: f64 = 0.1;
/// Streams are shortened by this factor, and have at least this many messages.
const SHORTER: u32 = 4;
const BURST_MIN: u32 = 4;
/// The class of kernels, at most a quarter of the size of the rows' own.
const SMALLER: &str = "W";
/// Experiments that time calls of the processor, and move no data.
const CALLS: [&str; 5] = ["post", "poll", "reg", "connect", "overhead"];
/// Experiments that count operations of our library, independent of the machine.
const COUNTS: [&str; 1] = ["mpi-connect"];
/// Sections of machine files that no row is about: failures, and set-up and tear-down outside of measurements.
const ELSEWHERE: [&str; 3] = ["faults.", "connection.", "transport.retry_"];

/// A value to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The device's name.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// The new value.
    pub to: f64,
    /// Whether that is an end of an assumed value's range.
    pub assumed: bool,
}

/// All rows as they are, to compare with.
pub struct Sensitivity {
    table: Vec<Claim>,
    rows: Vec<Published>,
    results: ProbeResults,
    machines: Machines,
    threads: usize,
}

impl Sensitivity {
    /// Measures everything that the rows of these cards need.
    #[must_use]
    pub fn new(machines: Vec<Machine>, cards: &[&str], threads: usize, stop: &AtomicBool) -> Self {
        let machines = Machines::new(machines);
        let table = rows::table();
        let rows = dataset();
        let mut all = Self { table, rows, results: ProbeResults::new(machines.clone()), machines, threads };
        let probes = all.probes(cards);
        all.results.measure(probes, &|probe| measure_short(probe, ""), threads, &mut (), stop);
        all
    }

    /// All probes that the rows of these cards need.
    fn probes(&self, cards: &[&str]) -> BTreeSet<Probe> {
        let mut all = BTreeSet::new();
        for claim in self.table.iter().filter(|claim| is_about(claim, cards)) {
            claim.answer.probes(&mut all);
        }
        all
    }

    /// Every change to try of a card's values.
    #[must_use]
    pub fn trials(&self, card: &str) -> Vec<Trial> {
        let machine = self.machines.all().find(|machine| machine.card == card);
        let values = machine.map_or(&[][..], |machine| &machine.values);
        let used = |value: &&Value| is_used(&value.key);
        let trial = |value: &Value| {
            let ends = trial_values(card, value);
            let one = |to| Trial {
                card: card.to_owned(),
                key: value.key.clone(),
                to,
                assumed: value.origin == Origin::Assumed,
            };
            ends.into_iter().map(one).collect::<Vec<_>>()
        };
        values.iter().filter(used).flat_map(trial).collect()
    }

    /// Measures the rows again with a change, and returns the moved ones; `None` if no row moves, or if `stop` is set.
    /// `cards` are the cards changed: machines with several cards are changed alike.
    pub fn try_change(&self, trial: &Trial, cards: &[&str], stop: &AtomicBool) -> Option<Move> {
        let change = format!("{}={}", trial.key, trial.to);
        let touched = |probe: &Probe| cards.contains(&probe.card());
        let probes: BTreeSet<Probe> = self.probes(cards).into_iter().filter(touched).collect();
        let kinds = group_by_kind(&probes);
        let some = kinds.iter().flat_map(|kind| samples(kind)).cloned().collect();
        let mut results = self.results.without(&probes);
        results.measure(some, &|probe| measure_short(probe, &change), self.threads, &mut (), stop);
        let same = |probe: &Probe| results.measured(probe) == self.results.measured(probe);
        let moved: BTreeSet<Probe> =
            kinds.into_iter().filter(|kind| !samples(kind).all(&same)).flatten().collect();
        if moved.is_empty() {
            return None;
        }
        results.measure(moved, &|probe| measure_short(probe, &change), self.threads, &mut (), stop);
        results.complete(&self.results);
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let changed = ChangedMachine { results: &results, trial, cards };
        let claims = self.table.iter().filter(|claim| is_about(claim, cards));
        let rows = claims.flat_map(|claim| self.effects(claim, &changed)).collect();
        let Trial { card, key, to, assumed } = trial.clone();
        Some(Move { card, key, to, assumed, rows })
    }

    /// The effects on a claim's rows, if they move.
    fn effects(&self, claim: &Claim, changed: &dyn Source) -> Vec<(String, Effect)> {
        let [before, after] =
            [&self.results as &dyn Source, changed].map(|source| claim.answer.values(source));
        if !matches!((&before, &after), (Ok(before), Ok(after)) if has_moved(before, after)) {
            return Vec::new();
        }
        let rows = self.rows.iter().filter(|row| claim.rows.contains(&row.id.as_str()));
        let judged = |row: &Published, source: &dyn Source| judge(row, "", &claim.answer, source);
        rows.map(|row| (row.id.clone(), effect(&judged(row, &self.results), &judged(row, changed)))).collect()
    }
}

/// Whether measurements depend on a value.
pub(super) fn is_used(key: &str) -> bool {
    !ELSEWHERE.iter().any(|section| key.starts_with(section))
}

/// The effect on a row.
fn effect(before: &Row, after: &Row) -> Effect {
    match (before.ratio, after.ratio) {
        (Some(before), Some(after)) if before != 0.0 => Effect::Factor(after / before),
        _ => Effect::Holds(after.holds == Some(true)),
    }
}

/// The cells of each kind, ignoring numeric levels, quickest to measure first.
fn group_by_kind(probes: &BTreeSet<Probe>) -> Vec<Vec<Probe>> {
    let mut kinds: BTreeMap<String, Vec<Probe>> = BTreeMap::new();
    for probe in probes {
        let names = probe.cell.variant.iter().filter(|(_, level)| level.parse::<u64>().is_err());
        let names: Vec<&str> = names.map(|(_, level)| level).collect();
        let kind = format!("{} {} {}", probe.device, probe.cell.experiment, names.join(" "));
        kinds.entry(kind).or_default().push(probe.clone());
    }
    let mut kinds: Vec<Vec<Probe>> = kinds.into_values().collect();
    kinds.iter_mut().for_each(|kind| kind.sort_by_key(Probe::weight));
    kinds
}

/// Samples of a kind of cells: a cell that is quick to measure, one in the middle, and one near the end.
fn samples(kind: &[Probe]) -> impl Iterator<Item = &Probe> {
    BTreeSet::from([0, kind.len() / 2, kind.len() * 7 / 8]).into_iter().map(|at| &kind[at])
}

pub(super) fn has_moved(before: &[f64], after: &[f64]) -> bool {
    let moved =
        |(before, after): (&f64, &f64)| (after - before).abs() > MOVED * before.abs().max(f64::MIN_POSITIVE);
    before.len() != after.len() || before.iter().zip(after).any(moved)
}

/// Whether a claim is decided by measurements on these cards, and tried.
fn is_about(claim: &Claim, cards: &[&str]) -> bool {
    let mut probes = BTreeSet::new();
    claim.answer.probes(&mut probes);
    is_tried(&claim.answer) && probes.iter().any(|probe| cards.contains(&probe.card()))
}

/// Whether rows with such an answer are tried: numbers, and claims about calls.
pub(crate) fn is_tried(answer: &Answer) -> bool {
    match answer {
        Answer::Input(_) => false,
        Answer::Check(_) => is_of(answer, &CALLS),
        _ => true,
    }
}

/// Whether an answer times the processor's calls and nothing else, which no mechanism of a card decides.
pub(crate) fn times_calls(answer: &Answer) -> bool {
    is_of(answer, &CALLS)
}

/// Whether an answer counts operations of our library, which no value of a machine decides.
pub(crate) fn is_counted(answer: &Answer) -> bool {
    is_of(answer, &COUNTS)
}

/// Whether an answer needs measurements and all are from these experiments.
fn is_of(answer: &Answer, experiments: &[&str]) -> bool {
    let mut probes = BTreeSet::new();
    answer.probes(&mut probes);
    !probes.is_empty() && probes.iter().all(|probe| experiments.contains(&probe.cell.experiment.as_str()))
}

/// The values to which a value is changed.
fn trial_values(card: &str, value: &Value) -> Vec<f64> {
    let Ok(machine) = fabric::machine(card) else { return Vec::new() };
    let Some(found) = machine.parameters().into_iter().find(|p| p.key.path() == value.key) else {
        return Vec::new();
    };
    let now = value.value;
    let ends = match (value.origin, value.range) {
        (Origin::Unsaid, _) | (Origin::Assumed, None) => return Vec::new(),
        (_, Some(range)) => range,
        _ => [now * (1.0 - TENTH), now * (1.0 + TENTH)],
    };
    let whole = |to: f64, up: bool| match (found.key.is_whole(), up) {
        (false, _) => to,
        (true, false) => to.floor(),
        (true, true) => to.ceil(),
    };
    let ends = [whole(ends[0], false), whole(ends[1], true)];
    let possible = |to: &f64| *to != now && found.key.allows(fabric::Value::Number(*to));
    ends.into_iter().filter(possible).collect()
}

/// A shorter measurement than a row's own, with a value changed.
pub(super) fn measure_short(probe: &Probe, change: &str) -> Result<f64, NoValue> {
    let mut settings = probe.settings();
    settings.burst = (settings.burst / SHORTER).max(BURST_MIN);
    let mut cell = probe.cell.clone();
    if probe.computes() {
        cell.variant = cell.variant.with(factor::CLASS, SMALLER);
    }
    let measured = world::measure(&probe.device_with(change), &cell, &settings);
    measured.map(|measured| measured.value).map_err(|fault| NoValue::Failed(fault.to_string()))
}

/// Measurements with one value changed.
struct ChangedMachine<'a> {
    results: &'a ProbeResults,
    trial: &'a Trial,
    cards: &'a [&'a str],
}

impl Source for ChangedMachine<'_> {
    fn measured(&self, probe: &Probe) -> Result<f64, NoValue> {
        self.results.measured(probe)
    }

    fn parameter(&self, device: &str, key: &str) -> Result<f64, NoValue> {
        let changed = self.cards.contains(&device) && key == self.trial.key;
        if changed { Ok(self.trial.to) } else { self.results.parameter(device, key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_changed_by_a_tenth_or_to_the_ends_of_their_range() {
        let machine =
            super::super::machine::read_machine("model:mt23108-nicmem", &[]).expect("a built-in machine");
        let of = |key: &str| {
            let value = machine.values.iter().find(|value| value.key == key).expect("a value");
            trial_values(&machine.card, value)
        };
        assert_eq!(
            of("bus.clock_mhz").iter().map(|v| v.round()).collect::<Vec<_>>(),
            [120.0, 146.0],
            "published"
        );
        assert_eq!(of("link.mtu_bytes"), [1024.0], "assumed, with a range that it is at one end of");
        assert_eq!(of("host.poll_word_ns"), [10.0, 40.0], "assumed, without one");
        assert_eq!(of("link.port_count"), [1.0], "whole, and there are no three");
        assert!(of("descriptor.limit_flag").is_empty() && of("faults.loss_ppm").is_empty());
    }

    #[test]
    fn a_row_moves_if_one_of_its_numbers_does() {
        assert!(has_moved(&[1.0, 2.0], &[1.0, 2.05]) && !has_moved(&[1.0, 2.0], &[1.01, 2.0]));
        assert!(has_moved(&[0.0], &[0.1]) && !has_moved(&[], &[]));
    }
}
