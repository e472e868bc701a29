//! [`QpActions`]: actions that a queue pair requests from the thread that handles its completions.

/// Actions that a completion requires in addition to its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QpActions {
    /// The queue pair must fail.
    pub(crate) failure: bool,
    /// The lane has failed.
    pub(crate) lane_failure: bool,
    /// A lane has failed before, and this completion may let the failover finish.
    pub(crate) failover: bool,
    /// Requests wait for completions: the rails' queues must be armed.
    pub(crate) needs_arming: bool,
}
