//! [`AdaptiveFence`]: the fence between publishing and looking for sleepers.
//!
//! A producer that publishes and then looks for sleepers needs a full fence between the two, and so does a waiter that announces
//! its sleep and then looks for what was published. Most queues are polled, and hardly anybody ever sleeps on them. So producers
//! use a light fence, and each waiter passes [`fence::heavy`] for all of them. After 16 sleeps on a queue its producers switch
//! to a full fence, and waiters need no heavy one any more.

use super::atomics::*;
use super::fence;

/// Publishers are to pass a full fence before they look for whom to tell.
const WANTED: u32 = 1;
/// All of them know: a heavy fence was passed since.
const KNOWN: u32 = 2;
/// Above those: how often somebody was to be told.
const ONE: u32 = 1 << 8;
/// So often a heavy fence is passed instead.
const FEW: u32 = 16;

/// In shared memory; all zero is "nobody has ever been there to be told".
#[repr(C)]
#[derive(Debug)]
pub struct AdaptiveFence(AtomicU32);

impl AdaptiveFence {
    /// One with which somebody was to be told so often.
    #[cfg(all(test, loom))]
    pub fn new(often: u32) -> Self {
        Self(AtomicU32::new(often * ONE))
    }

    /// The publisher, after publishing and before it looks for whom to tell.
    #[inline]
    pub fn before_looking(&self) {
        // Partner: the heavy fences below. Neither this word nor what is looked at next may be looked at before what was published.
        fence::light();
        if self.0.load(Ordering::Relaxed) & WANTED != 0 {
            fence(Ordering::SeqCst);
        }
    }

    /// Whoever is to be told, after saying so (and a full fence), and before its last look.
    pub fn demand(&self) {
        if self.0.load(Ordering::Acquire) & KNOWN != 0 {
            return;
        }
        let word = self.0.fetch_add(ONE, Ordering::Relaxed);
        if word < FEW * ONE {
            return fence::heavy();
        }
        self.0.fetch_or(WANTED, Ordering::Relaxed);
        fence::heavy();
        // Others who are to be told rely on this and on no heavy fence of their own: who publishes from here on heeds.
        self.0.fetch_or(KNOWN, Ordering::Release);
    }

    /// Forgets who wanted to be told by a predecessor.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use host::Bell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    struct World {
        heed: AdaptiveFence,
        bell: Bell,
        word: Word,
    }

    impl World {
        fn new(often: u32) -> Arc<Self> {
            Arc::new(Self { heed: AdaptiveFence::new(often), bell: Bell::new(), word: Word::new(0) })
        }

        fn publish(&self) {
            self.word.store(1, Ordering::Relaxed);
            self.heed.before_looking();
            self.bell.ring_after_fence();
        }

        /// The ticket to sleep with, if nothing is published yet.
        fn look(&self) -> Option<u32> {
            let ticket = self.bell.announce();
            self.heed.demand();
            (self.word.load(Ordering::Relaxed) == 0).then_some(ticket)
        }

        fn sleep(&self, demand: fn(&AdaptiveFence)) {
            let ticket = self.bell.announce();
            demand(&self.heed);
            if self.word.load(Ordering::Relaxed) == 0 {
                self.bell.sleep(ticket, None);
            }
            self.bell.retract();
        }
    }

    /// Goal: nothing that is published is missed by whoever sleeps, be it one of the first or the one that has publishers heed. Method:
    /// it would sleep for ever; in loom the light fence is a full one, so that this proves the order of steps, and not that the
    /// processor keeps it.
    #[test]
    fn loom_a_sleeper_is_heeded() {
        for often in [FEW - 1, FEW] {
            loom::model(move || {
                let world = World::new(often);
                let publisher = {
                    let world = world.clone();
                    loom::thread::spawn(move || world.publish())
                };
                world.sleep(AdaptiveFence::demand);
                publisher.join().unwrap();
            });
        }
    }

    /// Goal: two sleepers, of whom one finds the word set or being set, either see what is published or are rung for. Method: they look
    /// and do not sleep, as a model of two that wait for a third has no end; whoever saw nothing has a ticket that has rung.
    #[test]
    fn loom_sleepers_beside_the_first_are_heeded() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new(FEW);
            let publisher = {
                let world = world.clone();
                loom::thread::spawn(move || world.publish())
            };
            let other = {
                let world = world.clone();
                loom::thread::spawn(move || world.look())
            };
            let tickets = [world.look(), other.join().unwrap()];
            publisher.join().unwrap();
            assert!(
                tickets.into_iter().flatten().all(|ticket| world.bell.has_rung(ticket)),
                "one sleeps for ever"
            );
        });
    }

    /// Goal: the fence of whoever publishes is needed, and the models above would notice if it went. Method: without it the sleeper
    /// looks for its bell for ever, which loom gives up on.
    #[test]
    #[should_panic(expected = "exceeded maximum number of branches")]
    fn loom_without_the_fence_a_sleeper_is_missed() {
        loom::model(|| {
            let world = World::new(0);
            let publisher = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.word.store(1, Ordering::Relaxed);
                    world.bell.ring_after_fence();
                })
            };
            world.sleep(AdaptiveFence::demand);
            publisher.join().unwrap();
        });
    }
}
