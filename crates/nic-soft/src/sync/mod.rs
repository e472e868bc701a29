//! The lock-free parts, small and separate, each checked with loom (`RUSTFLAGS="--cfg loom"`).

mod atomics;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod heed;
pub(crate) mod knock;
pub(crate) mod ready;
pub(crate) mod ring;
pub(crate) mod roll;
pub(crate) mod shared_queue;
pub(crate) mod stage;

pub(crate) use host::Spin;

/// Locks a mutex that nobody leaves half-way through a change, so that what a panic elsewhere has poisoned is whole.
#[cfg(not(loom))]
pub(crate) fn unpoisoned<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
