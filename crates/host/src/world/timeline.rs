//! [`Timeline`]: the clock and event queue of a world, for devices.

use std::any::Any;
use std::sync::Arc;

use super::event_handler::{EventHandler, HandlerId};
use super::queue::Event;
use super::shared::Shared;
use crate::Time;

/// The clock and the event queue of a world; cheap to clone.
#[derive(Clone)]
pub struct Timeline(pub(super) Arc<Shared>);

impl Timeline {
    /// The current clock: the running fiber's, or the world's in an event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.lock().clock()
    }

    /// The world's clock: all earlier events have been handled.
    #[must_use]
    pub fn world_now(&self) -> Time {
        self.0.lock().now
    }

    /// The seed of all randomness in this world.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.lock().seed
    }

    /// Adds an event handler.
    pub fn add_handler(&self, handler: Arc<dyn EventHandler>) -> HandlerId {
        let mut state = self.0.lock();
        state.handlers.push(handler);
        HandlerId(state.handlers.len() - 1)
    }

    /// Schedules a call of the handler with `token` at `at`, or now if that has passed; calls at equal times run in the
    /// order in which they were scheduled.
    pub fn schedule(&self, at: Time, handler: HandlerId, token: u64) {
        self.0.lock().push(at, Event::Handle { handler: handler.0, token });
    }

    /// The object of this type and name that the whole world shares, such as a network; created by the first call.
    ///
    /// # Panics
    /// If `make` requests a shared object itself.
    pub fn shared_object<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        self.0.object(name, make)
    }
}
