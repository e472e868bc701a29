//! [`Shared`]: the state shared by the world, its nodes and its devices, and how a fiber suspends without holding its
//! lock.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::state::State;
use super::suspend::Suspender;
use crate::spin::{Spin, SpinGuard};

type Objects = BTreeMap<(TypeId, String), Arc<dyn Any + Send + Sync>>;

/// The state shared by the world, its nodes and its devices.
pub(super) struct Shared {
    state: Spin<State>,
    objects: Mutex<Objects>,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: Spin::new(State::new(seed)), objects: Mutex::new(Objects::new()) }
    }

    /// Locks the state. One thread at a time uses it, so this never waits. A fiber that panicked inside has left
    /// nothing half done.
    pub(super) fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }

    /// The object of this type and name that the whole world shares; created by the first call.
    ///
    /// # Panics
    /// If `make` requests a shared object itself.
    pub(super) fn object<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let key = (TypeId::of::<T>(), name.to_owned());
        let mut objects = self.objects.try_lock().expect("shared objects are made one at a time");
        let object = objects.entry(key).or_insert_with(|| make()).clone();
        object.downcast().unwrap_or_else(|_| unreachable!("the key names the type"))
    }

    /// Drops the objects that hold references to this world.
    pub(super) fn end(&self) {
        let objects = std::mem::take(&mut *self.objects.lock().unwrap_or_else(PoisonError::into_inner));
        let handlers = std::mem::take(&mut self.lock().handlers);
        drop((objects, handlers));
    }

    /// Waits until the world's clock reaches that of the running fiber. Does nothing in an event.
    pub(super) fn sync(&self) {
        self.synced();
    }

    /// As [`Shared::sync`]; returns the locked state at that time.
    pub(super) fn synced(&self) -> SpinGuard<'_, State> {
        let mut state = self.lock();
        let running = state.current.filter(|_| !state.ending);
        if let Some(fiber) = running.filter(|&fiber| !state.catch_up(fiber)) {
            self.suspend(state, fiber);
            return self.lock();
        }
        state
    }

    /// Gives up control until the fiber is resumed.
    pub(super) fn suspend(&self, mut state: SpinGuard<'_, State>, fiber: usize) {
        let suspender: Option<Suspender> = state.fibers[fiber].suspender.clone();
        state.fibers[fiber].suspended_at = std::ptr::from_ref(&suspender).addr();
        drop(state);
        if let Some(suspender) = suspender {
            suspender.suspend();
        }
    }
}
