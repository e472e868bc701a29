//! Mutexes of the control path.

use std::sync::{Mutex, MutexGuard};

pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of such a lock can panic in the middle of a change.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
