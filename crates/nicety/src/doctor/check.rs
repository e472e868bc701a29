//! [`Check`]: the outcome of a check, its severity, and a remedy.

use serde::Serialize;

/// The severity of a check's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Nothing to do.
    Ok,
    /// Measurements are less reliable than they could be.
    Warn,
    /// Some measurements fail.
    Bad,
}

impl Severity {
    /// The word in the output.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// Its name, which stays the same in all versions.
    pub(crate) id: &'static str,
    /// The severity.
    pub(crate) state: Severity,
    /// What was found.
    pub(crate) found: String,
    /// Why that matters, unless it is ok.
    pub(crate) why: Option<String>,
    /// What to do, as a command where possible.
    pub(crate) remedy: Option<String>,
}

impl Check {
    /// A check without a problem.
    pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, state: Severity::Ok, found: found.into(), why: None, remedy: None }
    }

    /// Measurements are less reliable: why that matters, and what to do.
    pub(super) fn warn(
        id: &'static str,
        found: impl Into<String>,
        why: &str,
        remedy: impl Into<String>,
    ) -> Self {
        let (why, remedy) = (Some(why.to_owned()), Some(remedy.into()));
        Self { id, state: Severity::Warn, found: found.into(), why, remedy }
    }

    /// Some measurements fail: which, and what to do.
    pub(super) fn bad(
        id: &'static str,
        found: impl Into<String>,
        why: &str,
        remedy: impl Into<String>,
    ) -> Self {
        Self { state: Severity::Bad, ..Self::warn(id, found, why, remedy) }
    }
}
