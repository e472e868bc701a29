//! [`Lock`]: a lock that may be held while something is called that lets others run.
//!
//! In virtual time a post may suspend the rank that posts, and other ranks of the same thread run meanwhile. They must wait as
//! ranks do: one that spins for a lock keeps its holder from ever giving it back.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Host;
use crate::biased::{Biased, BiasedGuard};

/// A value behind a lock of short sections, for code above the NICs. In real time whoever finds it taken spins and yields, and it
/// costs what a [`Biased`] does; in virtual time it waits in [`Host::poll`].
#[derive(Debug, Default)]
pub struct Lock<T> {
    value: Biased<T>,
    /// A rank waits for it. In real time always false: there nobody suspends.
    awaited: AtomicBool,
    /// Ranks get it in the order in which they came.
    is_in_turn: bool,
    /// Ranks that have waited for it in turn so far, and those of them that have got it.
    came: AtomicU64,
    served: AtomicU64,
}

impl<T> Lock<T> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        let (came, served) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { value: Biased::new(value), awaited: AtomicBool::new(false), is_in_turn: false, came, served }
    }

    /// A free lock that goes in virtual time to whoever has waited longest: where the looks of one could fall into the turns of others
    /// for ever, as of threads that take it again and again. In real time as any other.
    pub fn in_turn(value: T) -> Self {
        Self { is_in_turn: true, ..Self::new(value) }
    }

    /// Takes it when it is this caller's turn.
    ///
    /// # Panics
    /// When the world of the caller ends before whoever holds it has let go.
    #[inline]
    pub fn lock<'a>(&'a self, host: &'a Host) -> Held<'a, T> {
        if self.is_in_turn && self.came.load(Ordering::Relaxed) != self.served.load(Ordering::Relaxed) {
            return self.lock_taken(host);
        }
        match self.value.try_lock() {
            Some(guard) => self.held(guard, host),
            None => self.lock_taken(host),
        }
    }

    /// Takes it, if it is free.
    #[inline]
    pub fn try_lock<'a>(&'a self, host: &'a Host) -> Option<Held<'a, T>> {
        Some(self.held(self.value.try_lock()?, host))
    }

    /// What it holds, of whoever owns it alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn held<'a>(&'a self, guard: BiasedGuard<'a, T>, host: &'a Host) -> Held<'a, T> {
        Held { guard, _notice: Notice { awaited: &self.awaited, host } }
    }

    #[cold]
    fn lock_taken<'a>(&'a self, host: &'a Host) -> Held<'a, T> {
        if host.node().is_none() {
            return self.held(self.value.lock(), host);
        }
        let turn = self.came.fetch_add(1, Ordering::Relaxed);
        let look = || {
            let is_next = !self.is_in_turn || self.served.load(Ordering::Relaxed) == turn;
            let guard = if is_next { self.value.try_lock() } else { None };
            if guard.is_none() {
                self.awaited.store(true, Ordering::Relaxed);
            }
            guard
        };
        let guard =
            host.poll("Lock::lock", None, look).expect("whoever holds it lets go before the world ends");
        self.served.store(turn + 1, Ordering::Relaxed);
        // What came meanwhile is news for whoever waits around this.
        host.signal();
        self.held(guard, host)
    }
}

/// What a [`Lock`] holds, until dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    /// Dropped first.
    guard: BiasedGuard<'a, T>,
    _notice: Notice<'a>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Tells ranks that wait for a lock, when dropped, that it is free.
#[derive(Debug)]
struct Notice<'a> {
    awaited: &'a AtomicBool,
    host: &'a Host,
}

impl Drop for Notice<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.awaited.load(Ordering::Relaxed) {
            self.awaited.store(false, Ordering::Relaxed);
            self.host.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::world::{Config, Factory, World};
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

    /// Goal: a holder that gives up control neither holds up its world nor lets anybody in. Method: each of five ranks sleeps
    /// while it holds the lock; on both kinds of ranks, with the same trace.
    #[test]
    fn ranks_take_turns_though_the_holder_sleeps() {
        let run = |factory| {
            let mut world = World::new(Config { factory, ..Config::default() });
            let node = world.node("machine");
            let host = node.host();
            let rank = move || {
                let sleep = |host: &Host| {
                    assert_eq!(host.poll("a sleep", host.after(Span::from_us(3)), || None::<()>), None);
                };
                assert_eq!(count(&host, 5, 20, sleep), 100);
            };
            world.rank("parent", &[&node], rank).expect("a rank");
            world.run().expect("an end")
        };
        let ended = run(Factory::Coroutine);
        assert!(ended.time >= crate::Time::ZERO + Span::from_us(3) * 100, "they slept at the same time");
        assert_eq!(ended, run(Factory::Thread));
    }

    /// Goal: whoever waits gets it, though another takes it again and again. Method: that one sleeps only while it holds the lock, so
    /// that all looks of the one that waits find it taken; it is to get it after one of a hundred times.
    #[test]
    fn whoever_waits_is_next() {
        let mut world = World::new(Config::default());
        let node = world.node("machine");
        let (host, lock) = (node.host(), Arc::new(Lock::in_turn(0)));
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
        world.rank("greedy", &[&node], take).expect("a rank");
        world.rank("waiting", &[&node], wait).expect("a rank");
        world.run().expect("an end");
    }
}
