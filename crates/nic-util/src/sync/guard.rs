//! [`Busy`]: an initiator marks that it accesses another process's memory, and the owner waits until it has
//! finished.
//!
//! The initiator sets the word, checks whether the access is (still) allowed, copies, and clears the word. It
//! is *inside* while the word is set. The owner revokes the right, then waits until the word is clear. Either
//! the initiator sees that the right is revoked, or the owner sees the initiator's word. A [reader
//! registry](super::reader_registry) holds the initiators that the owner has to check.

use super::atomics::*;
use super::fence;
use super::reader_registry::ReaderMark;
use super::ready::ReadySet;

/// The word of one initiator, in shared memory; all zero means that it accesses nothing.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Busy {
    /// 1 while the initiator may access the memory.
    pub inside: AtomicU32,
    /// Whether the initiator is in the owner's registry.
    pub mark: ReaderMark,
}

impl Busy {
    /// Starts an access, as number `member` of the owner's registry; check the right after this.
    #[inline]
    pub fn enter(&self, registry: &ReadySet, member: usize) {
        self.inside.store(1, Ordering::Relaxed);
        // Partner: the heavy fence between `GracePeriods::begin` and `GracePeriods::each`. Neither the mark
        // nor the right may be read before the word is set.
        fence::light();
        self.mark.set(|| registry.add(member));
    }

    /// Ends an access, after its last copy.
    #[inline]
    pub fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    /// Whether the initiator may access memory; for the owner, after it revoked the right and passed
    /// [`fence::heavy`].
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }

    /// Resets the word of a predecessor.
    #[cfg(not(loom))]
    pub fn reset(&self) {
        self.mark.clear();
        self.leave();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::reader_registry::GracePeriods;
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    /// A region: whether it may be used, and its memory, a loom cell, which reports any access that is not
    /// ordered.
    struct Region(Word, loom::cell::UnsafeCell<u32>);

    struct World {
        busy: Busy,
        registry: ReadySet,
        grace_periods: GracePeriods,
        regions: [Region; 2],
    }

    impl World {
        fn new() -> Arc<Self> {
            let regions = [(); 2].map(|()| Region(Word::new(1), loom::cell::UnsafeCell::new(0)));
            Arc::new(Self {
                busy: Busy::default(),
                registry: ReadySet::new(),
                grace_periods: GracePeriods::default(),
                regions,
            })
        }

        fn access(&self, region: usize) {
            let Region(right, memory) = &self.regions[region];
            self.busy.enter(&self.registry, 5);
            if right.load(Ordering::Acquire) == 1 {
                // SAFETY: allowed, and the owner waits for us.
                memory.with_mut(|p| unsafe { *p += 1 });
            }
            self.busy.leave();
        }

        /// The owner's side, until no initiator accesses the region any more.
        fn revoke(&self, region: usize) {
            let Region(right, memory) = &self.regions[region];
            right.store(0, Ordering::Relaxed);
            let round = self.grace_periods.begin(self.registry.drain(), |member| {
                assert_eq!(member, 5);
                self.busy.mark.clear();
                true
            });
            fence::heavy();
            let out = |_| {
                while self.busy.is_inside() {
                    loom::thread::yield_now();
                }
                true
            };
            assert_eq!(self.grace_periods.each(round, out), Ok(()));
            // SAFETY: no initiator accesses it any more.
            memory.with_mut(|p| unsafe { *p += 1 });
        }
    }

    /// Goal: no access happens after the owner has finished waiting, even if it waits again after the first
    /// wait has removed the initiator from its registry. Method: an initiator uses the second region twice
    /// while the owner revokes both.
    #[test]
    fn loom_no_access_after_the_wait() {
        loom::model(|| {
            let world = World::new();
            let initiator = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.access(1);
                    world.access(1);
                })
            };
            world.revoke(0);
            world.revoke(1);
            initiator.join().unwrap();
        });
    }

    /// Goal: as above, for two concurrent threads of the owner, where only one finds the number in the
    /// registry.
    #[test]
    fn loom_two_owners_wait_for_the_same_reader() {
        // Two threads that wait for a third can take turns without end: with one preemption more, loom gives
        // up.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new();
            let threads = [
                {
                    let world = world.clone();
                    loom::thread::spawn(move || world.access(1))
                },
                {
                    let world = world.clone();
                    loom::thread::spawn(move || world.revoke(0))
                },
            ];
            world.revoke(1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
