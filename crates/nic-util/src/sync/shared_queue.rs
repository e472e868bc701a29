//! The queue of a shared receive queue: one process posts, several claim, each may die at any step.
//!
//! An entry is one word: lap, claimant (0 for none) and the number of the receive. Claiming is one
//! compare-and-swap on the entry, so that a process that dies has either claimed it (and the entry holds its
//! number) or not.

use super::atomics::*;

const LAP_SHIFT: u32 = 32;
const CLAIMANT_SHIFT: u32 = 16;

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    lap: u32,
    /// The number of the claimant; 0 if not claimed.
    pub claimant: u16,
    /// The number of the receive.
    pub receive: u16,
}

impl Entry {
    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.lap) << LAP_SHIFT
            | u64::from(self.claimant) << CLAIMANT_SHIFT
            | u64::from(self.receive)
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        Self {
            lap: (word >> LAP_SHIFT) as u32,
            claimant: (word >> CLAIMANT_SHIFT) as u16,
            receive: word as u16,
        }
    }
}

/// Fills the entry for position `index` and returns its content of the lap before, with the claimant. The
/// caller makes sure that it was claimed: it posts no more receives than the ring has entries.
#[inline]
pub fn post(entry: &AtomicU64, index: u64, shift: u32, receive: u16) -> Option<Entry> {
    let old = Entry::unpack(entry.load(Ordering::Acquire));
    let new = Entry { lap: super::ring::lap(index, shift), claimant: 0, receive };
    entry.store(new.pack(), Ordering::Release);
    (old.lap != 0).then_some(old)
}

/// Claims the first unclaimed entry and returns its receive; `entry_at` returns the entry of a position.
/// `None` if there is none.
#[inline]
pub fn claim<'a>(
    head: &AtomicU64,
    shift: u32,
    entry_at: impl Fn(u64) -> &'a AtomicU64,
    claimant: u16,
) -> Option<u16> {
    // Each iteration without a claim passes a claimed entry. After more than a lap or two, words change that
    // should not: a later call will detect that.
    for _ in 0..(2_u64 << shift) + 64 {
        let index = head.load(Ordering::Acquire);
        let word = entry_at(index);
        let seen = word.load(Ordering::Acquire);
        let entry = Entry::unpack(seen);
        if entry.lap != super::ring::lap(index, shift) {
            if head.load(Ordering::Acquire) == index {
                return None;
            }
            continue;
        }
        let mine = entry.claimant == 0
            && word
                .compare_exchange(
                    seen,
                    Entry { claimant, ..entry }.pack(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok();
        // Claimed, by this process or another: advance the head past it, as its claimant may be dead.
        let _ = head.compare_exchange(index, index.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
        if mine {
            return Some(entry.receive);
        }
    }
    None
}

/// The current content of an entry, if it was ever filled.
#[inline]
pub fn read(entry: &AtomicU64) -> Option<Entry> {
    let entry = Entry::unpack(entry.load(Ordering::Acquire));
    (entry.lap != 0).then_some(entry)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_receive_is_claimed_once_and_in_order() {
        let entries: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let head = AtomicU64::new(0);
        let at = |i: u64| &entries[i as usize & 3];
        assert_eq!(claim(&head, 2, at, 1), None);
        for round in 0..5_u64 {
            for k in 0..4 {
                let old = post(at(round * 4 + k), round * 4 + k, 2, (round * 4 + k) as u16);
                assert_eq!(old.map(|e| e.claimant), (round > 0).then_some(7));
            }
            for k in 0..4 {
                assert_eq!(claim(&head, 2, at, 7), Some((round * 4 + k) as u16));
            }
            assert_eq!(claim(&head, 2, at, 7), None);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: two claimants never get the same receive, and none is lost.
    #[test]
    fn loom_two_claimants_share_without_overlap() {
        loom::model(|| {
            let s = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            for k in 0..2 {
                post(&s.1[k], k as u64, 1, k as u16 + 5);
            }
            let claim_one = |s: &(AtomicU64, [AtomicU64; 2]), me| {
                claim(&s.0, 1, |i| &s.1[i as usize & 1], me).expect("there is one for each")
            };
            let other = {
                let s = s.clone();
                loom::thread::spawn(move || claim_one(&s, 1))
            };
            let mine = claim_one(&s, 2);
            let theirs = other.join().unwrap();
            assert_eq!(mine + theirs, 11);
            assert_ne!(mine, theirs);
        });
    }
}
