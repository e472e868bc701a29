//! Several devices in one text, and settings that belong to a device.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PlanError;
use crate::experiment::{Experiment, find};
use crate::floor::FLOOR;

/// The experiments that no requested device supports, as far as devices of this machine report it.
pub(super) fn impossible(experiments: &[String], devices: &[String]) -> Vec<PlanError> {
    let refused = |name: &String| {
        let experiment = find(name)?;
        let why: Option<Vec<String>> = devices.iter().map(|d| refuses(d, experiment)).collect();
        let why = why.filter(|all| !all.is_empty())?.join("; ");
        Some(PlanError::Impossible { experiment: experiment.name(), why })
    };
    let mut seen = BTreeSet::new();
    experiments.iter().filter(|name| seen.insert(name.as_str())).filter_map(refused).collect()
}

/// How many queue pairs the device of this name has, where it can be opened.
pub(super) fn queue_pairs(name: &str) -> Option<u64> {
    fabric::attr(name).ok().map(|attr| attr.max_qp.into())
}

/// Why no cell of an experiment can be measured on the device of this name, if it says so when asked.
fn refuses(name: &str, experiment: &dyn Experiment) -> Option<String> {
    if fabric::is_virtual(name) {
        let none = format!("{name} is a model, which has no floor of this machine");
        return (experiment.name() == FLOOR).then_some(none);
    }
    // What cannot be opened says so when it is measured, with more to go by.
    let device = fabric::open(name, &verbs::host::real::host()).ok()?;
    experiment.possible(&device).err().map(|why| format!("{name}: {why}"))
}

/// Moves settings that name a part of a device, such as `bus.clock_mhz`, into the names as options: of the modelled
/// cards among them, or of all if there is none, which will then refuse them.
pub(super) fn with_options(devices: &[String], set: &mut BTreeMap<String, String>) -> Vec<String> {
    let (own, rest) = std::mem::take(set).into_iter().partition(|(key, _)| key.contains('.'));
    *set = rest;
    let own: BTreeMap<String, String> = own;
    let options: Vec<String> = own.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let none = !devices.iter().any(|device| fabric::is_virtual(device));
    let add = |device: &String| match device.strip_suffix(')') {
        _ if options.is_empty() || !(none || fabric::is_virtual(device)) => device.clone(),
        Some(open) => format!("{open},{})", options.join(",")),
        None => format!("{device}({})", options.join(",")),
    };
    devices.iter().map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_card_go_to_the_cards() {
        let set =
            || BTreeMap::from([("bus.clock_mhz".to_owned(), "66".to_owned()), ("window".into(), "8".into())]);
        let of = |devices: &str| {
            let mut set = set();
            let names = fabric::split(devices, ',').into_iter().map(str::to_owned).collect::<Vec<_>>();
            let names = with_options(&names, &mut set);
            assert_eq!(set.keys().collect::<Vec<_>>(), ["window"]);
            names.join(" ")
        };
        assert_eq!(
            of("shm,model:a,model:b(c=1)"),
            "shm model:a(bus.clock_mhz=66) model:b(c=1,bus.clock_mhz=66)"
        );
        assert_eq!(of("shm"), "shm(bus.clock_mhz=66)");
    }
}
