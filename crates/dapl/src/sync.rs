//! Locks of this crate: never held while waiting, and usable after a panic of whoever held them.

use std::sync::{Arc, Mutex, MutexGuard};

/// Locks; what a panicking thread left behind is used as it is, since no change here is made in two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks if nobody else has.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// How many objects use an object: each keeps what [`Uses::add`] gave it.
#[derive(Debug, Default)]
pub(crate) struct Uses(Arc<()>);

/// Kept by an object that uses another.
pub(crate) type Use = Arc<()>;

impl Uses {
    /// One more user.
    pub(crate) fn add(&self) -> Use {
        self.0.clone()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.count() > 0
    }
}
