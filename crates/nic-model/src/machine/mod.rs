//! Machines: what a card and its host are made of, in numbers, and where each number comes from.
//!
//! A machine file is TOML with a section for each component. Every key ends in its unit, in `flag` (true or false) or in
//! `kind` (a name), and every value says where it comes from: `clock_mhz = { value = 133, source = "published", rows = ["NM-003"] }`. The table of keys is in `keys.rs`;
//! `parse.rs` reads files; `error.rs` says what is wrong with them.

mod error;
mod keys;
mod parse;

use std::collections::BTreeMap;

pub use error::{MachineError, Wrong};
pub use keys::{
    Api, Bus, Chipset, Completion, Connection, Descriptor, Dma, Domain, Doorbell, Faults, Host, Interrupt,
    KEYS, Key, Link, NicMemory, Params, ProcessorsKind, Software, Switch, Translation, Transport, Value,
    WriteImmKind,
};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A paper says so.
    Published {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// A data sheet or a specification says so.
    Datasheet {
        /// Which one, where.
        doc: String,
    },
    /// The value follows from others.
    Derived {
        /// The arithmetic by which it follows.
        how: String,
    },
    /// Chosen so that the model comes near published results: these are no predictions then.
    Fitted {
        /// Numbers of the published rows.
        rows: Vec<String>,
    },
    /// Nobody says: it is an assumption.
    Assumed {
        /// Why this value.
        why: String,
    },
    /// Given as an option.
    Given,
    /// The file does not say, and it is off.
    Default,
}

impl Source {
    /// Its class in a word, as machine files have it.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published",
            Self::Datasheet { .. } => "datasheet",
            Self::Derived { .. } => "derived",
            Self::Fitted { .. } => "fitted",
            Self::Assumed { .. } => "assumed",
            Self::Given => "given",
            Self::Default => "default",
        }
    }
}

/// One value of a machine.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Name, unit, range and meaning.
    pub key: &'static Key,
    /// The value that the machine has.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
}

/// A machine: all of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its short name.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The values, by component.
    pub params: Params,
    sources: BTreeMap<String, Source>,
}

/// The machines that come along: name and file.
const BUILT_IN: [(&str, &str); 8] = [
    ("mt23108-nicmem", include_str!("../../machines/mt23108-nicmem.toml")),
    ("mt23108-vapi", include_str!("../../machines/mt23108-vapi.toml")),
    ("mt23108-ibal", include_str!("../../machines/mt23108-ibal.toml")),
    ("myrinet-gm", include_str!("../../machines/myrinet-gm.toml")),
    ("quadrics-elan3", include_str!("../../machines/quadrics-elan3.toml")),
    ("connectx-single", include_str!("../../machines/connectx-single.toml")),
    ("connectx-multiport", include_str!("../../machines/connectx-multiport.toml")),
    ("connectx-multihca", include_str!("../../machines/connectx-multihca.toml")),
];

/// The machines that come along, with what each is.
///
/// # Panics
/// Never: a test reads each of them.
#[must_use]
pub fn machines() -> Vec<Machine> {
    BUILT_IN.iter().map(|(name, text)| built_in(name, text)).collect()
}

fn built_in(name: &str, text: &str) -> Machine {
    parse::parse(&format!("machines/{name}.toml"), text).expect("the machines that come along are tested")
}

impl Machine {
    /// Reads a machine file's text; `name` stands in errors.
    ///
    /// # Errors
    /// [`MachineError`] for what is missing, unknown, of a wrong unit or beyond its range.
    pub fn parse(name: &str, text: &str) -> Result<Self, MachineError> {
        parse::parse(name, text)
    }

    /// The machine of this name, or of this file if the name ends in `.toml`.
    ///
    /// # Errors
    /// As [`Machine::parse`]; an unknown name, with those that exist; a file that cannot be read.
    pub fn load(name: &str) -> Result<Self, MachineError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Ok(built_in(name, text));
        }
        if !name.ends_with(".toml") {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let near = known.iter().find(|known| strsim::levenshtein(known, name) <= 3);
            let near = near.copied();
            return Err(Wrong::Machine { near, known }.at(format!("machine '{name}'")));
        }
        let text = std::fs::read_to_string(name).map_err(|e| Wrong::Unreadable(e.to_string()).at(name))?;
        parse::parse(name, &text)
    }

    /// Changes one value: `key` is `section.name`, `value` a number in the key's unit, `true` or `false` (or 1 or 0), or a name.
    ///
    /// # Errors
    /// [`MachineError`] for an unknown key, a wrong unit, or a value that is beyond its range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        let fail = |wrong: Wrong| wrong.at(format!("option {key}={value}"));
        let Some(found) = KEYS.iter().find(|k| k.path() == key) else {
            return Err(fail(match key.split_once('.') {
                Some((section, name)) if error::sections().contains(&section) => {
                    Wrong::unknown_key(section, name)
                }
                Some((section, _)) => Wrong::Section(section.to_owned()),
                None => Wrong::NoComponent(key.to_owned()),
            }));
        };
        let wrong = || fail(Wrong::Value { key: found, written: value.to_owned() });
        (found.set)(&mut self.params, found.read(value).ok_or_else(wrong)?);
        self.sources.insert(found.path(), Source::Given);
        Ok(())
    }

    /// Its rails: ports of all of its cards together.
    #[must_use]
    pub fn rails(&self) -> usize {
        (self.params.host.card_count * self.params.link.port_count) as usize
    }

    /// All of its values with their sources, in the order of [`KEYS`].
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let source = |key: &Key| self.sources.get(&key.path()).cloned().unwrap_or(Source::Default);
        KEYS.iter()
            .map(|key| Parameter { key, value: (key.get)(&self.params), source: source(key) })
            .collect()
    }
}

#[cfg(test)]
mod tests;
