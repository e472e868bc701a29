//! [`Timeline`]: the clock and event queue of a world, as devices use them.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::factory::Suspender;
use super::queue::Event;
use super::state::State;
use crate::Time;
use crate::spin::{Spin, SpinGuard};

/// A device or a network: is called when an event that it put into the queue is due.
pub trait Actor: Send + Sync {
    /// It is `now`, and the event with this token is due. Runs outside of all ranks: it may change what ranks see and
    /// [`signal`](super::Node::signal) their nodes, and must not wait.
    fn event(&self, now: Time, token: u64);
}

/// An actor's number in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorId(usize);

/// The clock and the event queue of a world; cheap to clone.
#[derive(Clone)]
pub struct Timeline(pub(super) Arc<Shared>);

type Objects = BTreeMap<(TypeId, String), Arc<dyn Any + Send + Sync>>;

/// What the world, its nodes and its devices share.
pub(super) struct Shared {
    state: Spin<State>,
    objects: Mutex<Objects>,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: Spin::new(State::new(seed)), objects: Mutex::new(Objects::new()) }
    }

    /// One thread at a time uses it, so it never waits. A rank that panicked inside has left nothing half done.
    pub(super) fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }

    /// Lets go of what holds on to this world.
    pub(super) fn end(&self) {
        let objects = std::mem::take(&mut *self.objects.lock().unwrap_or_else(PoisonError::into_inner));
        let actors = std::mem::take(&mut self.lock().actors);
        drop((objects, actors));
    }

    /// The world's clock reaches that of the running rank. Does nothing in an event.
    pub(super) fn sync(&self) {
        let mut state = self.lock();
        let Some(rank) = state.current else { return };
        if !state.ending && !state.catch_up(rank) {
            self.suspend(state, rank);
        }
    }

    /// Gives up control until the rank is resumed.
    pub(super) fn suspend(&self, state: SpinGuard<'_, State>, rank: usize) {
        let suspender: Option<Suspender> = state.ranks[rank].suspender.clone();
        drop(state);
        if let Some(suspender) = suspender {
            suspender.suspend();
        }
    }
}

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
        let key = (TypeId::of::<T>(), name.to_owned());
        let mut objects = self.0.objects.try_lock().expect("shared objects are made one at a time");
        let object = objects.entry(key).or_insert_with(|| make()).clone();
        object.downcast().unwrap_or_else(|_| unreachable!("the key names the type"))
    }
}
