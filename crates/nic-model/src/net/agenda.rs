//! [`Agenda`]: what the network puts into its world's event queue.

use host::Time;
use host::world::{ActorId, Timeline};

use super::event::Event;

/// The event queue of the world, as the network uses it.
pub(super) struct Agenda {
    timeline: Timeline,
    actor: Option<ActorId>,
}

impl Agenda {
    /// An agenda of an actor that is still to be added to its world.
    pub(super) fn new(timeline: Timeline) -> Self {
        Self { timeline, actor: None }
    }

    /// The network has become this actor of its world.
    pub(super) fn begin(&mut self, actor: ActorId) {
        self.actor = Some(actor);
    }

    /// Puts an event into the world's queue.
    pub(super) fn at(&self, at: Time, event: Event) {
        if let Some(actor) = self.actor {
            self.timeline.at(at, actor, event.token());
        }
    }
}
