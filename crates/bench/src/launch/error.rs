//! [`BenchError`]: why a run or a server ended, with what was measured until then.

use super::journal::JournalError;
use crate::experiment::Fault;
use results::schema::Run;

/// Why a run or a server ended; what was measured until then is kept.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what}")]
pub struct BenchError {
    /// What, why, and what to do, in one line.
    pub what: String,
    /// Every cell that was finished at least once.
    pub partial: Option<Box<Run>>,
}

impl From<JournalError> for BenchError {
    fn from(why: JournalError) -> Self {
        Self::new(why.to_string())
    }
}

impl From<Fault> for BenchError {
    fn from(why: Fault) -> Self {
        Self::new(why.to_string())
    }
}

impl BenchError {
    /// An error after which there is nothing to keep.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), partial: None }
    }
}
