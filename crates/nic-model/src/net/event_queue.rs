//! [`EventQueue`]: schedules the network's events in its world's event queue.

use host::Time;
use host::world::{HandlerId, Timeline};

use super::event::Event;

/// The world's event queue, as used by the network.
pub(super) struct EventQueue {
    timeline: Timeline,
    handler: Option<HandlerId>,
}

impl EventQueue {
    /// An event queue whose network is not yet an event handler of its world.
    pub(super) fn new(timeline: Timeline) -> Self {
        Self { timeline, handler: None }
    }

    /// Records the network's number among the world's event handlers.
    pub(super) fn set_handler(&mut self, handler: HandlerId) {
        self.handler = Some(handler);
    }

    /// Schedules an event.
    pub(super) fn schedule(&self, at: Time, event: Event) {
        if let Some(handler) = self.handler {
            self.timeline.schedule(at, handler, event.token());
        }
    }
}
