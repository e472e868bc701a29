//! Reading a result file: every way it can be wrong is its own error.

use std::path::Path;

use serde_json::{Value, error::Category};
use verbs::host::bounded;

use super::run::{Run, SCHEMA, SCHEMA_KIND, SCHEMA_VERSION};

/// Bytes of a result file at most. A run of all experiments with all samples has some megabytes.
const FILE_MAX: u64 = 256 << 20;

/// Why a result file cannot be used; each message says what, why and what to do, in one line.
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
        /// What is wrong, with line and column.
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
    let value: Value = serde_json::from_str(text).map_err(|e| classify(&e, text, name))?;
    match value.get("schema") {
        Some(Value::String(found)) => match version(found) {
            Some(1) => {}
            Some(found) if found > u64::from(SCHEMA_VERSION) => return Err(ReadError::Newer { path, found }),
            _ => return Err(ReadError::WrongKind { path, found: short(&format!("{found:?}")) }),
        },
        Some(other) => return Err(ReadError::WrongKind { path, found: short(&other.to_string()) }),
        None => return Err(ReadError::WrongKind { path, found: "absent".to_owned() }),
    }
    // From the text and not from the value: the error then has a line and a column.
    serde_json::from_str(text).map_err(|e| classify(&e, text, name))
}

/// The number after `nicety-results/`; `None` for other kinds.
fn version(schema: &str) -> Option<u64> {
    schema.strip_prefix(SCHEMA_KIND)?.strip_prefix('/')?.parse().ok()
}

/// Foreign text in a one-line message stays short.
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

/// Whether a position is the end of what looks like an object.
fn at_end(text: &str, line: usize, column: usize) -> bool {
    let last = text.lines().last().unwrap_or_default();
    text.trim_start().starts_with('{') && line >= text.lines().count() && column >= last.len()
}
