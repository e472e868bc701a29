//! Parses the text of a machine file into values and their sources, with errors that name the line.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{MachineError, MachineErrorKind, sections};
use super::keys::Value as Amount;
use super::keys::{Domain, Family, KEYS, Key, Params};
use super::source::{CLASSES, Source};
use super::values::Machine;

type Outcome<T> = Result<T, MachineError>;
type Value<'a> = Spanned<DeValue<'a>>;

/// The field of assumed values that gives their plausible range.
const RANGE: &str = "range";

/// A file being parsed.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

/// Parses a machine file; `name` is for errors.
pub(super) fn parse(name: &str, text: &str) -> Outcome<Machine> {
    let file = File { name, text };
    let document = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        file.error(at, MachineErrorKind::NotToml(e.message().to_owned()))
    })?;
    let root = document.get_ref();
    let family = Family::of_sections(root.keys().map(|key| key.get_ref().as_ref()));
    file.check_sections(root, family)?;
    let mut machine = Machine {
        name: file.title(root, "name")?,
        about: file.title(root, "about")?,
        family,
        params: Params::default(),
        sources: BTreeMap::new(),
    };
    for key in KEYS.iter().filter(|key| family.has(key.section)) {
        file.read_key(root, key, &mut machine)?;
    }
    Ok(machine)
}

