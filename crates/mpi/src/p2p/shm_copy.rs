//! [`Share`]: long messages that both processes copy, each some pieces: the receiver reads, the sender writes.
//!
//! Whoever copies a piece claims it before, by counting on in a word of NIC memory that both map. So neither waits for the other to
//! begin, and who has nothing else to do does most of it. The receiver takes pieces from the begin, the sender from the end: of a
//! buffer that is used again, the same processor copies the same part, and has it in its cache. The words are a line of the receiver's
//! memory, one for each message that is being copied; its upper half says which that is, so that a sender that comes late claims
//! nothing of another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use host::SlotKey;
use verbs::{Buf, Sge};

use crate::p2p::wire::Exposed;
use transport::Registration;

/// Bytes from which on a message is worth two copiers, and of the pieces: a call of the system for each.
pub(crate) const SHARED_MIN: u64 = 64 << 10;
const PIECE_MIN: u64 = 32 << 10;
const PIECE_MAX: u64 = 128 << 10;
/// Pieces at most: those of either end are counted in half of half a word.
const PIECES_MAX: u64 = 1 << 15;
const END: u32 = 16;
/// Messages of one direction of a connection that are shared at a time.
const PLACES: u32 = 8;

/// A message that two copy, as both know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Which word.
    pub(crate) place: u32,
    /// Which of the word's messages.
    pub(crate) turn: u32,
    /// Bytes of all.
    pub(crate) length: u64,
}

impl Share {
    fn piece(&self) -> u64 {
        let least = self.length.div_ceil(PIECES_MAX);
        (self.length / 8).clamp(PIECE_MIN, PIECE_MAX).max(least).next_multiple_of(4096)
    }

    /// How many pieces there are.
    pub(crate) fn pieces(&self) -> u64 {
        self.length.div_ceil(self.piece())
    }

    /// Its word in the line that begins at `words`.
    fn word<'a>(&self, memory: &'a Buf, words: usize) -> Option<&'a AtomicU64> {
        let place = (self.place < PLACES).then_some(self.place as usize)?;
        memory.word(words + 8 * place).ok()
    }

    /// Begins: nothing is claimed.
    fn begin(&self, memory: &Buf, words: usize) -> Option<()> {
        self.word(memory, words)?.store(u64::from(self.turn) << 32, Ordering::Release);
        Some(())
    }

    /// The next piece from the begin, for the receiver, or from the end, for who claims it by this: where it begins, and its length.
    /// `None` when all are claimed.
    pub(crate) fn claim(&self, memory: &Buf, words: usize, receives: bool) -> Option<(u64, u32)> {
        let word = self.word(memory, words)?;
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (first, last) = (now & 0xffff, now >> END & 0xffff);
            if now >> 32 != u64::from(self.turn) || first + last >= self.pieces() {
                return None;
            }
            let (next, one) = if receives { (first, 1) } else { (self.pieces() - 1 - last, 1 << END) };
            match word.compare_exchange_weak(now, now + one, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let begin = next * self.piece();
                    return Some((begin, (self.length - begin).min(self.piece()) as u32));
                }
                Err(other) => now = other,
            }
        }
    }
}

/// The words of a line, as its owner gives them to messages: to those first that have waited longest.
#[derive(Debug, Default)]
pub(crate) struct Words {
    turns: [u32; PLACES as usize],
    taken: [bool; PLACES as usize],
    /// Which messages wait, and the bytes of each.
    waiting: VecDeque<(SlotKey, u64)>,
}

impl Words {
    /// Has a message of so many bytes wait for a word.
    pub(crate) fn wait(&mut self, key: SlotKey, length: u64) {
        self.waiting.push_back((key, length));
    }

    /// The message that has waited longest, and a share for it; `None` if there is none, or while all words are taken.
    pub(crate) fn next(&mut self, memory: &Buf, words: usize) -> Option<(SlotKey, Share)> {
        let (key, length) = *self.waiting.front()?;
        let share = self.begin(memory, words, length)?;
        self.waiting.pop_front();
        Some((key, share))
    }

    /// A share for a message of so many bytes; `None` while all words are taken.
    fn begin(&mut self, memory: &Buf, words: usize, length: u64) -> Option<Share> {
        let place = self.taken.iter().position(|taken| !taken)?;
        self.turns[place] = self.turns[place].wrapping_add(1);
        let share = Share { place: place as u32, turn: self.turns[place], length };
        share.begin(memory, words)?;
        self.taken[place] = true;
        Some(share)
    }

    /// Takes the word back; all pieces were claimed.
    pub(crate) fn end(&mut self, share: &Share) {
        if let Some(taken) = self.taken.get_mut(share.place as usize) {
            *taken = false;
        }
    }
}

/// One side's part in copying a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub(crate) share: Share,
    /// Whether this side receives it, and so has the word.
    pub(crate) receives: bool,
    local: u64,
    lkey: u32,
    remote: Exposed,
}

impl Copying {
    /// Between memory that begins at an address here and the peer's.
    pub(crate) fn new(
        share: Share,
        receives: bool,
        local: u64,
        reach: &Registration,
        remote: Exposed,
    ) -> Self {
        Self { share, receives, local, lkey: reach.sge(local, 0).lkey, remote }
    }

    /// A piece, here and there.
    pub(crate) fn ends(&self, (begin, length): (u64, u32)) -> (Sge, Exposed) {
        let here = Sge { addr: self.local + begin, length, lkey: self.lkey };
        (here, Exposed { addr: self.remote.addr + begin, length: length.into(), ..self.remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_claimed_once_and_cover_all() {
        let memory = Buf::alloc(128).expect("memory");
        for length in [SHARED_MIN, SHARED_MIN + 1, 1 << 20, (4 << 20) + 12_345, 100 << 20, 5 << 32] {
            let share = Words::default().begin(&memory, 64, length).expect("free");
            let claimed =
                |receives| std::iter::from_fn(|| share.claim(&memory, 64, receives)).collect::<Vec<_>>();
            let (mut all, theirs) = std::thread::scope(|scope| {
                let other = scope.spawn(|| claimed(false));
                (claimed(true), other.join().expect("no panic"))
            });
            assert!(all.is_sorted() && theirs.iter().rev().is_sorted(), "each from its end");
            all.extend(theirs);
            all.sort_unstable();
            assert_eq!(all.len() as u64, share.pieces());
            let end = all.iter().fold(0, |end, (begin, length)| {
                assert_eq!(*begin, end, "pieces of {length} bytes follow each other");
                begin + u64::from(*length)
            });
            assert_eq!(end, length);
        }
    }

    #[test]
    fn a_late_sender_claims_nothing_of_another_message() {
        let (memory, mut words) = (Buf::alloc(64).expect("memory"), Words::default());
        let all: Vec<Share> =
            (0..PLACES).map(|_| words.begin(&memory, 0, SHARED_MIN).expect("free")).collect();
        assert_eq!(words.begin(&memory, 0, SHARED_MIN), None);
        words.end(&all[3]);
        let next = words.begin(&memory, 0, SHARED_MIN).expect("free again");
        assert_eq!((next.place, all[3].claim(&memory, 0, false)), (all[3].place, None));
        assert!(next.claim(&memory, 0, false).is_some() && all[2].claim(&memory, 0, false).is_some());
        assert_eq!(Share { place: PLACES, ..next }.claim(&memory, 0, false), None, "a peer that lies");
    }
}
