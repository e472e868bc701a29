//! [`Case`]: one test against third-party programs.

use anyhow::Result;

/// A passed case, with the observed results.
pub(crate) struct Verdict(pub(crate) String);

/// One test, with the environment `P` that its party needs.
pub(crate) struct Case<P: 'static> {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// A one-line description.
    pub(crate) shows: &'static str,
    /// Runs the test.
    pub(crate) run: fn(&mut P) -> Result<Verdict>,
}
