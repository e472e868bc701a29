//! Sources of the machine files' values: they decide which rows are predictions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::{BadCard, NoValue};

/// The source of a value in a machine file, as far as rows are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A row states it.
    Published,
    /// Computed from values in rows or specifications.
    Derived,
    /// A data sheet or a specification states it.
    Datasheet,
    /// Another machine with the same part has it.
    Carried,
    /// Chosen so that rows are met.
    Fitted,
    /// Not stated anywhere.
    Assumed,
    /// The file does not state a source.
    Unsaid,
}

/// One value of a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// `bus.clock_mhz`
    pub key: String,
    /// In the unit in which the key ends.
    pub value: f64,
    /// Its source.
    pub origin: Origin,
    /// The file's text about the source.
    pub source_text: String,
    /// The range in which an assumed value may be as well.
    pub range: Option<[f64; 2]>,
    /// Ids of all rows that the file names with it, as source or in its reason.
    pub rows: Vec<String>,
}

impl Value {
    /// A value; `source_text` is the file's full text about its source, which is searched for rows.
    #[must_use]
    pub fn new(key: impl Into<String>, value: f64, origin: Origin, source_text: &str) -> Self {
        let (source_text, rows) = (source_text.to_owned(), rows_in(source_text));
        Self { key: key.into(), value, origin, source_text, range: None, rows }
    }
}

/// The values of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The device's name.
    pub card: String,
    /// Its values.
    pub values: Vec<Value>,
}

/// A fitted value, for the list of fitted values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// The device's name.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// The fitted value.
    pub value: f64,
    /// Ids of the rows to which it was fitted.
    pub rows: Vec<String>,
}

/// The values of a card's machine file, with some changed. A changed value still counts as having the source that the
/// file states, so that a what-if does not turn a fitted value into a prediction.
///
/// # Errors
/// A file that cannot be read, a value that does not exist or is beyond its range.
pub(crate) fn read_machine(card: &str, changes: &[(String, String)]) -> Result<Machine, BadCard> {
    let file = fabric::machine(card)?;
    let (mut machine, kind) = (file.clone(), file.family);
    for (key, value) in changes.iter().filter(|(key, _)| applies_to(kind, key)) {
        machine.set(key, value)?;
    }
    let value = |(file, now): (fabric::Parameter, fabric::Parameter)| {
        let (origin, source_text) = origin_of(&file.source);
        let amount = matches!(file.value, fabric::Value::Number(_)).then(|| file.value.number());
        let range = amount.and_then(|value| range(&file.source, value));
        Value { range, ..Value::new(now.key.path(), now.value.number(), origin, &source_text) }
    };
    let values = file.parameters().into_iter().zip(machine.parameters()).map(value).collect();
    Ok(Machine { card: card.to_owned(), values })
}

/// Whether cards of a kind have a value, by its section.
fn applies_to(kind: fabric::Family, key: &str) -> bool {
    kind.has(key.split('.').next().unwrap_or(key))
}

/// The changes of a card's values, as options of its device.
///
/// # Errors
/// A machine file that cannot be read.
pub(crate) fn options_of(card: &str, changes: &[(String, String)]) -> Result<Vec<String>, BadCard> {
    let kind = fabric::machine(card)?.family;
    let own = changes.iter().filter(|(key, _)| applies_to(kind, key));
    Ok(own.map(|(key, value)| format!("{key}={value}")).collect())
}

/// The source of a value, and the file's full text about it.
fn origin_of(source: &fabric::Source) -> (Origin, String) {
    use fabric::Source;
    match source {
        Source::Published { rows } => (Origin::Published, rows.join(" ")),
        Source::Fitted { rows } => (Origin::Fitted, rows.join(" ")),
        Source::Derived { how } => (Origin::Derived, how.clone()),
        Source::Carried { from } => (Origin::Carried, from.clone()),
        Source::Assumed { why, .. } => (Origin::Assumed, why.clone()),
        Source::Datasheet { doc } => (Origin::Datasheet, doc.clone()),
        Source::Given | Source::Default => (Origin::Unsaid, String::new()),
    }
}

