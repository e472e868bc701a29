//! [`Ready`]: a set of numbers that many may add to and one empties, in shared memory.
//!
//! A completion queue with many queue pairs learns from it which of them have something, without looking at
//! all. Two levels: a summary bit for each word of 64 members.

use super::atomics::*;

/// How many members there can be.
pub(crate) const MEMBERS: usize = 8192;
const WORDS: usize = MEMBERS / 64;
const SUMMARIES: usize = WORDS / 64;

/// The set; all zero is empty.
#[repr(C, align(64))]
pub(crate) struct Ready {
    summary: [AtomicU64; SUMMARIES],
    words: [AtomicU64; WORDS],
}

impl Ready {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            summary: std::array::from_fn(|_| AtomicU64::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a member, after publishing what it is ready with.
    pub(crate) fn add(&self, member: usize) {
        let word = member / 64 % WORDS;
        self.words[word].fetch_or(1 << (member % 64), Ordering::Release);
        self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::Release);
    }

    /// Whether there may be members.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.summary.iter().any(|s| s.load(Ordering::Relaxed) != 0)
    }

    /// Removes all members and hands them to `each`.
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) {
        for (i, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // The summary is cleared before its words: a member added in between sets it again.
            let mut words = summary.swap(0, Ordering::AcqRel);
            while words != 0 {
                let word = i * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bits = self.words[word].swap(0, Ordering::AcqRel);
                while bits != 0 {
                    each(word * 64 + bits.trailing_zeros() as usize);
                    bits &= bits - 1;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn takes_what_was_added_once() {
        let set = Ready::new();
        for member in [0, 63, 64, 4095, 4096, 8191, 63] {
            set.add(member);
        }
        assert!(set.any());
        let mut got = Vec::new();
        set.take(|m| got.push(m));
        assert_eq!(got, [0, 63, 64, 4095, 4096, 8191]);
        assert!(!set.any());
        set.take(|_| panic!("empty"));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A set small enough to explore: the same two steps on one word each.
    struct Small(AtomicU64, AtomicU64);

    /// Goal: a member added while the set is taken is seen then or later. Method: the two-level steps of `add`
    /// and `take` on one word; after both, a last take must have seen it.
    #[test]
    fn loom_no_member_is_lost() {
        loom::model(|| {
            let set = Arc::new(Small(AtomicU64::new(0), AtomicU64::new(0)));
            let adder = {
                let s = set.clone();
                loom::thread::spawn(move || {
                    s.1.fetch_or(1, Ordering::Release);
                    s.0.fetch_or(1, Ordering::Release);
                })
            };
            let take = || match set.0.swap(0, Ordering::AcqRel) {
                0 => 0,
                _ => set.1.swap(0, Ordering::AcqRel),
            };
            let first = take();
            adder.join().unwrap();
            assert_eq!(first + take(), 1);
        });
    }
}
