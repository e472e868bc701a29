//! Reader registry: the readers that may be inside, so that the owner of memory does not have to check all
//! readers.
//!
//! A reader that enters for the first time since the owner last waited adds its number to the registry. A
//! [`ReaderMark`] records that the number was added, so that entering again costs one load. The registry is a
//! set of numbers whose insertions and removals synchronise. An owner that waits removes the numbers, resets
//! their marks, and waits for these readers. [`GracePeriods`] holds the numbers that were removed and have
//! not been seen outside since: two owners that wait at the same time wait for the same readers, and one that
//! gives up leaves them to the next.

use super::Spin;
use super::atomics::*;
use super::fence::light;
use host::{BiasedGuard, BiasedLock};

/// Whether a reader's number is in the registry; all zero means no.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct ReaderMark(AtomicU32);

impl ReaderMark {
    /// Calls `register`, which adds the reader's number to the registry, unless it is a member. The reader calls this
    /// after it has marked itself inside and before it checks its access rights.
    #[inline]
    pub fn set(&self, register: impl FnOnce()) {
        if self.0.load(Ordering::Relaxed) == 0 {
            self.set_new(register);
        }
    }

    #[cold]
    fn set_new(&self, register: impl FnOnce()) {
        self.0.store(1, Ordering::Relaxed);
        register();
        // Partner: the fence in `GracePeriods::begin`. Access rights may not be read before the number is in the
        // registry: an owner that did not find it had revoked them before, and this reader sees that.
        fence(Ordering::SeqCst);
    }

    /// Resets the mark; called by the owner for each number that it removed from the registry.
    #[inline]
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Numbers removed from a registry that have not been seen outside since.
#[derive(Debug, Default)]
pub struct GracePeriods(Spin<Rounds>);

#[derive(Debug, Default)]
struct Rounds {
    round: u64,
    /// Each number once, sorted, with the last round that found it in the registry.
    members: Vec<(usize, u64)>,
}

impl GracePeriods {
    /// Begins a round, after access rights were revoked: removes the numbers from the registry one by one
    /// (`taken`) and has `clear` reset their marks. Drops stale numbers, for which `clear` returns false.
    /// Returns the round for [`GracePeriods::each`], which the caller may use once it has passed
    /// [`super::fence::heavy`].
    pub fn begin(&self, taken: impl Iterator<Item = usize>, mut clear: impl FnMut(usize) -> bool) -> u64 {
        // Partner: the fence in `ReaderMark::set_new`. The registry may not be read before access rights are
        // revoked.
        fence(Ordering::SeqCst);
        let mut list = self.0.lock();
        list.round += 1;
        let round = list.round;
        for member in taken.filter(|member| clear(*member)) {
            match list.members.binary_search_by_key(&member, |entry| entry.0) {
                Ok(at) => list.members[at].1 = round,
                Err(at) => list.members.insert(at, (member, round)),
            }
        }
        round
    }

    /// Calls `is_out`, which may wait, for each reader that may have been inside when the round began.
    /// Readers that stay inside remain listed; the error is such a reader's number.
    pub fn each(&self, round: u64, mut is_out: impl FnMut(usize) -> bool) -> Result<(), usize> {
        let (mut below, mut result) = (usize::MAX, Ok(()));
        while let Some(member) = self.last(below, round) {
            below = member;
            if is_out(member) {
                self.clear(member, round);
            } else {
                result = Err(member);
            }
        }
        result
    }

    /// The largest number less than `below` that this round or an earlier one found. Readers that a later
    /// round found have been outside since.
    fn last(&self, below: usize, round: u64) -> Option<usize> {
        let list = self.0.lock();
        let end = list.members.partition_point(|entry| entry.0 < below);
        list.members[..end].iter().rev().find(|entry| entry.1 <= round).map(|entry| entry.0)
    }

    /// Removes a reader that a round has seen outside. If a later round found it in the registry again, that
    /// round has to check it.
    fn clear(&self, member: usize, round: u64) {
        let mut list = self.0.lock();
        if let Ok(at) = list.members.binary_search_by_key(&member, |entry| entry.0)
            && list.members[at].1 <= round
        {
            list.members.remove(at);
        }
    }
}

/// A lock that threads of this process hold while they access registered memory: once `wait_for_reader` has returned,
/// they are outside.
#[derive(Debug, Default)]
pub struct ReaderLock<T> {
    lock: BiasedLock<T>,
    mark: ReaderMark,
}

impl<T> ReaderLock<T> {
    /// Takes the lock to access registered memory; for `register` see [`ReaderMark::set`]. Check access rights only
    /// afterwards: an owner waits only for readers that entered before it revoked the rights.
    #[inline]
    pub fn enter(&self, register: impl FnOnce()) -> BiasedGuard<'_, T> {
        let guard = self.lock.lock();
        // Partner: the heavy fence between `GracePeriods::begin` and `GracePeriods::each`. The held lock
        // marks this thread as inside, which must be visible before `ReaderMark::set` reads the mark, and before the
        // caller reads the access rights.
        light();
        self.mark.set(register);
        guard
    }

