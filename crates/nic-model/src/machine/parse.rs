//! From the text of a machine file to its values and where each comes from, with errors that name the line.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{MachineError, distance, sections, unknown_key, unknown_section};
use super::keys::{KEYS, Key, Params};
use super::{Machine, Source};

type Outcome<T> = Result<T, MachineError>;
type Value<'a> = Spanned<DeValue<'a>>;

/// A file while it is read.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

/// Reads a machine file; `name` is for errors.
pub(super) fn parse(name: &str, text: &str) -> Outcome<Machine> {
    let file = File { name, text };
    let document = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        file.error(at, format!("this is not TOML: {}", e.message()))
    })?;
    let root = document.get_ref();
    file.check_sections(root)?;
    let mut machine = Machine {
        name: file.title(root, "name")?,
        about: file.title(root, "about")?,
        params: Params::default(),
        sources: BTreeMap::new(),
    };
    for key in KEYS {
        file.read_key(root, key, &mut machine)?;
    }
    Ok(machine)
}

impl File<'_> {
    fn error(&self, at: usize, what: String) -> MachineError {
        let line = 1 + self.text.get(..at).unwrap_or(self.text).matches('\n').count();
        MachineError { place: format!("{}:{line}", self.name), what }
    }

    /// Nothing unknown stands in the file. The first such thing is what the error is about.
    fn check_sections(&self, root: &DeTable<'_>) -> Outcome<()> {
        let mut wrong: Vec<(usize, String)> = Vec::new();
        for (key, value) in root {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            match value.get_ref() {
                _ if name == "name" || name == "about" => {}
                DeValue::Table(table) if sections().contains(&name) => {
                    for inner in table.keys() {
                        let known =
                            KEYS.iter().any(|k| k.section == name && k.name == inner.get_ref().as_ref());
                        if !known {
                            wrong.push((inner.span().start, unknown_key(name, inner.get_ref())));
                        }
                    }
                }
                _ if sections().contains(&name) => {
                    wrong.push((at, format!("'{name}' must be a section: write [{name}]")));
                }
                _ => wrong.push((at, unknown_section(name))),
            }
        }
        match wrong.into_iter().min() {
            Some((at, what)) => Err(self.error(at, what)),
            None => Ok(()),
        }
    }

    fn title(&self, root: &DeTable<'_>, key: &str) -> Outcome<String> {
        match root.get(key) {
            Some(value) => self.string(value, key),
            None => {
                Err(self.error(0, format!("'{key}' is missing: expected a line {key} = \"...\" at the top")))
            }
        }
    }

    fn string(&self, value: &Value<'_>, what: &str) -> Outcome<String> {
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Ok(text.to_string()),
            _ => {
                Err(self.error(value.span().start, format!("{what} must be a text in quotes, and not empty")))
            }
        }
    }

    fn read_key(&self, root: &DeTable<'_>, key: &Key, machine: &mut Machine) -> Outcome<()> {
        let section = root.get(key.section);
        let value = match section.map(|s| s.get_ref()) {
            Some(DeValue::Table(table)) => table.get(key.name),
            _ => None,
        };
        let Some(value) = value else {
            let Some(default) = key.default else {
                let at = section.map_or(self.text.len(), |s| s.span().start);
                let what =
                    format!("'{}' is missing: {}; expected {}", key.path(), key.meaning, key.expected());
                return Err(self.error(at, what));
            };
            (key.set)(&mut machine.params, default);
            return Ok(());
        };
        let at = value.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            let form = "{ value = ..., source = \"...\", ... }";
            return Err(self.error(at, format!("'{}' must be a table: write {form}", key.path())));
        };
        let Some(number) = table.get("value") else {
            return Err(self.error(at, format!("'{}' has no value: expected {}", key.path(), key.expected())));
        };
        let amount = self.number(number, key)?;
        (key.set)(&mut machine.params, amount);
        let source = self.source(table, at, key)?;
        machine.sources.insert(key.path(), source);
        Ok(())
    }

    fn number(&self, value: &Value<'_>, key: &Key) -> Outcome<f64> {
        let amount = match value.get_ref() {
            DeValue::Integer(i) if i.radix() == 10 => i.as_str().replace('_', "").parse::<f64>().ok(),
            DeValue::Float(f) => f.as_str().replace('_', "").parse::<f64>().ok(),
            _ => None,
        };
        let written = &self.text[value.span()];
        check(key, amount, written).map_err(|what| self.error(value.span().start, what))
    }

    fn source(&self, table: &DeTable<'_>, at: usize, key: &Key) -> Outcome<Source> {
        let path = key.path();
        let Some(class) = table.get("source") else {
            return Err(self.error(at, format!("'{path}' has no source: expected source = {}", classes())));
        };
        let name = self.string(class, &format!("the source of '{path}'"))?;
        let Some((_, field)) = CLASSES.iter().find(|(class, _)| *class == name) else {
            let what = format!("the source of '{path}' is \"{name}\": expected one of {}", classes());
            return Err(self.error(class.span().start, what));
        };
        for inner in table.keys() {
            let inner_name = inner.get_ref().as_ref();
            if !["value", "source", field].contains(&inner_name) {
                let near = if distance(inner_name, field) <= 2 {
                    format!("; did you mean {field}?")
                } else {
                    String::new()
                };
                let what = format!(
                    "'{path}' has an unknown field '{inner_name}'{near}: with source {name} it has value, source and {field}"
                );
                return Err(self.error(inner.span().start, what));
            }
        }
        let Some(reason) = table.get(*field) else {
            return Err(self.error(at, format!("'{path}' is {name} and has no {field}: {}", want(field))));
        };
        Ok(match name.as_str() {
            "published" => Source::Published { rows: self.rows(reason, &path)? },
            "fitted" => Source::Fitted { rows: self.rows(reason, &path)? },
            "datasheet" => Source::Datasheet { doc: self.string(reason, &format!("doc of '{path}'"))? },
            "derived" => Source::Derived { how: self.string(reason, &format!("how of '{path}'"))? },
            _ => Source::Assumed { why: self.string(reason, &format!("why of '{path}'"))? },
        })
    }

    fn rows(&self, value: &Value<'_>, path: &str) -> Outcome<Vec<String>> {
        let wrong =
            |at| self.error(at, format!("rows of '{path}' must be a list such as [\"NM-003\"], not empty"));
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

/// The classes of sources, each with the field that goes with it.
const CLASSES: [(&str, &str); 5] =
    [("published", "rows"), ("datasheet", "doc"), ("derived", "how"), ("fitted", "rows"), ("assumed", "why")];

fn classes() -> String {
    CLASSES.map(|(class, field)| format!("\"{class}\" (with {field})")).join(", ")
}

fn want(field: &str) -> &'static str {
    match field {
        "rows" => "expected rows = [\"NM-003\"], the numbers of published rows",
        "doc" => "expected doc = \"...\", the document and its section",
        "how" => "expected how = \"...\", the arithmetic",
        _ => "expected why = \"...\", the reason",
    }
}

/// Whether it looks like a published row's number: two letters, a dash, three digits.
fn is_row(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() == 6
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2] == b'-'
        && bytes[3..].iter().all(u8::is_ascii_digit)
}

/// The amount, if the key may have it. `written` is for the error.
pub(super) fn check(key: &Key, amount: Option<f64>, written: &str) -> Result<f64, String> {
    let fits =
        |v: &f64| v.is_finite() && *v >= key.min && *v <= key.max && !(key.is_whole() && v.fract() != 0.0);
    amount.filter(fits).ok_or_else(|| {
        format!("'{}' is {}: expected {} ({})", key.path(), written.trim(), key.expected(), key.meaning)
    })
}
