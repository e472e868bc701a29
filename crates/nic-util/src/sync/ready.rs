//! [`ReadySet`]: a set of numbers in shared memory, with many producers and one consumer.
//!
//! A completion queue with many queue pairs reads from it which queue pairs have events, so that it need not
//! poll all. Two levels: a summary bit for each word of 64 members.

use super::atomics::*;

/// Maximum number of members. Models have two words, since each atomic adds to the checker's cost.
pub const MEMBERS: usize = if cfg!(loom) { 128 } else { 8192 };
const WORDS: usize = MEMBERS / 64;
const SUMMARIES: usize = WORDS.div_ceil(64);

/// The set; all zero is empty.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReadySet {
    /// A bit for each word that may have members.
    pub summary: [AtomicU64; SUMMARIES],
    /// A bit for each member.
    pub words: [AtomicU64; WORDS],
}

impl Default for ReadySet {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadySet {
    /// An empty set, in memory of this process.
    pub fn new() -> Self {
        Self {
            summary: std::array::from_fn(|_| AtomicU64::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a member, after publishing its event.
    #[inline]
    pub fn add(&self, member: usize) {
        let word = member / 64 % WORDS;
        self.words[word].fetch_or(1 << (member % 64), Ordering::Release);
        self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::Release);
    }

    /// Whether there may be members.
    #[inline]
    pub fn any(&self) -> bool {
        self.summary.iter().any(|s| s.load(Ordering::Relaxed) != 0)
    }

    /// Removes all members and returns them one by one. The caller may add a member again meanwhile; this
    /// call does not return it twice.
    #[inline]
    pub fn drain(&self) -> impl Iterator<Item = usize> {
        (0..SUMMARIES).filter(|i| self.summary[*i].load(Ordering::Relaxed) != 0).flat_map(move |i| {
            // The summary is cleared before its words: a member added in between sets it again.
            let words = bits(self.summary[i].swap(0, Ordering::AcqRel)).map(move |word| i * 64 + word);
            words.flat_map(move |word| {
                bits(self.words[word].swap(0, Ordering::AcqRel)).map(move |bit| word * 64 + bit)
            })
        })
    }

    /// Removes all members and passes them to `each`.
    #[inline]
    pub fn drain_each(&self, each: impl FnMut(usize)) {
        self.drain().for_each(each);
    }
}

/// The positions of a word's set bits.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn drain_returns_each_member_once() {
        let set = ReadySet::new();
        for member in [0, 63, 64, 4095, 4096, 8191, 63] {
            set.add(member);
        }
        assert!(set.any());
        let mut got = Vec::new();
        set.drain_each(|m| got.push(m));
        assert_eq!(got, [0, 63, 64, 4095, 4096, 8191]);
        assert!(!set.any());
        got.iter().for_each(|member| set.add(*member));
        assert_eq!(set.drain().inspect(|member| set.add(*member)).collect::<Vec<_>>(), got, "each once");
        assert_eq!(set.drain().collect::<Vec<_>>(), got, "each was added again");
        set.drain_each(|_| panic!("empty"));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: a member that is added while the set is emptied is returned once, then or later, together with
    /// what was published before. Method: members of two words are added while the set is emptied; a last
    /// `drain` must find the rest.
    #[test]
    fn loom_no_member_is_lost() {
        loom::model(|| {
            let shared = Arc::new((ReadySet::new(), [AtomicU32::new(0), AtomicU32::new(0)]));
            let add = |shared: &(ReadySet, [AtomicU32; 2]), place: usize| {
                shared.1[place].store(1, Ordering::Relaxed);
                shared.0.add(place * 64 + 5);
            };
            let adders = [0, 1].map(|place| {
                let shared = shared.clone();
                loom::thread::spawn(move || add(&shared, place))
            });
            let mut found = [0; 2];
            let mut drain = || {
                shared.0.drain_each(|member| {
                    assert_eq!(member % 64, 5);
                    assert_eq!(shared.1[member / 64].load(Ordering::Relaxed), 1, "it was published before");
                    found[member / 64] += 1;
                });
            };
            drain();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            drain();
            assert_eq!(found, [1, 1]);
            assert!(!shared.0.any());
        });
    }

    /// Goal: as above, for two members of one word, where the second finds the summary bit set.
    #[test]
    fn loom_two_members_of_a_word_are_both_found() {
        loom::model(|| {
            let shared = Arc::new(ReadySet::new());
            let adders = [1, 2].map(|member| {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.add(member))
            });
            let mut found = 0;
            let mut drain = || shared.drain_each(|member| found += member);
            drain();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            drain();
            assert_eq!(found, 3);
        });
    }
}
