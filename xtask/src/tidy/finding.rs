//! [`Finding`]: a breach of a rule.

use std::fmt;

/// A breach of a rule, at a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) rule: &'static str,
    pub(super) what: String,
    /// The function and its lines, or the file's lines: an exception may permit them.
    pub(super) length: Option<(String, usize)>,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into(), length: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.path, self.line, self.what, self.rule)
    }
}
