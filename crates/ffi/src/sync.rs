//! The primitives of the handle table: loom's under its model checker, the standard library's otherwise; and [`lock`], for all C ABIs.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
};

/// A cell with loom's interface: access is limited to a closure.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, body: impl FnOnce(*const T) -> R) -> R {
        body(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
        body(self.0.get())
    }
}

/// Locks a mutex and ignores poisoning: no change under these locks is made in two steps.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
