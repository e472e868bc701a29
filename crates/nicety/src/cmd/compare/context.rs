//! Cautions about a comparison: differences between the two runs other than the results, and their noise.

use std::collections::BTreeMap;

use report::number::sig;
use results::schema::{DeviceInfo, Environment, Floor, PeerInfo, Run};

use host::Bytes;

/// Parameters that differ in every pair of runs and have no effect.
const MEANINGLESS: [&str; 1] = ["seed"];

/// All cautions, one line each.
pub(super) fn cautions(old: &Run, new: &Run, threshold: f64) -> Vec<String> {
    let mut all = environments(&old.environment, &new.environment);
    all.extend(devices(old, new));
    all.extend(parameters(old, new));
    all.extend(floors(old, new, threshold));
    all.extend(noise("old", &old.environment, threshold));
    all.extend(noise("new", &new.environment, threshold));
    all
}

/// Devices whose A/A check within a run differed by more than the threshold.
fn noise(which: &str, environment: &Environment, threshold: f64) -> Vec<String> {
    let beyond = |info: &DeviceInfo| Some(info.aa_noise?.floor).filter(|floor| *floor > threshold);
    let noisy = environment.devices.iter().filter_map(|info| Some((&info.name, beyond(info)?)));
    noisy
        .map(|(name, floor)| {
            format!(
                "the {which} run is noisy: the same thing measured twice on {name} differs by up to {} %",
                sig(100.0 * floor, 3)
            )
        })
        .collect()
}

/// How the machines of two runs differ.
fn environments(old: &Environment, new: &Environment) -> Vec<String> {
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let pairs = [
        ("host", old.host.clone(), new.host.clone()),
        ("processor", old.cpu.clone(), new.cpu.clone()),
        ("number of cores", old.cores.to_string(), new.cores.to_string()),
        ("kernel", old.kernel.clone(), new.kernel.clone()),
        ("frequency governor", optional(&old.governor), optional(&new.governor)),
        ("clock", old.clock.kind.to_string(), new.clock.kind.to_string()),
        ("pinned cores", format!("{:?}", old.pinned_cores), format!("{:?}", new.pinned_cores)),
        ("nicety", version(old), version(new)),
        ("other side", others(old), others(new)),
    ];
    let differ = pairs.into_iter().filter(|(_, a, b)| a != b);
    differ.map(|(what, a, b)| format!("the {what} differs: {a} against {b}")).collect()
}

/// The version of the program, with its commit.
fn version(environment: &Environment) -> String {
    let commit = environment.commit.as_ref().map_or_else(String::new, |commit| format!(" ({commit})"));
    format!("{}{commit}", environment.nicety_version)
}

/// The hosts of the peers.
fn others(environment: &Environment) -> String {
    let of = |peer: &PeerInfo| format!("{} ({}, {})", peer.host, peer.cpu, peer.kernel);
    let all: Vec<String> = environment.peers.iter().map(of).collect();
    if all.is_empty() { "this host".to_owned() } else { all.join(", ") }
}

/// How the devices of two runs differ.
fn devices(old: &Run, new: &Run) -> Option<String> {
    let of = |run: &Run| {
        let mut names: Vec<String> = run.results.iter().map(|r| r.device.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let (a, b) = (of(old), of(new));
    (a != b).then(|| format!("the devices differ: {} against {}", a.join(", "), b.join(", ")))
}

/// How the parameters of two runs differ.
fn parameters(old: &Run, new: &Run) -> Vec<String> {
    let of = |run: &Run| -> BTreeMap<String, String> {
        run.parameters.iter().map(|p| (p.key.clone(), p.value.clone())).collect()
    };
    let (a, b) = (of(old), of(new));
    let differ = a.iter().filter_map(|(key, value)| Some((key, value, b.get(key)?)));
    differ
        .filter(|(key, a, b)| a != b && !MEANINGLESS.contains(&key.as_str()))
        .map(|(key, a, b)| format!("the parameter {key} differs: {a} against {b}"))
        .collect()
}

/// Floors that changed by more than the threshold: the largest change of each kind.
fn floors(old: &Run, new: &Run, threshold: f64) -> Vec<String> {
    let of = |run: &Run| -> BTreeMap<_, Floor> {
        run.results.iter().filter_map(|r| Some((r.cell(), r.floor.clone()?))).collect()
    };
    let (before, after) = (of(old), of(new));
    let mut worst: BTreeMap<&str, (f64, String)> = BTreeMap::new();
    for (cell, a) in &before {
        let Some(b) = after.get(cell).filter(|b| b.what == a.what && b.value > 0.0 && a.value > 0.0) else {
            continue;
        };
        let change = b.value / a.value - 1.0;
        if change.abs() <= threshold {
            continue;
        }
        let size = Bytes(cell.size_bytes);
        let line = format!(
            "the machine itself differs: {} at {size} went from {} to {} {} ({:+.1} %)",
            a.what,
            sig(a.value, 4),
            sig(b.value, 4),
            a.unit,
            100.0 * change
        );
        let entry = worst.entry(a.what.as_str()).or_default();
        if change.abs() > entry.0.abs() {
            *entry = (change, line);
        }
    }
    worst.into_values().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::schema::{AaNoise, Measurement, Parameter};

    fn run(host: &str, floor: f64) -> Run {
        let result = |size_bytes| Measurement {
            device: "shm".to_owned(),
            size_bytes,
            floor: Some(Floor {
                value: floor * size_bytes as f64,
                unit: "us".to_owned(),
                what: "memcpy".to_owned(),
                ratio: 1.0,
            }),
            ..Measurement::default()
        };
        let parameter = |key: &str, value: &str| Parameter {
            key: key.to_owned(),
            value: value.to_owned(),
            ..Parameter::default()
        };
        Run {
            environment: Environment { host: host.to_owned(), ..Environment::default() },
            parameters: vec![parameter("seed", host), parameter("window", host)],
            results: vec![result(1), result(2)],
            ..Run::default()
        }
    }

    #[test]
    fn equal_surroundings_raise_no_caution() {
        assert_eq!(cautions(&run("a", 1.0), &run("a", 1.04), 0.05), Vec::<String>::new());
    }

    #[test]
    fn another_machine_other_parameters_and_another_floor_are_named_once_each() {
        let found = cautions(&run("a", 1.0), &run("b", 1.5), 0.05);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("host differs: a against b"));
        assert!(found[1].contains("parameter window"));
        assert!(found[2].contains("memcpy") && found[2].contains("+50.0 %"), "{}", found[2]);
    }

    #[test]
    fn a_noisy_device_is_named_with_its_noise() {
        let mut noisy = run("a", 1.0);
        let aa_noise = Some(AaNoise { floor: 0.381, ..AaNoise::default() });
        noisy.environment.devices =
            vec![DeviceInfo { name: "shm".to_owned(), aa_noise, ..DeviceInfo::default() }];
        let found = cautions(&run("a", 1.0), &noisy, 0.05);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("new run") && found[0].contains("on shm differs by up to 38.1 %"),
            "{found:?}"
        );
        assert!(cautions(&run("a", 1.0), &noisy, 0.4).is_empty());
    }

    #[test]
    fn other_devices_are_named() {
        let mut other = run("a", 1.0);
        other.results[0].device = "iwarp".to_owned();
        assert_eq!(cautions(&run("a", 1.0), &other, 0.05), ["the devices differ: shm against iwarp, shm"]);
    }
}