/// The range in which an assumed amount may be as well: half of it to twice as much, unless its file states one.
fn range(source: &fabric::Source, value: f64) -> Option<[f64; 2]> {
    match source {
        fabric::Source::Assumed { range, .. } => Some(range.unwrap_or([value / 2.0, value * 2.0])),
        _ => None,
    }
}

/// All statements of machine files about rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    all: BTreeMap<String, Machine>,
}

impl Machines {
    pub(crate) fn new(all: impl IntoIterator<Item = Machine>) -> Self {
        Self { all: all.into_iter().map(|machine| (machine.card.clone(), machine)).collect() }
    }

    /// The value of a key.
    pub(crate) fn value(&self, card: &str, key: &str) -> Result<f64, NoValue> {
        let machine = self.all.get(card).ok_or_else(|| NoValue::NoMachine(card.to_owned()))?;
        let found = machine.values.iter().find(|value| value.key == key);
        found
            .map(|value| value.value)
            .ok_or_else(|| NoValue::NoKey { card: card.to_owned(), key: key.to_owned() })
    }

    /// The values that name a row, with their cards: as its source, in its arithmetic, in the reason of an assumption.
    pub(crate) fn naming<'a>(&'a self, row: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let values = self
            .all
            .iter()
            .flat_map(|(card, machine)| machine.values.iter().map(move |value| (card.as_str(), value)));
        values.filter(move |(_, value)| value.rows.iter().any(|named| named == row))
    }

    /// A card's value of this key.
    pub(crate) fn find(&self, card: &str, key: &str) -> Option<&Value> {
        self.all.get(card)?.values.iter().find(|value| value.key == key)
    }

    /// All cards, in the order of their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Machine> {
        self.all.values()
    }

    /// All values that were fitted.
    pub(crate) fn fitted(&self) -> Vec<Fitted> {
        let all =
            self.all.values().flat_map(|machine| machine.values.iter().map(|value| (&machine.card, value)));
        all.filter(|(_, value)| value.origin == Origin::Fitted)
            .map(|(card, Value { key, value, rows, .. })| Fitted {
                card: card.clone(),
                key: key.clone(),
                value: *value,
                rows: rows.clone(),
            })
            .collect()
    }
}

/// Ids of rows in a text: two capital letters, a dash, three digits.
fn rows_in(text: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        let bytes = word.as_bytes();
        bytes.len() == 6
            && bytes[..2].iter().all(u8::is_ascii_uppercase)
            && bytes[2] == b'-'
            && bytes[3..].iter().all(u8::is_ascii_digit)
    };
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let found: BTreeSet<&str> = words.filter(is_id).collect();
    found.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: &str, origin: Origin, source_text: &str) -> Value {
        Value::new(key, 2.0, origin, source_text)
    }

    #[test]
    fn rows_are_found_in_reasons() {
        assert_eq!(
            rows_in("as VAPI (MT-067), where it was fitted to NM-030, NM-055; not X-1"),
            ["MT-067", "NM-030", "NM-055"]
        );
        assert!(rows_in("PC-2100 and nm-001").is_empty());
    }

    #[test]
    fn values_are_found_by_their_card_and_by_the_rows_that_they_name() {
        let a = Machine { card: "a".to_owned(), values: vec![value("x.y", Origin::Published, "NM-001")] };
        let b = Machine {
            card: "b".to_owned(),
            values: vec![
                value("x.y", Origin::Fitted, "NM-001 NM-002"),
                value("x.z", Origin::Assumed, "NM-003"),
            ],
        };
        let machines = Machines::new([a, b]);
        let origins = |row| machines.naming(row).map(|(_, value)| value.origin).collect::<Vec<_>>();
        assert_eq!(origins("NM-001"), [Origin::Published, Origin::Fitted]);
        assert_eq!((origins("NM-003"), origins("NM-004")), (vec![Origin::Assumed], vec![]));
        assert_eq!(machines.find("b", "x.z").map(|value| value.source_text.as_str()), Some("NM-003"));
        assert!(machines.find("c", "x.y").is_none());
        assert_eq!(machines.value("b", "x.z"), Ok(2.0));
        assert!(machines.value("b", "q").is_err() && machines.value("c", "x.y").is_err());
        assert_eq!(machines.fitted().iter().map(|f| f.key.as_str()).collect::<Vec<_>>(), ["x.y"]);
    }
}
