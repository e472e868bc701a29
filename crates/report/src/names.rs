//! Names of runs in a report of several.

use results::schema::{Origin, Parameter, Run};

/// Parameters that name a run: the part of a plan file that it was, or the file that it was read from.
const NAMES: [&str; 2] = ["file", "part"];

/// Names a run after the file that it was read from.
pub fn name_run(run: &mut Run, file: &str) {
    let (key, value) = (NAMES[0].to_owned(), file.to_owned());
    run.parameters.push(Parameter { key, value, unit: None, origin: Origin::Derived });
}

/// The name that a run was given.
pub(super) fn name_of(run: &Run) -> Option<&str> {
    let named = |key: &&str| run.parameters.iter().find(|p| p.key == **key);
    NAMES.iter().find_map(named).map(|p| p.value.as_str())
}

/// The name of a run among several: its own, or its number.
pub(super) fn run_label(run: &Run, index: usize) -> String {
    name_of(run).map_or_else(|| format!("Run {}", index + 1), str::to_owned)
}
