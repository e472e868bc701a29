//! [`State`]: what a child is doing when it is killed.

use anyhow::{Context, Result};

/// What a child is doing when it is killed.
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
    /// Both ends storm; it alone does; the survivor alone does.
    Both,
    Initiator,
    Target,
    /// It carries out atomics on the survivor's memory, which destroys its queue pair at about that time.
    Atomics,
    /// It is connected, and does nothing with it; it sleeps until a message comes.
    Idle,
    Sleeping,
}

/// All of them; those in the middle of much are met more often.
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
