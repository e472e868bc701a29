//! [`EventQueue`]: schedules the network's events in its world's event queue.

use host::Time;
use host::world::{ActorId, Timeline};

use super::event::Event;

/// The world's event queue, as used by the network.
pub(super) struct EventQueue {
    timeline: Timeline,
    actor: Option<ActorId>,
}

impl EventQueue {
    /// An event queue whose network is not yet an event handler of its world.
    pub(super) fn new(timeline: Timeline) -> Self {
        Self { timeline, actor: None }
    }

    /// Records the network's number among the world's event handlers.
    pub(super) fn set_actor(&mut self, actor: ActorId) {
        self.actor = Some(actor);
    }

    /// Schedules an event.
    pub(super) fn schedule(&self, at: Time, event: Event) {
        if let Some(actor) = self.actor {
            self.timeline.at(at, actor, event.token());
        }
    }
}
