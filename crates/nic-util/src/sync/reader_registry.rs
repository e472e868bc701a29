//! Reader registry: which readers may be inside, so that the owner of memory does not have to ask all of them.
//!
//! A reader that enters for the first time since the owner last waited adds its number to the registry. A [`ReaderMark`] says
//! that the number is there, so that entering again costs one load. The registry is any set of numbers in which adding and
//! taking synchronise. An owner that waits takes the numbers out, resets their marks, and waits for these readers.
//! [`GracePeriods`] holds the numbers that were taken out and have not been seen outside since: two owners that wait at the same
//! time wait for the same readers, and one that gives up leaves them to the next.

use super::Spin;
use super::atomics::*;
use super::fence::light;
use host::{Biased, BiasedGuard};

/// Whether somebody stands on the roll; all zero is "no".
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct ReaderMark(AtomicU32);

impl ReaderMark {
    /// Has `put` put its number on the roll unless it stands there. Between saying that it is inside and looking at the right.
    #[inline]
    pub fn sign(&self, put: impl FnOnce()) {
        if self.0.load(Ordering::Relaxed) == 0 {
            self.sign_first(put);
        }
    }

    #[cold]
    fn sign_first(&self, put: impl FnOnce()) {
        self.0.store(1, Ordering::Relaxed);
        put();
        // Partner: the fence in `GracePeriods::begin`. The right may not be looked at before the name is there: an owner that
        // did not find it has taken the right away before, and we see that.
        fence(Ordering::SeqCst);
    }

    /// The owner takes it back, with the number that it found on the roll.
    #[inline]
    pub fn erase(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Numbers that were taken off a roll, until they have been seen outside.
#[derive(Debug, Default)]
pub struct GracePeriods(Spin<List>);

#[derive(Debug, Default)]
struct List {
    round: u64,
    /// Each number once, in order, with the last round that found it on the roll.
    members: Vec<(usize, u64)>,
}

impl GracePeriods {
    /// After the right was taken away: takes the numbers off the roll one by one (`taken`), and has `erase` take their marks
    /// back; numbers of nobody, for which it says false, are dropped. The round, for [`GracePeriods::each`] once
    /// [`super::fence::heavy`] is passed.
    pub fn begin(&self, taken: impl Iterator<Item = usize>, mut erase: impl FnMut(usize) -> bool) -> u64 {
        // Partner: the fence in `ReaderMark::sign_first`. The roll may not be looked at before the right is away.
        fence(Ordering::SeqCst);
        let mut list = self.0.lock();
        list.round += 1;
        let round = list.round;
        for member in taken.filter(|member| erase(*member)) {
            match list.members.binary_search_by_key(&member, |entry| entry.0) {
                Ok(at) => list.members[at].1 = round,
                Err(at) => list.members.insert(at, (member, round)),
            }
        }
        round
    }

    /// Asks `is_out`, which may wait, for each that may have been inside when the round began. Who stays inside stays here; an
    /// error is one of them.
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

    /// The last number below that was found by this round or before. Whom a later one found has been outside since.
    fn last(&self, below: usize, round: u64) -> Option<usize> {
        let list = self.0.lock();
        let end = list.members.partition_point(|entry| entry.0 < below);
        list.members[..end].iter().rev().find(|entry| entry.1 <= round).map(|entry| entry.0)
    }

    /// A round has seen it outside. If a later one has found it on the roll again, it is for that one to look.
    fn clear(&self, member: usize, round: u64) {
        let mut list = self.0.lock();
        if let Ok(at) = list.members.binary_search_by_key(&member, |entry| entry.0)
            && list.members[at].1 <= round
        {
            list.members.remove(at);
        }
    }
}

/// A lock under which threads of this process touch registered memory: who passes it finds them outside.
#[derive(Debug, Default)]
pub struct Workplace<T> {
    lock: Biased<T>,
    mark: ReaderMark,
}

impl<T> Workplace<T> {
    /// Takes the lock to touch registered memory, as in [`ReaderMark::sign`]; look at the right after this.
    #[inline]
    pub fn enter(&self, put: impl FnOnce()) -> BiasedGuard<'_, T> {
        let guard = self.lock.lock();
        // Partner: the heavy fence between `GracePeriods::begin` and `GracePeriods::each`. The lock says that we are inside, and that
        // has to stand before the mark and the right are looked at.
        light();
        self.mark.sign(put);
        guard
    }

    /// Takes the lock for anything else.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock.lock()
    }

    /// Waits until whoever is inside now has left, after [`super::fence::heavy`].
    pub fn pass(&self) {
        self.lock.pass();
    }

