//! [`State`]: what a child does when it is killed.

use anyhow::{Context, Result};

/// What a child does when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
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
pub(super) const STATES: &[State] = &[
    State::Both,
    State::Connecting,
    State::Initiator,
    State::Target,
    State::Listening,
    State::Connecting,
    State::Accepting,
    State::Both,
    State::Registering,
    State::Atomics,
    State::Idle,
    State::Accepting,
    State::Sleeping,
];

impl State {
    /// The state of that name.
    pub(super) fn of(name: &str) -> Result<Self> {
        STATES.iter().copied().find(|state| format!("{state:?}") == name).context("no such state")
    }
}
