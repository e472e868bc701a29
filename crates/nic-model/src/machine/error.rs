//! [`MachineError`]: what is wrong with a machine file or an option, where, and what was expected.

use super::keys::{KEYS, Key};

/// Why a description of a machine cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct MachineError {
    /// `file:line`, or the option as it was written.
    pub place: String,
    /// What is wrong, with the key, and what was expected.
    pub what: String,
}

impl From<MachineError> for verbs::Error {
    fn from(error: MachineError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// What to say of a key that does not exist.
pub(super) fn unknown_key(section: &str, name: &str) -> String {
    let path = format!("{section}.{name}");
    let inside: Vec<&Key> = KEYS.iter().filter(|key| key.section == section).collect();
    if let Some(key) = inside.iter().find(|key| stem(key.name) == stem(name) || key.name == stem(name)) {
        return format!("'{path}' has the wrong unit: write {}, in {}", key.name, key.unit);
    }
    if let Some(key) = KEYS.iter().find(|key| key.name == name && distance(key.section, section) <= 2) {
        return format!("there is no key '{path}'; did you mean {}?", key.path());
    }
    let near = inside.iter().min_by_key(|key| distance(key.name, name));
    match near.filter(|key| distance(key.name, name) <= 1 + name.len() / 4) {
        Some(key) => format!("there is no key '{path}'; did you mean {}?", key.path()),
        None => format!("there is no key '{path}'; {}", known(section)),
    }
}

/// What to say of a section that does not exist.
pub(super) fn unknown_section(section: &str) -> String {
    let sections = sections();
    let near = sections.iter().min_by_key(|s| distance(s, section)).filter(|s| distance(s, section) <= 2);
    match near {
        Some(near) => format!("there is no section [{section}]; did you mean [{near}]?"),
        None => format!("there is no section [{section}]; there is: {}", sections.join(", ")),
    }
}

fn known(section: &str) -> String {
    let names: Vec<&str> = KEYS.iter().filter(|k| k.section == section).map(|k| k.name).collect();
    match names.is_empty() {
        true => format!("the sections are: {}", sections().join(", ")),
        false => format!("{section} has: {}", names.join(", ")),
    }
}

/// The names of all sections, in their order.
pub(super) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    sections
}

/// A name without its unit.
fn stem(name: &str) -> &str {
    const UNITS: [&str; 22] = [
        "_bytes", "_bits", "_ps", "_ns", "_us", "_ms", "_s", "_hz", "_khz", "_mhz", "_ghz", "_bps", "_kbps",
        "_mbps", "_gbps", "_clocks", "_cycles", "_mib", "_gib", "_mb", "_kib", "_ratio",
    ];
    UNITS.iter().filter_map(|unit| name.strip_suffix(unit)).min_by_key(|stem| stem.len()).unwrap_or(name)
}

/// Edits between two words (Levenshtein).
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = corner + usize::from(ca != *cb);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_far_apart_as_their_edits() {
        for (a, b, edits) in [("bus", "bus", 0), ("bsu", "bus", 2), ("", "abc", 3), ("clock", "clocks", 1)] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn names_lose_their_unit_only() {
        assert_eq!((stem("latency_ns"), stem("latency_us"), stem("clock")), ("latency", "latency", "clock"));
    }
}
