//! Makes the table of [`Shaken`]: which claims compare a number that moves if all values of the cards change together.
//!
//! Each value that is a number changes by a tenth, up or down as its name decides; whole numbers are rounded, so that small
//! counts stay. A claim of which no number moves by 2 % holds by construction. Streams are short, as for `moves`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::machine::Machines;
use super::moves::Shaken;
use super::sensitivity::{TENTH, has_moved, is_used, measure_short};
use crate::claims::claim::{Answer, Claim};
use crate::claims::quantity::{Probe, Source};
use crate::error::NoValue;
use crate::papers::rows::{GROUPS, cards, table};
use crate::probe_results::ProbeResults;
use crate::run::machines;

/// Measures all claims twice, and returns those that move; `None` if `stop` is set.
///
/// # Panics
/// If a built-in machine file cannot be read.
#[must_use]
pub fn shaken(threads: usize, stop: &AtomicBool) -> Option<Shaken> {
    let table = table();
    let claims: Vec<(&Claim, BTreeSet<Probe>)> = table
        .iter()
        .filter(|claim| matches!(claim.answer, Answer::Check(_)))
        .map(|claim| {
            let mut probes = BTreeSet::new();
            claim.answer.probes(&mut probes);
            (claim, probes)
        })
        .collect();
    let machines = Machines::new(machines(&[]).expect("the built-in machine files"));
    let changes: BTreeMap<&str, Vec<(String, f64)>> =
        cards().into_iter().map(|card| (card, changes_of(card))).collect();
    let measured = |change: &(dyn Fn(&Probe) -> String + Sync)| {
        let probes = claims.iter().flat_map(|(_, probes)| probes.iter().cloned()).collect();
        let mut results = ProbeResults::new(machines.clone());
        results.measure(probes, &|probe| measure_short(probe, &change(probe)), threads, &mut (), stop);
        results
    };
    let before = measured(&|_| String::new());
    let after = measured(&|probe| {
        let own = changes.get(probe.card()).map_or(&[][..], Vec::as_slice);
        own.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    });
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let after = Changed { results: &after, changes: &changes };
    let moves = |claim: &Claim| match (claim.answer.values(&before), claim.answer.values(&after)) {
        (Ok(before), Ok(after)) => has_moved(&before, &after),
        // A card that cannot be built with these values is no evidence.
        _ => true,
    };
    let moved: Vec<&(&Claim, BTreeSet<Probe>)> = claims.iter().filter(|(claim, _)| moves(claim)).collect();
    let rows_of = |group: &[&str]| -> Vec<&str> {
        let is_about = |probes: &BTreeSet<Probe>| probes.iter().any(|probe| group.contains(&probe.card()));
        let own = moved.iter().filter(|(_, probes)| is_about(probes));
        own.flat_map(|(claim, _)| claim.rows.iter().copied()).collect()
    };
    Some(Shaken::from_groups(GROUPS.iter().map(|group| (group[0], rows_of(group)))))
}

/// The changes of a card's values.
fn changes_of(card: &str) -> Vec<(String, f64)> {
    let Ok(machine) = fabric::machine(card) else { return Vec::new() };
    let parameters = machine.parameters().into_iter().filter(|one| is_used(&one.key.path()));
    let changed = parameters.filter_map(|one| {
        let fabric::Value::Number(value) = one.value else { return None };
        let key = one.key.path();
        let letters: u32 = key.bytes().map(u32::from).sum();
        let to = value * if letters.is_multiple_of(2) { 1.0 + TENTH } else { 1.0 - TENTH };
        let to = if one.key.is_whole() { to.round() } else { to };
        (to != value && one.key.allows(fabric::Value::Number(to))).then_some((key, to))
    });
    changed.collect()
}

/// Measurements and values with all values changed.
struct Changed<'a> {
    results: &'a ProbeResults,
    changes: &'a BTreeMap<&'a str, Vec<(String, f64)>>,
}

impl Source for Changed<'_> {
    fn measured(&self, probe: &Probe) -> Result<f64, NoValue> {
        self.results.measured(probe)
    }

    fn parameter(&self, device: &str, key: &str) -> Result<f64, NoValue> {
        let changed = self.changes.get(device).and_then(|all| all.iter().find(|(name, _)| name == key));
        changed.map_or_else(|| self.results.parameter(device, key), |(_, value)| Ok(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every card can be built with all of its values changed, so that a claim that does not move was tried. Method:
    /// the text of a device with them is read; many values differ.
    #[test]
    fn cards_can_be_built_with_all_values_changed() {
        for card in cards() {
            let changes = changes_of(card);
            let text: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert!(changes.len() > 20, "{card}: {text:?}");
            let machine =
                fabric::machine(&format!("{card}({})", text.join(","))).expect("values within bounds");
            let differing = machine.parameters().into_iter().filter(|one| {
                changes
                    .iter()
                    .any(|(key, value)| *key == one.key.path() && one.value == fabric::Value::Number(*value))
            });
            assert_eq!(differing.count(), changes.len(), "{card}");
        }
    }
}
