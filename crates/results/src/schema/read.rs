//! Reading a result file: every way it can be wrong is its own error.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use host::bounded;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::plain::{self, Numbers};

use super::run::{Run, SCHEMA, SCHEMA_KIND, SCHEMA_VERSION};

/// Maximum bytes of a result file. A run of all experiments with all samples has some megabytes.
const FILE_MAX: u64 = 256 << 20;

/// Maximum results of a file.
pub const RESULTS_MAX: usize = 1 << 16;
/// Maximum curves of a file: each is drawn, and compared with all others.
pub const CURVES_MAX: usize = 1 << 12;
/// Maximum devices of all results: the floors of the machine add devices that a plan does not name.
const DEVICES_MAX: usize = 128;
/// Maximum launches of a result.
const LAUNCHES_MAX: usize = 1000;
/// Maximum intervals of time of all launches of a result.
const INTERVALS_MAX: usize = 1 << 17;
/// Maximum names of factors.
const FACTORS_MAX: usize = 256;
/// Maximum parameters, warnings, devices and peers.
const NOTES_MAX: usize = 1024;

/// Why a result file cannot be used; each message has the problem, the cause and the remedy, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file system refused.
    #[error("cannot open result file {path}: {source}; check the path, and whether --json wrote the file")]
    Open {
        /// File.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The JSON ends too early.
    #[error("cannot read {path}: it is cut off at line {line}; copy the whole file again or measure again")]
    Truncated {
        /// File.
        path: String,
        /// Last line.
        line: usize,
    },
    /// Not JSON at all.
    #[error("cannot read {path}: not JSON at line {line}, column {column}; give a file written by --json")]
    NotJson {
        /// File.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// JSON of another kind.
    #[error("cannot use {path}: its schema is {found}, not {SCHEMA}; give a file written by --json")]
    WrongKind {
        /// File.
        path: String,
        /// The `schema` found, or `absent`.
        found: String,
    },
    /// Written by a later program.
    #[error(
        "cannot use {path}: schema version {found} is newer than {SCHEMA_VERSION}; read it with a newer nicety"
    )]
    Newer {
        /// File.
        path: String,
        /// The version found.
        found: u64,
    },
    /// Right kind and version, wrong content.
    #[error("cannot use {path}: {reason}; the file was changed by hand or damaged, measure again")]
    Invalid {
        /// File.
        path: String,
        /// The mistake, with line and column.
        reason: String,
    },
}

impl Run {
    /// Reads the text of a result file.
    ///
    /// # Errors
    /// See [`ReadError`]; the path in messages is `the given text`.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        parse(text, "the given text")
    }

    /// Reads a result file.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let name = path.as_ref().display().to_string();
        let bytes = bounded::read(&path, FILE_MAX)
            .map_err(|source| ReadError::Open { path: name.clone(), source })?;
        match String::from_utf8(bytes) {
            Ok(text) => parse(&text, &name),
            Err(bad) => Err(not_text(bad.as_bytes(), bad.utf8_error(), name)),
        }
    }
}

/// Bytes that are no text are either another kind of file or a file cut inside a character.
fn not_text(bytes: &[u8], error: std::str::Utf8Error, path: String) -> ReadError {
    let good = &bytes[..error.valid_up_to()];
    let line = 1 + good.iter().filter(|b| **b == b'\n').count();
    let column = 1 + good.iter().rev().take_while(|b| **b != b'\n').count();
    match error.error_len() {
        None => ReadError::Truncated { path, line },
        Some(_) => ReadError::NotJson { path, line, column },
    }
}

fn parse(text: &str, name: &str) -> Result<Run, ReadError> {
    let path = name.to_owned();
    let SchemaField(schema) = serde_json::from_str(text).map_err(|e| classify(&e, text, name))?;
    let schema = schema.map_or("absent", RawValue::get);
    match serde_json::from_str::<String>(schema).ok().and_then(|text| version(&text)) {
        Some(1) => {}
        Some(found) if found > u64::from(SCHEMA_VERSION) => return Err(ReadError::Newer { path, found }),
        _ => return Err(ReadError::WrongKind { path, found: short(&plain::line(schema)) }),
    }
    let run: Run =
        plain::from_file(text.as_bytes(), Numbers::Measured).map_err(|e| classify(&e, text, name))?;
    check_counts(&run).map_err(|reason| ReadError::Invalid { path, reason })?;
    Ok(run)
}

/// Refuses more than a report or a comparison can go through in a reasonable time.
fn check_counts(run: &Run) -> Result<(), String> {
    let results = || run.results.iter();
    let launches = results().map(|result| result.launches.len()).max().unwrap_or(0);
    let intervals = results().map(|r| r.launches.iter().map(|l| l.intervals.len()).sum::<usize>()).max();
    let devices: BTreeSet<&str> = results().map(|r| r.device.as_str()).collect();
    let curves: BTreeSet<_> =
        results().map(|r| (&r.experiment, &r.device, &r.variant, &r.metric, &r.unit)).collect();
    let factors: BTreeSet<&str> = results().flat_map(|r| r.variant.iter().map(|(name, _)| name)).collect();
    let counts = [
        ("results", run.results.len(), RESULTS_MAX),
        ("devices with results", devices.len(), DEVICES_MAX),
        ("curves", curves.len(), CURVES_MAX),
        ("factors", factors.len(), FACTORS_MAX),
        ("results that are missing", run.missing.len(), RESULTS_MAX),
        ("launches of a result", launches, LAUNCHES_MAX),
        ("intervals of a result", intervals.unwrap_or(0), INTERVALS_MAX),
        ("parameters", run.parameters.len(), NOTES_MAX),
        ("warnings", run.environment.warnings.len(), NOTES_MAX),
        ("devices", run.environment.devices.len(), NOTES_MAX),
        ("peers", run.environment.peers.len(), NOTES_MAX),
    ];
    match counts.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(format!("{count} {what} are too many, {most} is the limit")),
        None => Ok(()),
    }
}

/// The `schema` field of a JSON object, if any. Everything else is discarded.
struct SchemaField<'a>(Option<&'a RawValue>);

impl<'de> Deserialize<'de> for SchemaField<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Option<&'de RawValue>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
                let mut schema = None;
                while let Some(key) = object.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "schema" => schema = Some(object.next_value()?),
                        _ => drop(object.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(schema)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(None)
            }

            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(None)
            }
        }
        from.deserialize_any(Fields).map(Self)
    }
}

/// The number after `nicety-results/`; `None` for other kinds.
fn version(schema: &str) -> Option<u64> {
    schema.strip_prefix(SCHEMA_KIND)?.strip_prefix('/')?.parse().ok()
}

/// Untrusted text in a one-line message stays short.
fn short(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { cut }
}

fn classify(error: &serde_json::Error, text: &str, name: &str) -> ReadError {
    let (path, line, column) = (name.to_owned(), error.line(), error.column());
    match error.classify() {
        Category::Eof => ReadError::Truncated { path, line },
        // A number cut after its point is called malformed, but nothing follows it.
        Category::Syntax if at_end(text, line, column) => ReadError::Truncated { path, line },
        Category::Syntax | Category::Io => ReadError::NotJson { path, line, column },
        Category::Data => ReadError::Invalid { path, reason: error.to_string().replace('\n', " ") },
    }
}

/// Whether a position is the end of an apparent object.
fn at_end(text: &str, line: usize, column: usize) -> bool {
    let last = text.lines().last().unwrap_or_default();
    text.trim_start().starts_with('{') && line >= text.lines().count() && column >= last.len()
}