    /// See [`ReaderMark::erase`].
    pub fn erase(&self) {
        self.mark.erase();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::ready::Ready;
    use super::*;

    /// Goal: who waits is told of those who have been there, once; who stays inside is met again, and nobody else.
    #[test]
    fn each_is_asked_who_was_there_since_the_last_time() {
        let (roll, suspects) = (Ready::new(), GracePeriods::default());
        let marks: [ReaderMark; 100] = std::array::from_fn(|_| ReaderMark::default());
        let enter = |member: usize| marks[member].sign(|| roll.add(member));
        let wait = |stays: &[usize]| {
            let mut asked = Vec::new();
            let round = suspects.begin(roll.taken(), |member| {
                marks[member].erase();
                member != 99
            });
            let result = suspects.each(round, |member| {
                asked.push(member);
                !stays.contains(&member)
            });
            (asked, result)
        };
        assert_eq!(wait(&[]), (vec![], Ok(())), "nobody was there");
        [3, 70, 3, 5, 99].into_iter().for_each(enter);
        assert_eq!(wait(&[5]), (vec![70, 5, 3], Err(5)));
        assert_eq!(wait(&[5]), (vec![5], Err(5)), "it has not left");
        [5, 7].into_iter().for_each(enter);
        assert_eq!(wait(&[]), (vec![7, 5], Ok(())));
        assert_eq!(wait(&[]), (vec![], Ok(())));
    }

    /// Goal: who was found by a later round is left to that one. Method: two rounds, of which the later one begins first to look.
    #[test]
    fn a_round_clears_nobody_whom_a_later_one_found() {
        let (roll, suspects, mark) = (Ready::new(), GracePeriods::default(), ReaderMark::default());
        let begin = || {
            suspects.begin(roll.taken(), |_| {
                mark.erase();
                true
            })
        };
        mark.sign(|| roll.add(1));
        let first = begin();
        assert_eq!(suspects.last(usize::MAX, first), Some(1));
        mark.sign(|| roll.add(1));
        let second = begin();
        suspects.clear(1, first);
        assert_eq!(suspects.each(first, |_| panic!("it has been outside since")), Ok(()));
        assert_eq!(suspects.each(second, |member| member != 1), Err(1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use std::collections::BTreeSet;

    /// Memory to which a right can be taken away, and a lock under which it is touched.
    struct Place {
        right: AtomicBool,
        memory: UnsafeCell<u32>,
        lock: Spin<()>,
        mark: ReaderMark,
        roll: Spin<BTreeSet<usize>>,
        suspects: GracePeriods,
    }

    // SAFETY: what the models look into.
    unsafe impl Sync for Place {}

    impl Place {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                right: AtomicBool::new(true),
                memory: UnsafeCell::new(0),
                lock: Spin::new(()),
                mark: ReaderMark::default(),
                roll: Spin::default(),
                suspects: GracePeriods::default(),
            })
        }

        /// Touches the memory if there is a right to.
        fn touch(&self) {
            let held = self.lock.lock();
            self.mark.sign(|| {
                self.roll.lock().insert(0);
            });
            if self.right.load(Ordering::Relaxed) {
                self.memory.with(|_| {});
            }
            drop(held);
        }

        /// Waits until nobody touches it by a right from before.
        fn pass(&self) {
            let taken = std::iter::from_fn(|| self.roll.lock().pop_first());
            let erase = |_| {
                self.mark.erase();
                true
            };
            let round = self.suspects.begin(taken, erase);
            let pass = |_| {
                drop(self.lock.lock());
                true
            };
            assert!(self.suspects.each(round, pass).is_ok());
        }

        /// Takes the right away; the memory is the owner's then.
        fn retire(&self) {
            self.right.store(false, Ordering::Relaxed);
            self.pass();
            self.memory.with_mut(|_| {});
        }
    }

    /// Goal: where a lock says who is inside, nobody touches memory that was taken back, and no heavy fence is needed. Method: one who
    /// touches it twice against the owner; loom objects to accesses at the same time.
    #[test]
    fn loom_who_is_in_a_lock_is_waited_for() {
        loom::model(|| {
            let place = Place::new();
            let other = place.clone();
            let thread = loom::thread::spawn(move || {
                other.touch();
                other.touch();
            });
            place.retire();
            thread.join().unwrap();
        });
    }

    /// Goal: the same where the name is taken off the roll and put there again. Method: one who stands there already touches it while the
    /// owner waits for something else before.
    #[test]
    fn loom_who_signs_again_is_waited_for() {
        loom::model(|| {
            let place = Place::new();
            place.touch();
            let other = place.clone();
            let thread = loom::thread::spawn(move || other.touch());
            place.pass();
            place.retire();
            thread.join().unwrap();
        });
    }
}
