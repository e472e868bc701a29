//! A lock that may be held while a rail is posted to. In virtual time that may let other ranks of the same thread run, who
//! then have to wait as ranks do, and not as threads.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use host::Host;

pub(super) struct Gate<T> {
    inner: Mutex<T>,
    /// A rank waits for it.
    awaited: AtomicBool,
}

impl<T> Gate<T> {
    pub(super) fn new(value: T) -> Self {
        Self { inner: Mutex::new(value), awaited: AtomicBool::new(false) }
    }

    /// # Panics
    /// When the world ends before whoever holds it lets go of it.
    pub(super) fn lock<'a>(&'a self, host: &'a Host) -> Held<'a, T> {
        let guard = match host.node() {
            // Nothing panics while it holds one of these locks half-way through a change.
            None => self.inner.lock().unwrap_or_else(|e| e.into_inner()),
            Some(node) => {
                let mut waited = false;
                let look = || match self.inner.try_lock() {
                    Ok(guard) => Some(guard),
                    Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
                    Err(TryLockError::WouldBlock) => {
                        self.awaited.store(true, Ordering::Relaxed);
                        waited = true;
                        None
                    }
                };
                let guard = host.poll("a queue pair of rails", None, look).expect("the world goes on");
                if waited {
                    // What came meanwhile is news for whoever waits around this.
                    node.signal();
                }
                guard
            }
        };
        Held { guard: Some(guard), awaited: &self.awaited, host }
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(|e| e.into_inner())
    }
}

/// What is locked, until dropped.
pub(super) struct Held<'a, T> {
    guard: Option<MutexGuard<'a, T>>,
    awaited: &'a AtomicBool,
    host: &'a Host,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(node) = self.host.node().filter(|_| self.awaited.swap(false, Ordering::Relaxed)) {
            node.signal();
        }
    }
}
