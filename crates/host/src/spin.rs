//! [`Spin`]: a lock for sections of nanoseconds: one atomic exchange to take, one store to release.
//!
//! Only for threads of one process. A holder may copy a large message, so waiters yield every 64 turns.

use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};

/// A value behind a spin lock, for NICs. Code above them may run in virtual time, where a holder that suspends would
/// leave its waiters spinning for ever; that code uses a [`Lock`](crate::Lock).
#[derive(Debug, Default)]
pub struct Spin<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out one reference at a time. Test: loom_spin_excludes.
unsafe impl<T: Send> Send for Spin<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        #[cfg(not(loom))]
        return self.value.get_mut();
        // SAFETY: the caller has exclusive access. Test: the models of locks that are taken apart.
        #[cfg(loom)]
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let free = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| SpinGuard { lock: self })
    }

    /// Takes the lock; spins until it is free and yields every 64 turns.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> SpinGuard<'_, T> {
        let mut turns = 0_u32;
        loop {
            if !self.held.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            turns = turns.wrapping_add(1);
            if cfg!(loom) || turns.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

/// Exclusive access to the value of a [`Spin`], until dropped.
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a Spin<T>,
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while it holds the lock. Test: threads_exclude_each_other.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(loom)]
impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: as above; loom's cell checks it.
        self.lock.value.with(|p| unsafe { &*p })
    }
}

#[cfg(loom)]
impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; loom's cell checks it.
        self.lock.value.with_mut(|p| unsafe { &mut *p })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_exclude_each_other() {
        let lock = std::sync::Arc::new(Spin::new(0_u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || (0..10_000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
        assert_eq!(*lock.lock(), 40_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_spin_excludes() {
        loom::model(|| {
            let lock = loom::sync::Arc::new(Spin::new(0));
            let other = lock.clone();
            let thread = loom::thread::spawn(move || *other.lock() += 1);
            *lock.lock() += 1;
            thread.join().unwrap();
            assert_eq!(*lock.lock(), 2);
        });
    }
}
