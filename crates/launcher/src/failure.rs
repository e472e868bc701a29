//! The result of a job: an exit status, or an error.

/// Every rank succeeded.
pub(crate) const OK: u8 = 0;
/// A rank or the launcher failed.
pub(crate) const FAILED: u8 = 1;

/// An exit status as a shell sees it, or an error.
pub type Outcome = Result<u8, Failure>;

/// Why a job could not be started or had to be given up. The text names the problem, its cause and a remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request is invalid: the options or their files have to change.
    #[error("{0}")]
    Usage(String),
    /// The request is valid, but it failed.
    #[error("{0}")]
    Run(String),
}

impl Failure {
    /// A mistake in the command line or in a file that it names.
    pub(crate) fn usage(problem: impl std::fmt::Display) -> Self {
        Self::Usage(problem.to_string())
    }

    /// A failure while the job starts or runs.
    pub(crate) fn run(problem: impl std::fmt::Display) -> Self {
        Self::Run(problem.to_string())
    }
}
