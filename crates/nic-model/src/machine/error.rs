//! [`MachineError`]: errors in a machine file or an option, with their place and what was expected.

use strsim::levenshtein;

use super::keys::{KEYS, Key};
use super::source::{Class, classes};

/// Why a description of a machine is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {kind}")]
pub struct MachineError {
    /// `file:line`, or the option as it was written.
    pub at: String,
    /// The error.
    pub kind: MachineErrorKind,
}

/// The kinds of errors in machine files and options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineErrorKind {
    /// No built-in machine has this name.
    #[error("there is no such machine{}; the built-in ones are: {}; or give the path of a .toml file", did_you_mean(*near), known.join(", "))]
    Machine {
        /// The built-in machines.
        known: Vec<&'static str>,
        /// The machine that was probably meant.
        near: Option<&'static str>,
    },
    /// The machine has only this many rails.
    #[error("it has {0} rails, which are numbered from 0")]
    Rail(usize),
    /// The file cannot be read.
    #[error("this file cannot be read: {0}; check its name")]
    Unreadable(String),
    /// The file is not TOML.
    #[error("this is not TOML: {0}")]
    NotToml(String),
    /// The section does not exist.
    #[error("there is no section [{0}]; {hint}", hint = hint_of_section(.0))]
    Section(String),
    /// A value where a section is required.
    #[error("'{0}' must be a section: write [{0}]")]
    NoSection(String),
    /// The key does not exist.
    #[error("there is no key '{section}.{name}'; {hint}", hint = hint_of_key(section, name))]
    Key {
        /// The section in which it was expected.
        section: String,
        /// The name of the key.
        name: String,
    },
    /// The key exists, in another unit.
    #[error("'{}.{name}' has the wrong unit: write {}, in {}", key.section, key.name, key.unit())]
    Unit {
        /// The name that was written.
        name: String,
        /// The key that is meant.
        key: &'static Key,
    },
    /// An option without a component.
    #[error("'{0}' lacks the component: write it as {hint}", hint = hint_of_component(.0))]
    NoComponent(String),
    /// The name or the description of the machine is missing.
    #[error("'{0}' is missing: expected a line {0} = \"...\" at the top")]
    NoTitle(&'static str),
    /// A value that must be a non-empty text is not.
    #[error("{0} must be a non-empty string in quotes")]
    NoText(String),
    /// A key without a default is missing.
    #[error("'{}' is missing: {}; expected {}", .0.path(), .0.meaning, .0.expected())]
    Missing(&'static Key),
    /// A key is not written as a table.
    #[error("'{}' must be a table: write {{ value = ..., source = '...', ... }}", .0.path())]
    NoTable(&'static Key),
    /// A key has no value.
    #[error("'{}' has no value: expected {}", .0.path(), .0.expected())]
    NoValue(&'static Key),
    /// The value is not allowed for this key.
    #[error("'{}' is {}: expected {} ({})", key.path(), written.trim(), key.expected(), key.meaning)]
    Value {
        /// The key.
        key: &'static Key,
        /// The value as it was written.
        written: String,
    },
    /// A range is not two values in ascending order.
    #[error("the range of '{}' must be two values, the smaller one first: range = [1, 2]", .0.path())]
    Range(&'static Key),
    /// A value has no source.
    #[error("'{}' has no source: expected source = {}", .0.path(), classes())]
    NoSource(&'static Key),
    /// The class of sources does not exist.
    #[error("the source of '{}' is '{class}': expected one of {}", key.path(), classes())]
    Source {
        /// The key.
        key: &'static Key,
        /// The class as it was written.
        class: String,
    },
    /// A value has a field that does not belong to its source.
    #[error("{}", unknown_field(key, *class, name))]
    Field {
        /// The key.
        key: &'static Key,
        /// The class of its source.
        class: Class,
        /// The field as it was written.
        name: String,
    },
    /// A source lacks its required field.
    #[error("'{}' is {} and has no {}: {}", key.path(), class.name, class.field, class.expected())]
    NoReason {
        /// The key.
        key: &'static Key,
        /// The class of its source.
        class: Class,
    },
    /// A list of published rows is not a list, or is empty.
    #[error("rows of '{}' must be a list such as [\"NM-003\"], not empty", .0.path())]
    Rows(&'static Key),
    /// The payload setting does not exist.
    #[error("expected payload=bytes or payload=hole")]
    Payload,
}

impl MachineErrorKind {
    /// The error at this place.
    pub(crate) fn located_at(self, at: impl Into<String>) -> MachineError {
        MachineError { at: at.into(), kind: self }
    }

    /// The error for a key that does not exist.
    pub(super) fn unknown_key(section: &str, name: &str) -> Self {
        let mut inside = KEYS.iter().filter(|key| key.section == section);
        let name_of = name.to_owned();
        match inside.find(|key| stem(key.name) == stem(name) || key.name == stem(name)) {
            Some(key) => Self::Unit { name: name_of, key },
            None => Self::Key { section: section.to_owned(), name: name_of },
        }
    }
}

impl From<MachineError> for verbs::Error {
    fn from(error: MachineError) -> Self {
        Self::Invalid(error.to_string())
    }
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!(", did you mean '{near}'?"))
}

/// The hint for a key that does not exist.
fn hint_of_key(section: &str, name: &str) -> String {
    if let Some(key) = KEYS.iter().find(|key| key.name == name && levenshtein(key.section, section) <= 2) {
        return format!("did you mean '{}'?", key.path());
    }
    let inside = KEYS.iter().filter(|key| key.section == section);
    let near = inside.clone().min_by_key(|key| levenshtein(key.name, name));
    match near.filter(|key| levenshtein(key.name, name) <= 1 + name.len() / 4) {
        Some(key) => format!("did you mean '{}'?", key.path()),
        None if near.is_none() => format!("the sections are: {}", sections().join(", ")),
        None => {
            let names: Vec<&str> = inside.map(|key| key.name).collect();
            format!("{section} has: {}", names.join(", "))
        }
    }
}

/// The hint for a section that does not exist.
fn hint_of_section(section: &str) -> String {
    let sections = sections();
    let near =
        sections.iter().min_by_key(|s| levenshtein(s, section)).filter(|s| levenshtein(s, section) <= 2);
    match near {
        Some(near) => format!("did you mean '[{near}]'?"),
        None => format!("the sections are: {}", sections.join(", ")),
    }
}

/// The hint for an option without a component.
fn hint_of_component(name: &str) -> String {
    KEYS.iter().find(|k| k.name == name).map_or_else(|| "bus.clock_mhz".to_owned(), Key::path)
}

fn unknown_field(key: &Key, class: Class, name: &str) -> String {
    let Class { name: source, field } = class;
    let near =
        if levenshtein(name, field) <= 2 { format!(", did you mean '{field}'?") } else { String::new() };
    let path = key.path();
    format!(
        "'{path}' has an unknown field '{name}'{near}: with source {source} it has value, source and {field}"
    )
}

/// The names of all sections, in order.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stem_strips_only_the_unit() {
        assert_eq!((stem("latency_ns"), stem("latency_us"), stem("clock")), ("latency", "latency", "clock"));
    }
}
