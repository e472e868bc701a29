//! [`EventHandler`]: a device or network, which handles events.

use crate::Time;

/// A device or network: called when an event that it has put into the queue is due.
pub trait EventHandler: Send + Sync {
    /// Handles the event with this token, which is due at `now`. Runs outside of all fibers: it may change what fibers
    /// see and [`signal`](super::Node::signal) their nodes, and must not wait.
    fn on_event(&self, now: Time, token: u64);
}

/// The number of an event handler in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerId(pub(super) usize);
