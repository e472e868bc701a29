//! [`Actor`]: a device or a network, which events call.

use crate::Time;

/// A device or a network: is called when an event that it put into the queue is due.
pub trait Actor: Send + Sync {
    /// It is `now`, and the event with this token is due. Runs outside of all ranks: it may change what ranks see and
    /// [`signal`](super::Node::signal) their nodes, and must not wait.
    fn event(&self, now: Time, token: u64);
}

/// An actor's number in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorId(pub(super) usize);
