//! [`Activity`]: what a child does when it is killed.

use anyhow::{Context, Result};

/// What a child does when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It listens, and nobody connects.
    Listening,
    /// It makes connections, uses them, and ends them in one way or another.
    Connecting,
    /// It accepts connections, uses them, and ends them.
    Accepting,
    /// It registers memory, writes from it, and deregisters it.
    Registering,
    /// Both ends send, only the child does, or only the survivor does.
    Both,
    Initiator,
    Target,
    /// It executes atomics on the survivor's memory while the survivor destroys its queue pair.
    Atomics,
    /// It is connected and idle, or sleeps until a message arrives.
    Idle,
    Sleeping,
}

/// All states. States with much activity appear more often.
pub(super) const ACTIVITIES: &[Activity] = &[
    Activity::Both,
    Activity::Connecting,
    Activity::Initiator,
    Activity::Target,
    Activity::Listening,
    Activity::Connecting,
    Activity::Accepting,
    Activity::Both,
    Activity::Registering,
    Activity::Atomics,
    Activity::Idle,
    Activity::Accepting,
    Activity::Sleeping,
];

impl Activity {
    /// The state of that name.
    pub(super) fn from_name(name: &str) -> Result<Self> {
        ACTIVITIES.iter().copied().find(|state| format!("{state:?}") == name).context("no such state")
    }
}
