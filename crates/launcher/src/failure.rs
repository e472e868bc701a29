//! How a job ends: a status, or why there is none.

/// Every rank ended well.
pub(crate) const OK: u8 = 0;
/// A rank failed, or the launcher did.
pub(crate) const FAILED: u8 = 1;

/// A status as a shell sees it, or why there is none.
pub type Outcome = Result<u8, Failure>;

/// Why a job could not be started, or had to be given up. The text says what, why and what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What was asked for cannot be had: the options or their files have to change.
    #[error("{0}")]
    Usage(String),
    /// What was asked for went wrong.
    #[error("{0}")]
    Run(String),
}

impl Failure {
    pub(crate) fn usage(problem: impl std::fmt::Display) -> Self {
        Self::Usage(problem.to_string())
    }

    pub(crate) fn run(problem: impl std::fmt::Display) -> Self {
        Self::Run(problem.to_string())
    }
}
