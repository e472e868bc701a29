//! What a queue pair asks of whoever works on it.

/// What a completion asks for beside its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The queue pair fails.
    pub(crate) failure: bool,
    /// The lane has died.
    pub(crate) mourning: bool,
    /// A lane has died before, and this may have been what was missing.
    pub(crate) mending: bool,
    /// Requests wait for completions: somebody is to look after them.
    pub(crate) attention: bool,
}
