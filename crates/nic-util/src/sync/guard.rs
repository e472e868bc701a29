//! [`Busy`]: how an initiator tells that it is inside somebody's memory, and how the owner waits until it is out.
//!
//! The initiator sets the word, looks whether the access is (still) allowed, copies, clears the word. The owner
//! takes the right away, then waits until the word is clear. Either the initiator sees that the right is gone
//! or the owner sees the initiator inside. Whose words the owner has to look at is on a [`roll`](super::reader_registry).

use super::atomics::*;
use super::fence;
use super::reader_registry::ReaderMark;
use super::ready::Ready;

/// One initiator's word; lies in shared memory, all zero is "outside".
#[repr(C)]
#[derive(Debug, Default)]
pub struct Busy {
    /// 1 while its owner may be inside.
    pub inside: AtomicU32,
    /// Whether its owner is on the roll.
    pub mark: ReaderMark,
}

impl Busy {
    /// Enters, under this number on the owner's roll; look at the right after this.
    #[inline]
    pub fn enter(&self, roll: &Ready, member: usize) {
        self.inside.store(1, Ordering::Relaxed);
        // Partner: the heavy fence between `GracePeriods::begin` and `GracePeriods::each`. Neither the mark nor the right may be
        // looked at before the word is set.
        fence::light();
        self.mark.sign(|| roll.add(member));
    }

    /// Leaves, after the last access.
    #[inline]
    pub fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    /// The owner's view, after it took the right away and passed [`fence::heavy`].
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) != 0
    }

    /// Forgets a predecessor.
    #[cfg(not(loom))]
    pub fn reset(&self) {
        self.mark.erase();
        self.leave();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::reader_registry::GracePeriods;
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    /// A region: whether it may be used, and its memory, a loom cell, which reports any access that is not ordered.
    struct Region(Word, loom::cell::UnsafeCell<u32>);

    struct World {
        busy: Busy,
        roll: Ready,
        suspects: GracePeriods,
        regions: [Region; 2],
    }

    impl World {
        fn new() -> Arc<Self> {
            let regions = [(); 2].map(|()| Region(Word::new(1), loom::cell::UnsafeCell::new(0)));
            Arc::new(Self {
                busy: Busy::default(),
                roll: Ready::new(),
                suspects: GracePeriods::default(),
                regions,
            })
        }

        fn access(&self, region: usize) {
            let Region(right, memory) = &self.regions[region];
            self.busy.enter(&self.roll, 5);
            if right.load(Ordering::Acquire) == 1 {
                // SAFETY: allowed, and the owner waits for us.
                memory.with_mut(|p| unsafe { *p += 1 });
            }
            self.busy.leave();
        }

        /// The owner's side, to the end: nobody accesses the region any more.
        fn revoke(&self, region: usize) {
            let Region(right, memory) = &self.regions[region];
            right.store(0, Ordering::Relaxed);
            let round = self.suspects.begin(self.roll.taken(), |member| {
                assert_eq!(member, 5);
                self.busy.mark.erase();
                true
            });
            fence::heavy();
            let out = |_| {
                while self.busy.is_inside() {
                    loom::thread::yield_now();
                }
                true
            };
            assert_eq!(self.suspects.each(round, out), Ok(()));
            // SAFETY: nobody may be inside any more.
            memory.with_mut(|p| unsafe { *p += 1 });
        }
    }

    /// Goal: no access after the owner has finished waiting, also when it waits a second time, having taken the name off its
    /// roll the first time. Method: an initiator uses the second region twice while the owner takes both away.
    #[test]
    fn loom_nobody_is_inside_after_the_wait() {
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

    /// Goal: the same for two owners' threads at a time, of which one finds the name on the roll.
    #[test]
    fn loom_two_that_wait_wait_for_the_same() {
        // Two that wait for a third have no end of ways to take turns at it: loom gives up with one preemption more.
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
