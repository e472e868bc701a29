//! How a command ends: a status, or one line on standard error that says what, why and what to do.

/// Same or better; done.
pub(crate) const OK: u8 = 0;
/// A run failed, or a comparison found something worse.
pub(crate) const FAILED: u8 = 1;
/// The command line or its files cannot be used.
pub(crate) const USAGE: u8 = 2;
/// Nothing is worse, but something cannot be told (`compare --strict`).
pub(crate) const UNSURE: u8 = 3;

/// The program to run exists and cannot be executed; the status that shells and env(1) use.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program to run does not exist; likewise.
pub(crate) const NOT_FOUND: u8 = 127;

/// Status, or why there is none.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why a command could not do its work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One line for each problem, without the program's name.
    pub(crate) lines: Vec<String>,
    /// Exit status.
    pub(crate) status: u8,
}

impl Failure {
    /// The user asked for something that there is not.
    pub(crate) fn usage(problem: impl std::fmt::Display) -> Self {
        Self { lines: vec![one_line(&problem.to_string())], status: USAGE }
    }

    /// What was asked for went wrong.
    pub(crate) fn run(problem: impl std::fmt::Display) -> Self {
        Self { lines: vec![one_line(&problem.to_string())], status: FAILED }
    }
}

impl From<launcher::Failure> for Failure {
    fn from(why: launcher::Failure) -> Self {
        match why {
            launcher::Failure::Usage(problem) => Self::usage(problem),
            launcher::Failure::Run(problem) => Self::run(problem),
        }
    }
}

pub(crate) use bench::plan::one_line;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line() {
        let failure = Failure::run("cannot do it:\n  no reason\n");
        assert_eq!(failure.lines, ["cannot do it: no reason"]);
        assert_eq!(failure.status, FAILED);
    }
}
