//! [`Timeline`]: the clock and event queue of a world, as devices use them.

use std::any::Any;
use std::sync::Arc;

use super::actor::{Actor, ActorId};
use super::queue::Event;
use super::shared::Shared;
use crate::Time;

/// The clock and the event queue of a world; cheap to clone.
#[derive(Clone)]
pub struct Timeline(pub(super) Arc<Shared>);

impl Timeline {
    /// The clock of whoever runs: of a rank, or of the world in an event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.lock().clock()
    }

    /// The world's clock: no event before it is still to come.
    #[must_use]
    pub fn world_now(&self) -> Time {
        self.0.lock().now
    }

    /// The seed of everything random in this world.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.lock().seed
    }

    /// Adds an actor.
    pub fn add_actor(&self, actor: Arc<dyn Actor>) -> ActorId {
        let mut state = self.0.lock();
        state.actors.push(actor);
        ActorId(state.actors.len() - 1)
    }

    /// Calls the actor with `token` at `at`, or now if that is past; equal times in the order of these calls.
    pub fn at(&self, at: Time, actor: ActorId, token: u64) {
        self.0.lock().push(at, Event::Act { actor: actor.0, token });
    }

    /// The object of this type and name that all of this world share, such as a network; made at the first call.
    ///
    /// # Panics
    /// When `make` asks for a shared object itself.
    pub fn shared<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        self.0.object(name, make)
    }
}
