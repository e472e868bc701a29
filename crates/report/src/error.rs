//! [`ReportError`]: why there is no report.

use results::schema::WriteError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// No run was given.
    #[error("cannot make a report: no run was given; give at least one result file")]
    NoRun,
    /// A run cannot be embedded as data.
    #[error(transparent)]
    Data(#[from] WriteError),
}
