//! [`Machine`]: the values of a machine with their sources.

use std::collections::BTreeMap;

use super::error::{MachineError, MachineErrorKind, sections};
use super::keys::{Family, KEYS, Key, Params, Value};
use super::source::Source;

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
    /// A description in one sentence.
    pub about: String,
    /// The kind of its card.
    pub family: Family,
    /// The values, by component; zero for components of another kind of card.
    pub params: Params,
    pub(super) sources: BTreeMap<String, Source>,
}

impl Machine {
    /// Changes one value: `key` is `section.name`; `value` is a number in the key's unit, `true` or `false`
    /// (or 1 or 0), or a name.
    ///
    /// # Errors
    /// [`MachineError`] for an unknown key, a wrong unit, or a value out of range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        let fail = |kind: MachineErrorKind| kind.located_at(format!("option {key}={value}"));
        let Some(found) = self.keys().find(|k| k.path() == key) else {
            return Err(fail(match key.split_once('.') {
                Some((section, name)) if sections().contains(&section) => {
                    MachineErrorKind::unknown_key(section, name)
                }
                Some((section, _)) => MachineErrorKind::Section(section.to_owned()),
                None => MachineErrorKind::NoComponent(key.to_owned()),
            }));
        };
        let wrong = || fail(MachineErrorKind::Value { key: found, written: value.to_owned() });
        (found.set)(&mut self.params, found.read(value).ok_or_else(wrong)?);
        self.sources.insert(found.path(), Source::Given);
        Ok(())
    }

    /// The keys of such a machine.
    fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let family = self.family;
        KEYS.iter().filter(move |key| family.has(key.section))
    }

    /// Its rails: the ports of all of its cards.
    #[must_use]
    pub fn rails(&self) -> usize {
        if self.family == Family::Mesh {
            return 1;
        }
        (self.params.host.card_count * self.params.link.port_count) as usize
    }

    /// All of its values with their sources, in the order of [`KEYS`].
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let source = |key: &Key| self.sources.get(&key.path()).cloned().unwrap_or(Source::Default);
        self.keys()
            .map(|key| Parameter { key, value: (key.get)(&self.params), source: source(key) })
            .collect()
    }
}
