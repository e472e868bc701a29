//! [`Check`]: what a check found, how bad that is, and the remedy.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing to do.
    Ok,
    /// Numbers are weaker than they could be.
    Warn,
    /// Some measurement fails.
    Bad,
}

impl State {
    /// As in the output.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One check's outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// Its name, the same in all versions.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) state: State,
    /// What was found.
    pub(crate) found: String,
    /// Why that matters, if it is not ok.
    pub(crate) why: Option<String>,
    /// What to do, as a command where there is one.
    pub(crate) remedy: Option<String>,
}

impl Check {
    /// Nothing to do.
    pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, state: State::Ok, found: found.into(), why: None, remedy: None }
    }

    /// Numbers are weaker than they could be: why that matters, and what to do.
    pub(super) fn warn(
        id: &'static str,
        found: impl Into<String>,
        why: &str,
        remedy: impl Into<String>,
    ) -> Self {
        let (why, remedy) = (Some(why.to_owned()), Some(remedy.into()));
        Self { id, state: State::Warn, found: found.into(), why, remedy }
    }

    /// Some measurement fails: which, and what to do.
    pub(super) fn bad(
        id: &'static str,
        found: impl Into<String>,
        why: &str,
        remedy: impl Into<String>,
    ) -> Self {
        Self { state: State::Bad, ..Self::warn(id, found, why, remedy) }
    }
}
