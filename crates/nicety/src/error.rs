//! The result of a command: an exit status, or one line on standard error with the problem, its cause and a remedy.

use results::plain;

/// Success; in a comparison: the same or better.
pub(crate) const OK: u8 = 0;
/// A run failed, or a comparison found something worse.
pub(crate) const FAILED: u8 = 1;
/// The command line or its files are invalid.
pub(crate) const USAGE: u8 = 2;
/// Nothing is worse, but a result is undecided, or in only one file (`compare --strict`).
pub(crate) const UNSURE: u8 = 3;

/// The program to run exists but cannot be executed; the status that shells and env(1) use.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program to run does not exist; the status that shells and env(1) use.
pub(crate) const NOT_FOUND: u8 = 127;

/// An exit status, or an error.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why a command failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One line for each problem, without the program's name.
    pub(crate) lines: Vec<String>,
    /// Exit status.
    pub(crate) status: u8,
}

impl Failure {
    /// The request is invalid.
    pub(crate) fn usage(problem: impl std::fmt::Display) -> Self {
        Self { lines: vec![visible_line(&problem.to_string())], status: USAGE }
    }

    /// The request is valid, but it failed.
    pub(crate) fn run(problem: impl std::fmt::Display) -> Self {
        Self { lines: vec![visible_line(&problem.to_string())], status: FAILED }
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

/// The text in one line, with the characters escaped that a terminal would act on, colours included: a problem quotes
/// what the user, a file or a peer wrote.
fn visible_line(text: &str) -> String {
    plain::screen(&one_line(text), false).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_with_a_colour_shows_it_escaped() {
        let failure = Failure::usage("'\x1b[31mred' is not a whole number");
        assert_eq!(failure.lines, ["'\\u{1b}[31mred' is not a whole number"]);
    }

    #[test]
    fn a_problem_is_one_line() {
        let failure = Failure::run("cannot do it:\n  no reason\n");
        assert_eq!(failure.lines, ["cannot do it: no reason"]);
        assert_eq!(failure.status, FAILED);
    }
}
