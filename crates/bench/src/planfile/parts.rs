//! From a [`Draft`] to [`Part`]s: one for each combination of settings; and the lines of what their plans refuse.

use super::mistake::Mistake;
use super::text::{At, Draft};
use crate::plan::{CheckedPlan, Plan, PlanError, keys};
use results::schema::{Origin, Parameter};

/// Combinations of a part at most.
const COMBINATIONS: usize = 256;

/// A part of a plan file with one value for each setting: one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name, with the settings that have several values: `small-inline-0`.
    pub name: String,
    /// What it measures.
    pub plan: CheckedPlan,
}

/// Settings with one value each, and what they add to the name of the part.
type Combination = (Vec<(String, String)>, String);

/// The parts that a draft expands to. Each mistake is reported once, however many parts have it.
pub(super) fn of(draft: &Draft, mistakes: &mut Vec<Mistake>) -> Vec<Part> {
    let mut all = Vec::new();
    let combinations = match combinations(draft) {
        Ok(combinations) => combinations,
        Err(count) => {
            let what = format!(
                "part '{}' has {count} combinations of settings, {COMBINATIONS} at most; give shorter lists",
                draft.name
            );
            mistakes.push(Mistake { line: draft.line, what });
            return all;
        }
    };
    for (settings, suffix) in combinations {
        let name = format!("{}{suffix}", draft.name);
        match plan(draft, &settings).check_strictly() {
            Ok(plan) => all.push(Part { plan: named(plan, &name), name }),
            Err(errors) => mistakes.extend(errors.iter().map(|error| Mistake {
                line: line(draft, error),
                what: crate::plan::one_line(&error.to_string()),
            })),
        }
    }
    all
}

fn named(mut plan: CheckedPlan, name: &str) -> CheckedPlan {
    let part = Parameter { key: "part".to_owned(), value: name.to_owned(), unit: None, origin: Origin::Flag };
    plan.parameters.insert(0, part);
    plan
}

/// Every combination of the values of parameters. Levels of a factor are measured in one run, so they stay a list.
fn combinations(draft: &Draft) -> Result<Vec<Combination>, usize> {
    let mut all: Vec<Combination> = vec![(Vec::new(), String::new())];
    for setting in &draft.set {
        let several = setting.values.len() > 1 && keys::find(&setting.key).is_some();
        let values = if several { setting.values.clone() } else { vec![setting.values.join(",")] };
        let count = all.len() * values.len();
        if count > COMBINATIONS {
            return Err(count);
        }
        let with = |(settings, suffix): &Combination, value: &String| {
            let more = [settings.as_slice(), &[(setting.key.clone(), value.clone())]].concat();
            let plain = value.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
            (more, if several { format!("{suffix}-{}-{plain}", setting.key) } else { suffix.clone() })
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    Ok(all)
}

fn plan(draft: &Draft, settings: &[(String, String)]) -> Plan {
    let names = |list: &Option<Vec<At<String>>>| -> Vec<String> {
        list.iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let devices = names(&draft.devices);
    Plan {
        experiments: names(&draft.experiments),
        device: devices.join(","),
        peer: draft.peers.as_ref().map(|_| names(&draft.peers).join(",")),
        sizes: draft
            .sizes
            .as_ref()
            .map(|(list, _)| list.iter().flat_map(|(sizes, _)| sizes.clone()).collect()),
        quick: draft.quick.unwrap_or(false),
        seed: draft.seed,
        launches: draft.launches.map(|(n, _)| u32::try_from(n).unwrap_or(u32::MAX)),
        set: settings.iter().cloned().collect(),
        ..Plan::default()
    }
}

/// Where what a mistake is about was written; the part's own line if it was written nowhere.
fn line(draft: &Draft, error: &PlanError) -> usize {
    let named = |list: &Option<Vec<At<String>>>, name: &str| {
        list.iter().flatten().find(|(given, _)| given == name).map(|(_, line)| *line)
    };
    let first = |list: &Option<Vec<At<String>>>| list.iter().flatten().next().map(|(_, line)| *line);
    let setting = |key: &str| draft.set.iter().find(|s| s.key == key).map(|s| s.line);
    let size = |size: &u64| {
        let (list, _) = draft.sizes.as_ref()?;
        list.iter().find(|(sizes, _)| sizes.contains(size)).map(|(_, line)| *line)
    };
    // A device's name here may have got options from settings.
    let device = |name: &str| {
        let given =
            draft.devices.iter().flatten().filter(|(given, _)| name.starts_with(given.trim_end_matches(')')));
        given.max_by_key(|(given, _)| given.len()).map(|(_, line)| *line)
    };
    let found = match error {
        PlanError::Experiment { name, .. } => named(&draft.experiments, name),
        PlanError::Impossible { experiment, .. } => named(&draft.experiments, experiment),
        PlanError::Device { name, .. } => device(name).or_else(|| first(&draft.devices)),
        PlanError::Twice { name } => device(name),
        PlanError::Interval { .. } | PlanError::IntervalVirtual { .. } => setting("interval"),
        PlanError::Key { name: key, .. } => setting(key),
        PlanError::Value { key, .. } if key == "launches" => {
            draft.launches.map(|(_, line)| line).or_else(|| setting(key))
        }
        PlanError::Value { key, .. } => setting(key),
        PlanError::Size { size: wrong } => size(wrong),
        // A plan file cannot choose among variants, nor name another MPI library.
        PlanError::Only { .. } | PlanError::Against { .. } | PlanError::AgainstVirtual { .. } => None,
        PlanError::TooMany { .. } => None,
        PlanError::NoSizes => draft.sizes.as_ref().map(|(_, line)| *line),
        PlanError::VirtualPeer => first(&draft.peers),
        PlanError::Peer { peer } | PlanError::PeerTwice { peer } => named(&draft.peers, peer),
        PlanError::Peers { experiment, asked, .. } => {
            let factor = asked.as_ref().and_then(|(factor, _)| setting(factor));
            factor.or_else(|| named(&draft.experiments, experiment))
        }
        PlanError::Machine { cell, .. } => {
            let factor = cell.variant.iter().find_map(|(factor, _)| setting(factor));
            let counted = (cell.experiment == "memory").then(|| setting("connections")).flatten();
            factor
                .or(counted)
                .or_else(|| size(&cell.size))
                .or_else(|| named(&draft.experiments, &cell.experiment))
        }
    };
    found.unwrap_or(draft.line)
}
