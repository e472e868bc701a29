//! What the machine files say of where their values come from: it decides which rows are predictions.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::error::{BadCard, NoValue};

/// Where a value of a machine file comes from, as far as rows are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A row states it.
    Published,
    /// It was chosen so that rows come out.
    Fitted,
    /// Anything else: data sheet, arithmetic, assumption.
    Other,
}

/// One value of a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// `bus.clock_mhz`
    pub key: String,
    /// In the unit that the key ends in.
    pub value: f64,
    /// Where it comes from.
    pub origin: Origin,
    /// Ids of all rows that the file names with it, as source or in its reason.
    pub rows: Vec<String>,
}

impl Value {
    /// A value; `said` is all that the file says of its source, in which rows are looked for.
    #[must_use]
    pub fn new(key: impl Into<String>, value: f64, origin: Origin, said: &str) -> Self {
        Self { key: key.into(), value, origin, rows: rows_in(said) }
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

/// A value that was fitted, for the list of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// The device's name.
    pub card: String,
    /// The value's key.
    pub key: String,
    /// What it is.
    pub value: f64,
    /// Ids of the rows to which it was fitted.
    pub rows: Vec<String>,
}

/// The values of a card's machine file, some of them changed. A changed value still counts as coming from where the
/// file says, so that a what-if makes no prediction of what was fitted.
///
/// # Errors
/// A file that cannot be read, a value that does not exist or is beyond its range.
pub(super) fn of_card(card: &str, changes: &[(String, String)]) -> Result<Machine, BadCard> {
    let file = fabric::machine(card)?;
    let mut machine = file.clone();
    for (key, value) in changes {
        machine.set(key, value)?;
    }
    let value = |(file, now): (fabric::Parameter, fabric::Parameter)| {
        let (origin, said) = said(&file.source);
        Value::new(now.key.path(), now.value.number(), origin, &said)
    };
    let values = file.parameters().into_iter().zip(machine.parameters()).map(value).collect();
    Ok(Machine { card: card.to_owned(), values })
}

/// Where a value comes from, and all that the file says of it.
fn said(source: &fabric::Source) -> (Origin, String) {
    use fabric::Source;
    match source {
        Source::Published { rows } => (Origin::Published, rows.join(" ")),
        Source::Fitted { rows } => (Origin::Fitted, rows.join(" ")),
        Source::Derived { how } => (Origin::Other, how.clone()),
        Source::Assumed { why } => (Origin::Other, why.clone()),
        Source::Datasheet { .. } | Source::Given | Source::Default => (Origin::Other, String::new()),
    }
}

/// Everything that machine files say about rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    all: BTreeMap<String, Machine>,
}

impl Machines {
    pub(super) fn new(all: impl IntoIterator<Item = Machine>) -> Self {
        Self { all: all.into_iter().map(|machine| (machine.card.clone(), machine)).collect() }
    }

    /// The value of a key.
    pub(super) fn value(&self, card: &str, key: &str) -> Result<f64, NoValue> {
        let machine = self.all.get(card).ok_or_else(|| NoValue::NoMachine(card.to_owned()))?;
        let found = machine.values.iter().find(|value| value.key == key);
        found
            .map(|value| value.value)
            .ok_or_else(|| NoValue::NoKey { card: card.to_owned(), key: key.to_owned() })
    }

    /// What a row is to the machine files, if any of them names it. A row that occurs in the reason of an assumption or in
    /// the arithmetic of a derived value is no prediction either.
    pub(super) fn origin(&self, row: &str) -> Option<Origin> {
        let values = self.all.values().flat_map(|machine| &machine.values);
        let named = values.filter(|value| value.rows.iter().any(|named| named == row));
        named
            .map(|value| if value.origin == Origin::Published { Origin::Published } else { Origin::Fitted })
            .min()
    }

    /// All values that were fitted.
    pub(super) fn fitted(&self) -> Vec<Fitted> {
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

    fn value(key: &str, origin: Origin, said: &str) -> Value {
        Value::new(key, 2.0, origin, said)
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
    fn a_row_that_a_machine_file_names_is_no_prediction() {
        let a = Machine { card: "a".to_owned(), values: vec![value("x.y", Origin::Published, "NM-001")] };
        let b = Machine {
            card: "b".to_owned(),
            values: vec![
                value("x.y", Origin::Fitted, "NM-001 NM-002"),
                value("x.z", Origin::Other, "NM-003"),
            ],
        };
        let machines = Machines::new([a, b]);
        let origin = |row| machines.origin(row);
        assert_eq!(origin("NM-001"), Some(Origin::Published));
        assert_eq!((origin("NM-002"), origin("NM-003")), (Some(Origin::Fitted), Some(Origin::Fitted)));
        assert_eq!(origin("NM-004"), None);
        assert_eq!(machines.value("b", "x.z"), Ok(2.0));
        assert!(machines.value("b", "q").is_err() && machines.value("c", "x.y").is_err());
        assert_eq!(machines.fitted().iter().map(|f| f.key.as_str()).collect::<Vec<_>>(), ["x.y"]);
    }
}