    /// Takes the lock for any other purpose.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock.lock()
    }

    /// Waits, after [`super::fence::heavy`], until the thread that is inside now has left.
    pub fn wait_for_reader(&self) {
        self.lock.wait_for_holders();
    }

    /// Resets the mark, see [`ReaderMark::clear`].
    pub fn reset_mark(&self) {
        self.mark.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::ready::ReadySet;
    use super::*;

    /// Goal: a waiting owner checks each reader of the last round once; only readers that stay inside are
    /// checked again.
    #[test]
    fn each_round_checks_new_readers_and_those_inside() {
        let (registry, grace_periods) = (ReadySet::new(), GracePeriods::default());
        let marks: [ReaderMark; 100] = std::array::from_fn(|_| ReaderMark::default());
        let enter = |member: usize| marks[member].set(|| registry.add(member));
        let wait = |stays: &[usize]| {
            let mut asked = Vec::new();
            let round = grace_periods.begin(registry.drain(), |member| {
                marks[member].clear();
                member != 99
            });
            let result = grace_periods.each(round, |member| {
                asked.push(member);
                !stays.contains(&member)
            });
            (asked, result)
        };
        assert_eq!(wait(&[]), (vec![], Ok(())), "no reader has entered");
        [3, 70, 3, 5, 99].into_iter().for_each(enter);
        assert_eq!(wait(&[5]), (vec![70, 5, 3], Err(5)));
        assert_eq!(wait(&[5]), (vec![5], Err(5)), "the reader has not left");
        [5, 7].into_iter().for_each(enter);
        assert_eq!(wait(&[]), (vec![7, 5], Ok(())));
        assert_eq!(wait(&[]), (vec![], Ok(())));
    }

    /// Goal: a reader that a later round found is left to that round. Method: two rounds; the later one
    /// begins before the first checks.
    #[test]
    fn round_keeps_readers_of_a_later_round() {
        let (registry, grace_periods, mark) =
            (ReadySet::new(), GracePeriods::default(), ReaderMark::default());
        let begin = || {
            grace_periods.begin(registry.drain(), |_| {
                mark.clear();
                true
            })
        };
        mark.set(|| registry.add(1));
        let first = begin();
        assert_eq!(grace_periods.last(usize::MAX, first), Some(1));
        mark.set(|| registry.add(1));
        let second = begin();
        grace_periods.clear(1, first);
        assert_eq!(grace_periods.each(first, |_| panic!("the reader has been outside since")), Ok(()));
        assert_eq!(grace_periods.each(second, |member| member != 1), Err(1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use std::collections::BTreeSet;

    /// Memory with a right that can be revoked, and a lock under which it is accessed.
    struct Place {
        right: AtomicBool,
        memory: UnsafeCell<u32>,
        lock: Spin<()>,
        mark: ReaderMark,
        registry: Spin<BTreeSet<usize>>,
        grace_periods: GracePeriods,
    }

    // SAFETY: the models check the accesses.
    unsafe impl Sync for Place {}

    impl Place {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                right: AtomicBool::new(true),
                memory: UnsafeCell::new(0),
                lock: Spin::new(()),
                mark: ReaderMark::default(),
                registry: Spin::default(),
                grace_periods: GracePeriods::default(),
            })
        }

        /// Accesses the memory if the right is still there.
        fn access(&self) {
            let held = self.lock.lock();
            self.mark.set(|| {
                self.registry.lock().insert(0);
            });
            if self.right.load(Ordering::Relaxed) {
                self.memory.with(|_| {});
            }
            drop(held);
        }

        /// Waits until no thread accesses the memory by a right from before.
        fn pass(&self) {
            let taken = std::iter::from_fn(|| self.registry.lock().pop_first());
            let clear = |_| {
                self.mark.clear();
                true
            };
            let round = self.grace_periods.begin(taken, clear);
            let pass = |_| {
                drop(self.lock.lock());
                true
            };
            assert!(self.grace_periods.each(round, pass).is_ok());
        }

        /// Revokes the right; afterwards the owner alone uses the memory.
        fn retire(&self) {
            self.right.store(false, Ordering::Relaxed);
            self.pass();
            self.memory.with_mut(|_| {});
        }
    }

    /// Goal: where a held lock marks a reader as inside, no reader accesses memory after it was revoked, and
    /// no heavy fence is needed. Method: a reader accesses it twice while the owner revokes it; loom reports
    /// concurrent accesses.
    #[test]
    fn loom_owner_waits_for_the_lock_holder() {
        loom::model(|| {
            let place = Place::new();
            let other = place.clone();
            let thread = loom::thread::spawn(move || {
                other.access();
                other.access();
            });
            place.retire();
            thread.join().unwrap();
        });
    }

    /// Goal: as above, for a number that is removed from the registry and added again. Method: a registered
    /// reader accesses the memory while the owner first waits for another reason.
    #[test]
    fn loom_owner_waits_for_a_reader_that_registers_again() {
        loom::model(|| {
            let place = Place::new();
            place.access();
            let other = place.clone();
            let thread = loom::thread::spawn(move || other.access());
            place.pass();
            place.retire();
            thread.join().unwrap();
        });
    }
}
