//! [`Actor`]: a device or network, which handles events.

use crate::Time;

/// A device or network: called when an event that it has put into the queue is due.
pub trait Actor: Send + Sync {
    /// Handles the event with this token, which is due at `now`. Runs outside of all ranks: it may change what ranks
    /// see and [`signal`](super::Node::signal) their nodes, and must not wait.
    fn event(&self, now: Time, token: u64);
}

/// The number of an actor in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorId(pub(super) usize);
