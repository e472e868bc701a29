//! Lock-free parts, small and separate, each checked with loom (`RUSTFLAGS="--cfg loom"`). Some serve one NIC
//! only: they are here because models are built without anything else, and one crate is enough for that.

pub mod adaptive_fence;
pub mod asymmetric_notify;
mod atomics;
pub mod combining_lock;
pub mod fence;
pub mod guard;
pub mod reader_registry;
pub mod ready;
pub mod ring;
pub mod shared_queue;

pub use host::Spin;

/// Locks a mutex and ignores poisoning: no thread leaves its value half-changed, so that it is consistent
/// after a panic elsewhere.
#[cfg(not(loom))]
#[inline]
pub fn unpoisoned<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
