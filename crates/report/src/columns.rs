//! [`Column`]: a device of a run, in a comparison side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::names::name_of;
use super::series::Series;
use results::schema::{ClockKind, Run};

/// One device of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// Index of the run.
    pub(super) run: usize,
    /// The device's name.
    pub(super) device: String,
    /// Whether its time is virtual.
    pub(super) is_virtual: bool,
    /// Its label: the name, `(virtual)`, and the run if there are several.
    pub(super) label: String,
}

/// The devices of some runs, in the order in which they were asked for; none unless there are several devices.
pub(super) fn columns(runs: &[Run]) -> Vec<Column> {
    let mut all: Vec<Column> = Vec::new();
    for (run, one) in runs.iter().enumerate() {
        let measured = one.results.iter().filter(|r| r.experiment != "floor" && !r.device.is_empty());
        let clocks: BTreeMap<&str, ClockKind> = measured.map(|r| (r.device.as_str(), r.clock)).collect();
        let asked = one.environment.devices.iter().map(|info| info.name.as_str());
        let mut names: Vec<&str> = asked.filter(|name| clocks.contains_key(name)).collect();
        names.extend(clocks.keys().filter(|name| !one.environment.devices.iter().any(|i| i.name == **name)));
        for name in names {
            let is_virtual = clocks[name] == ClockKind::Virtual;
            let time = if is_virtual { " (virtual)" } else { "" };
            let called = name_of(one).map_or_else(|| format!("run {}", run + 1), str::to_owned);
            let of = if runs.len() > 1 { format!(", {called}") } else { String::new() };
            let label = format!("{name}{time}{of}");
            all.push(Column { run, device: name.to_owned(), is_virtual, label });
        }
    }
    let devices: BTreeSet<&str> = all.iter().map(|c| c.device.as_str()).collect();
    if devices.len() > 1 { all } else { Vec::new() }
}

/// The column of a curve.
pub(super) fn column_of(columns: &[Column], s: &Series<'_>) -> Option<usize> {
    columns.iter().position(|c| c.run == s.run && c.device == s.device)
}
