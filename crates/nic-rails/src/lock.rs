//! Mutexes of the control path.

use std::sync::{Mutex, MutexGuard};

pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks half-way through a change.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
