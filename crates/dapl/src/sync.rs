//! Locks of this crate: never held while waiting, and usable after a panic of their holder.

use std::sync::{Arc, Mutex, MutexGuard};

/// Locks; the state that a panicking thread left is used as it is, since no change here takes two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks if the lock is free.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Counts the users of an object: each user keeps the value from [`UseCount::add`].
#[derive(Debug, Default)]
pub(crate) struct UseCount(Arc<()>);

/// Held by an object that uses another.
pub(crate) type UseGuard = Arc<()>;

impl UseCount {
    /// Adds a user.
    pub(crate) fn add(&self) -> UseGuard {
        self.0.clone()
    }

    /// The number of users.
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Whether there is any user.
    pub(crate) fn any(&self) -> bool {
        self.count() > 0
    }
}