impl File<'_> {
    fn error(&self, at: usize, kind: MachineErrorKind) -> MachineError {
        let line = 1 + self.text.get(..at).unwrap_or(self.text).matches('\n').count();
        kind.located_at(format!("{}:{line}", self.name))
    }

    /// Checks that the file has no unknown sections and keys; the error is about the first one.
    fn check_sections(&self, root: &DeTable<'_>, family: Family) -> Outcome<()> {
        let mut wrong: Vec<(usize, MachineErrorKind)> = Vec::new();
        for (key, value) in root {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            match value.get_ref() {
                _ if name == "name" || name == "about" => {}
                _ if sections().contains(&name) && !family.has(name) => {
                    wrong.push((at, MachineErrorKind::Section(name.to_owned())));
                }
                DeValue::Table(table) if sections().contains(&name) => {
                    for inner in table.keys() {
                        let known =
                            KEYS.iter().any(|k| k.section == name && k.name == inner.get_ref().as_ref());
                        if !known {
                            wrong.push((
                                inner.span().start,
                                MachineErrorKind::unknown_key(name, inner.get_ref()),
                            ));
                        }
                    }
                }
                _ if sections().contains(&name) => {
                    wrong.push((at, MachineErrorKind::NoSection(name.to_owned())));
                }
                _ => wrong.push((at, MachineErrorKind::Section(name.to_owned()))),
            }
        }
        match wrong.into_iter().min_by_key(|(at, _)| *at) {
            Some((at, what)) => Err(self.error(at, what)),
            None => Ok(()),
        }
    }

    fn title(&self, root: &DeTable<'_>, key: &'static str) -> Outcome<String> {
        match root.get(key) {
            Some(value) => self.string(value, key),
            None => Err(self.error(0, MachineErrorKind::NoTitle(key))),
        }
    }

    fn string(&self, value: &Value<'_>, what: &str) -> Outcome<String> {
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Ok(text.to_string()),
            _ => Err(self.error(value.span().start, MachineErrorKind::NoText(what.to_owned()))),
        }
    }

    fn read_key(&self, root: &DeTable<'_>, key: &'static Key, machine: &mut Machine) -> Outcome<()> {
        let section = root.get(key.section);
        let value = match section.map(|s| s.get_ref()) {
            Some(DeValue::Table(table)) => table.get(key.name),
            _ => None,
        };
        let Some(value) = value else {
            let Some(default) = key.default else {
                let at = section.map_or(self.text.len(), |s| s.span().start);
                return Err(self.error(at, MachineErrorKind::Missing(key)));
            };
            (key.set)(&mut machine.params, default);
            return Ok(());
        };
        let at = value.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.error(at, MachineErrorKind::NoTable(key)));
        };
        let Some(value) = table.get("value") else {
            return Err(self.error(at, MachineErrorKind::NoValue(key)));
        };
        (key.set)(&mut machine.params, self.amount(value, key)?);
        let source = self.source(table, at, key)?;
        machine.sources.insert(key.path(), source);
        Ok(())
    }

    fn amount(&self, value: &Value<'_>, key: &'static Key) -> Outcome<Amount> {
        let number = |text: &str| text.replace('_', "").parse().ok().map(Amount::Number);
        let amount = match (key.domain, value.get_ref()) {
            (_, DeValue::Integer(i)) if i.radix() == 10 => number(i.as_str()),
            (_, DeValue::Float(f)) => number(f.as_str()),
            (_, DeValue::Boolean(flag)) => Some(Amount::Flag(*flag)),
            (Domain::Choice(_), DeValue::String(name)) => key.read(name),
            _ => None,
        };
        let written = self.text[value.span()].to_owned();
        let wrong = || self.error(value.span().start, MachineErrorKind::Value { key, written });
        amount.filter(|amount| key.allows(*amount)).ok_or_else(wrong)
    }

    fn source(&self, table: &DeTable<'_>, at: usize, key: &'static Key) -> Outcome<Source> {
        let path = key.path();
        let Some(written) = table.get("source") else {
            return Err(self.error(at, MachineErrorKind::NoSource(key)));
        };
        let name = self.string(written, &format!("the source of '{path}'"))?;
        let Some(&class) = CLASSES.iter().find(|class| class.name == name) else {
            return Err(self.error(written.span().start, MachineErrorKind::Source { key, class: name }));
        };
        for inner in table.keys() {
            let name = inner.get_ref().to_string();
            let known = ["value", "source", class.field].contains(&name.as_str());
            if !(known || class.name == "assumed" && name == RANGE) {
                return Err(self.error(inner.span().start, MachineErrorKind::Field { key, class, name }));
            }
        }
        let Some(reason) = table.get(class.field) else {
            return Err(self.error(at, MachineErrorKind::NoReason { key, class }));
        };
        Ok(match class.name {
            "published" => Source::Published { rows: self.rows(reason, key)? },
            "fitted" => Source::Fitted { rows: self.rows(reason, key)? },
            "datasheet" => Source::Datasheet { doc: self.string(reason, &format!("doc of '{path}'"))? },
            "derived" => Source::Derived { how: self.string(reason, &format!("how of '{path}'"))? },
            "carried" => Source::Carried { from: self.string(reason, &format!("from of '{path}'"))? },
            _ => Source::Assumed {
                why: self.string(reason, &format!("why of '{path}'"))?,
                range: table.get(RANGE).map(|range| self.range(range, key)).transpose()?,
            },
        })
    }

    /// Two permitted values of a key in ascending order.
    fn range(&self, value: &Value<'_>, key: &'static Key) -> Outcome<[f64; 2]> {
        let wrong = || self.error(value.span().start, MachineErrorKind::Range(key));
        let DeValue::Array(list) = value.get_ref() else { return Err(wrong()) };
        let list: &DeArray<'_> = list;
        let ends: Vec<f64> =
            list.iter().map(|end| self.amount(end, key).map(Amount::number)).collect::<Outcome<_>>()?;
        match ends[..] {
            [low, high] if low <= high && matches!(key.domain, Domain::Number { .. }) => Ok([low, high]),
            _ => Err(wrong()),
        }
    }

    fn rows(&self, value: &Value<'_>, key: &'static Key) -> Outcome<Vec<String>> {
        let wrong = |at| self.error(at, MachineErrorKind::Rows(key));
        let DeValue::Array(list) = value.get_ref() else { return Err(wrong(value.span().start)) };
        let list: &DeArray<'_> = list;
        let rows = list.iter().map(|row| match row.get_ref() {
            DeValue::String(id) if is_row(id) => Ok(id.to_string()),
            _ => Err(wrong(row.span().start)),
        });
        let rows: Vec<String> = rows.collect::<Outcome<_>>()?;
        if rows.is_empty() { Err(wrong(value.span().start)) } else { Ok(rows) }
    }
}

/// Whether it has the form of a published row's number: two letters, a dash, three digits.
fn is_row(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() == 6
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2] == b'-'
        && bytes[3..].iter().all(u8::is_ascii_digit)
}
