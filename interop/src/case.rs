//! [`Case`]: something to be shown against others' programs.

use anyhow::Result;

/// That a case holds, with what was seen.
pub(crate) struct Verdict(pub(crate) String);

/// Something to be shown with what a party `P` needs.
pub(crate) struct Case<P: 'static> {
    /// How it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows, in a line.
    pub(crate) shows: &'static str,
    /// Shows it.
    pub(crate) run: fn(&mut P) -> Result<Verdict>,
}
