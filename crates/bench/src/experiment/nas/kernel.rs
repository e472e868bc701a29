//! [`Solve`]: a kernel as the experiment sees it: the size of its problem, a run, and its outcome.

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
    /// The kernel or class of a variant, if it names one.
    pub(super) fn of(variant: &Variant) -> Option<Self> {
        let name = variant.get(factor::CLASS)?;
        CLASSES.into_iter().find(|(known, _)| *known == name).map(|(_, class)| class)
    }
}

/// The outcome of a kernel's run.
pub(super) struct Outcome {
    /// The time of the slowest rank.
    pub(super) spent: Span,
    /// Operations of all ranks, as NAS counts them.
    pub(super) operations: f64,
}

/// One rank of a kernel with its problem.
pub(super) trait Solve {
    /// Runs the kernel with all other ranks, from its untimed beginning to the check of its result.
    ///
    /// # Errors
    /// [`Fault::Corrupt`] for a result that differs from the published one; MPI's.
    fn run(&mut self) -> Result<Outcome, Fault>;

    /// The rank in its job.
    fn job(&self) -> &Job;
}
