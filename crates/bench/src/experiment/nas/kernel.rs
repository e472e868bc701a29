//! [`Solve`]: a kernel as the experiment sees it: how large its problem is, a run, what that gave.

use verbs::host::Span;

use super::super::Fault;
use super::job::Job;
use results::variant::{Variant, factor};

/// How large a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    S,
    W,
    A,
    B,
}

pub(super) const CLASSES: [(&str, Class); 4] =
    [("S", Class::S), ("W", Class::W), ("A", Class::A), ("B", Class::B)];

impl Class {
    /// That of a variant, if it names one.
    pub(super) fn of(variant: &Variant) -> Option<Self> {
        let name = variant.get(factor::CLASS)?;
        CLASSES.into_iter().find(|(known, _)| *known == name).map(|(_, class)| class)
    }
}

/// What a run of a kernel gave.
pub(super) struct Outcome {
    /// What the slowest rank took.
    pub(super) spent: Span,
    /// Operations of all ranks, as NAS counts them.
    pub(super) operations: f64,
}

/// One rank of a kernel with its problem.
pub(super) trait Solve {
    /// The kernel from its untimed beginning to the check of its result, with all other ranks.
    ///
    /// # Errors
    /// [`Fault::Corrupt`] for a result that is not the published one; MPI's.
    fn run(&mut self) -> Result<Outcome, Fault>;

    /// The rank in its job.
    fn job(&self) -> &Job;
}
