//! [`Lock`]: a lock that its holder may keep while it calls something that suspends it.
//!
//! In virtual time a post may suspend the fiber that posts, and other fibers of the same thread run meanwhile. These
//! must wait through the host: a fiber that spun for the lock would keep its holder from ever releasing it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Host;
use crate::biased::{BiasedGuard, BiasedLock};

/// A value behind a lock of short sections, for code above the NICs. In real time a caller that finds it taken spins
/// and yields, and it costs what a [`BiasedLock`] does; in virtual time the caller waits in [`Host::poll`].
#[derive(Debug, Default)]
pub struct Lock<T> {
    value: BiasedLock<T>,
    /// A fiber waits for the lock. Always false in real time, where no holder is suspended.
    has_waiters: AtomicBool,
    /// Whether fibers get the lock in the order in which they asked for it.
    is_fair: bool,
    /// Numbers of fibers that have queued for it, and that have been served, so far.
    queued: AtomicU64,
    served: AtomicU64,
}

impl<T> Lock<T> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        let (queued, served) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            value: BiasedLock::new(value),
            has_waiters: AtomicBool::new(false),
            is_fair: false,
            queued,
            served,
        }
    }

    /// A free lock that serves waiters in order in virtual time. Otherwise all attempts of one waiter could fall into
    /// the times when others hold the lock, if these take it again and again. In real time it behaves like any other
    /// lock.
    pub fn fair(value: T) -> Self {
        Self { is_fair: true, ..Self::new(value) }
    }

    /// Takes the lock. One made by [`Lock::fair`] first serves the fibers that have queued for it.
    ///
    /// # Panics
    /// If the world of the caller ends before the holder releases the lock.
    #[inline]
    pub fn lock<'a>(&'a self, host: &'a Host) -> LockGuard<'a, T> {
        if self.is_fair && self.queued.load(Ordering::Relaxed) != self.served.load(Ordering::Relaxed) {
            return self.lock_contended(host);
        }
        match self.value.try_lock() {
            Some(guard) => self.held(guard, host),
            None => self.lock_contended(host),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock<'a>(&'a self, host: &'a Host) -> Option<LockGuard<'a, T>> {
        Some(self.held(self.value.try_lock()?, host))
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn held<'a>(&'a self, guard: BiasedGuard<'a, T>, host: &'a Host) -> LockGuard<'a, T> {
        LockGuard { guard, _notice: WaiterNotice { has_waiters: &self.has_waiters, host } }
    }

    #[cold]
    fn lock_contended<'a>(&'a self, host: &'a Host) -> LockGuard<'a, T> {
        if host.node().is_none() {
            return self.held(self.value.lock(), host);
        }
        let turn = self.queued.fetch_add(1, Ordering::Relaxed);
        let attempt = || {
            let is_next = !self.is_fair || self.served.load(Ordering::Relaxed) == turn;
            let guard = if is_next { self.value.try_lock() } else { None };
            if guard.is_none() {
                self.has_waiters.store(true, Ordering::Relaxed);
            }
            guard
        };
        let guard =
            host.poll("Lock::lock", None, attempt).expect("the holder releases it before the world ends");
        self.served.store(turn + 1, Ordering::Relaxed);
        // Other fibers that wait in an enclosing call check again for what has happened meanwhile.
        host.signal();
        self.held(guard, host)
    }
}

/// Exclusive access to the value of a [`Lock`], until dropped.
#[derive(Debug)]
pub struct LockGuard<'a, T> {
    /// Dropped first, before the notification.
    guard: BiasedGuard<'a, T>,
    _notice: WaiterNotice<'a>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Notifies waiting fibers, when dropped, that the lock is free.
#[derive(Debug)]
struct WaiterNotice<'a> {
    has_waiters: &'a AtomicBool,
    host: &'a Host,
}

impl Drop for WaiterNotice<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.has_waiters.load(Ordering::Relaxed) {
            self.has_waiters.store(false, Ordering::Relaxed);
            self.host.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::world::{Config, FiberKind, World};
    use crate::{Span, Task};

    fn count(
        host: &Host,
        threads: u64,
        rounds: u64,
        between: impl Fn(&Host) + Clone + Send + 'static,
    ) -> u64 {
        let lock = Arc::new(Lock::new(0));
        let body = |n: u64| {
            let (host, lock, between) = (host.clone(), lock.clone(), between.clone());
            move || {
                for _ in 0..rounds {
                    let mut held = lock.lock(&host);
                    let before = *held;
                    between(&host);
                    *held = before + 1;
                    drop(held);
                    host.charge(Span::from_ns(n));
                }
            }
        };
        let tasks: Vec<Task> =
            (0..threads).map(|n| host.spawn("counter", None, body(n)).expect("a thread")).collect();
        tasks.into_iter().for_each(Task::join);
        *lock.lock(host)
    }

    #[test]
    fn threads_take_turns() {
        let host = crate::real::host();
        assert_eq!(count(&host, 4, 5_000, |_| {}), 20_000);
        let lock = Lock::new(());
        let held = lock.lock(&host);
        assert!(lock.try_lock(&host).is_none());
        drop(held);
        assert!(lock.try_lock(&host).is_some());
    }

    /// Goal: a holder that suspends neither blocks its world nor lets anyone else in. Method: each of five fibers
    /// sleeps while it holds the lock; with both kinds of fibers, which give the same trace.
    #[test]
    fn fibers_take_turns_though_the_holder_sleeps() {
        let run = |fiber_kind| {
            let mut world = World::new(Config { fiber_kind, ..Config::default() });
            let node = world.add_node("machine");
            let host = node.host();
            let fiber = move || {
                let sleep = |host: &Host| {
                    assert_eq!(host.poll("a sleep", host.after(Span::from_us(3)), || None::<()>), None);
                };
                assert_eq!(count(&host, 5, 20, sleep), 100);
            };
            world.spawn("parent", &[&node], fiber).expect("a fiber");
            world.run().expect("an end")
        };
        let ended = run(FiberKind::Coroutine);
        assert!(ended.time >= crate::Time::ZERO + Span::from_us(3) * 100, "they slept at the same time");
        assert_eq!(ended, run(FiberKind::Thread));
    }

    /// Goal: a waiter gets the lock although another fiber takes it again and again. Method: the other fiber sleeps
    /// only while it holds the lock, so every attempt of the waiter finds it taken; the waiter must get it after the
    /// first of a hundred sections.
    #[test]
    fn waiter_is_next() {
        let mut world = World::new(Config::default());
        let node = world.add_node("machine");
        let (host, lock) = (node.host(), Arc::new(Lock::fair(0)));
        let sleep = |host: &Host, us| {
            assert_eq!(host.poll("a sleep", host.after(Span::from_us(us)), || None::<()>), None);
        };
        let (greedy, same) = (host.clone(), lock.clone());
        let take = move || {
            for _ in 0..100 {
                let mut held = same.lock(&greedy);
                *held += 1;
                sleep(&greedy, 10);
            }
        };
        let wait = move || {
            sleep(&host, 5);
            assert_eq!(*lock.lock(&host), 1);
        };
        world.spawn("greedy", &[&node], take).expect("a fiber");
        world.spawn("waiting", &[&node], wait).expect("a fiber");
        world.run().expect("an end");
    }
}
