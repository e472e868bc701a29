//! [`AdaptiveFence`]: the fence between publishing and checking for waiters.
//!
//! A producer that publishes and then checks for waiters needs a full fence between the two, and so does a
//! waiter that announces its sleep and then checks what was published. Most queues are polled, and rarely
//! does a thread sleep on them. So producers use a light fence, and each waiter passes [`fence::heavy`] for
//! all producers. After 16 sleeps on a queue its producers switch to a full fence, and waiters no longer need a
//! heavy one.

use super::atomics::*;
use super::fence;

/// Producers must pass a full fence before they check for waiters.
const FULL_REQUESTED: u32 = 1;
/// All producers use the full fence: a heavy fence has completed since `FULL_REQUESTED` was set.
const FULL_IN_USE: u32 = 2;
/// The bits above the flags count the waiters so far.
const ONE_WAITER: u32 = 1 << 8;
/// Number of waits for which a heavy fence is passed instead.
const LIGHT_WAITS_MAX: u32 = 16;

/// In shared memory; all zero means that there was no waiter yet.
#[repr(C)]
#[derive(Debug)]
pub struct AdaptiveFence(AtomicU32);

impl AdaptiveFence {
    /// A fence on which this many waits have happened.
    #[cfg(all(test, loom))]
    pub fn new(waits: u32) -> Self {
        Self(AtomicU32::new(waits * ONE_WAITER))
    }

    /// Called by the producer, after publishing and before it checks for waiters.
    #[inline]
    pub fn fence_before_waiter_check(&self) {
        // Partner: the heavy fences below. Neither this word nor the waiters may be read before the data is
        // published.
        fence::light();
        if self.0.load(Ordering::Relaxed) & FULL_REQUESTED != 0 {
            fence(Ordering::SeqCst);
        }
    }

    /// Called by the waiter, after it announced itself (with a full fence) and before its last check.
    pub fn register_waiter(&self) {
        if self.0.load(Ordering::Acquire) & FULL_IN_USE != 0 {
            return;
        }
        let word = self.0.fetch_add(ONE_WAITER, Ordering::Relaxed);
        if word < LIGHT_WAITS_MAX * ONE_WAITER {
            return fence::heavy();
        }
        self.0.fetch_or(FULL_REQUESTED, Ordering::Relaxed);
        fence::heavy();
        // Other waiters rely on this instead of a heavy fence of their own: from here on every producer uses
        // the full fence.
        self.0.fetch_or(FULL_IN_USE, Ordering::Release);
    }

    /// Forgets the waiters of a predecessor.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use host::EventCount;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    struct World {
        adaptive: AdaptiveFence,
        wakeup: EventCount,
        word: Word,
    }

    impl World {
        fn new(waits: u32) -> Arc<Self> {
            Arc::new(Self {
                adaptive: AdaptiveFence::new(waits),
                wakeup: EventCount::new(),
                word: Word::new(0),
            })
        }

        fn publish(&self) {
            self.word.store(1, Ordering::Relaxed);
            self.adaptive.fence_before_waiter_check();
            self.wakeup.notify_after_fence();
        }

        /// Announces a waiter; returns the ticket to sleep with, if nothing is published yet.
        fn prepare_sleep(&self) -> Option<u32> {
            let ticket = self.wakeup.prepare_to_wait();
            self.adaptive.register_waiter();
            (self.word.load(Ordering::Relaxed) == 0).then_some(ticket)
        }

        fn sleep(&self, register_waiter: fn(&AdaptiveFence)) {
            let ticket = self.wakeup.prepare_to_wait();
            register_waiter(&self.adaptive);
            if self.word.load(Ordering::Relaxed) == 0 {
                self.wakeup.sleep(ticket, None);
            }
            self.wakeup.finish_wait();
        }
    }

    /// Goal: no waiter misses what is published, neither an early one nor the one after which producers use
    /// full fences. Method: it would sleep forever. In loom the light fence is a full one, so that this
    /// proves the order of steps, and not that the processor keeps it.
    #[test]
    fn loom_waiter_is_notified() {
        for waits in [LIGHT_WAITS_MAX - 1, LIGHT_WAITS_MAX] {
            loom::model(move || {
                let world = World::new(waits);
                let publisher = {
                    let world = world.clone();
                    loom::thread::spawn(move || world.publish())
                };
                world.sleep(AdaptiveFence::register_waiter);
                publisher.join().unwrap();
            });
        }
    }

    /// Goal: when two waiters wait and the second finds the word set or being set, each either sees what is
    /// published or is notified. Method: they check and do not sleep, as a model of two that wait for a third
    /// has no end; the ticket of a waiter that saw nothing has been notified.
    #[test]
    fn loom_second_waiter_is_notified() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new(LIGHT_WAITS_MAX);
            let publisher = {
                let world = world.clone();
                loom::thread::spawn(move || world.publish())
            };
            let other = {
                let world = world.clone();
                loom::thread::spawn(move || world.prepare_sleep())
            };
            let tickets = [world.prepare_sleep(), other.join().unwrap()];
            publisher.join().unwrap();
            assert!(
                tickets.into_iter().flatten().all(|ticket| world.wakeup.is_notified(ticket)),
                "a waiter sleeps forever"
            );
        });
    }

    /// Goal: the producer's fence is needed, and the models above would notice if it were removed. Method:
    /// without it the waiter sleeps forever, which loom reports.
    #[test]
    #[should_panic(expected = "exceeded maximum number of branches")]
    fn loom_waiter_is_missed_without_the_fence() {
        loom::model(|| {
            let world = World::new(0);
            let publisher = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.word.store(1, Ordering::Relaxed);
                    world.wakeup.notify_after_fence();
                })
            };
            world.sleep(AdaptiveFence::register_waiter);
            publisher.join().unwrap();
        });
    }
}
