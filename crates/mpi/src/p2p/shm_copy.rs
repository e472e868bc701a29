//! [`SharedMessage`]: long messages that both processes copy piece by piece: the receiver reads, the sender writes.
//!
//! A side claims a piece before copying it, by a counter in a word of NIC memory that both map. So neither waits for the other to
//! start, and the side that is less busy copies more. The receiver claims pieces from the start, the sender from the end: when a
//! buffer is reused, the same processor copies the same part, which is still in its cache. The words fill a cache line of the
//! receiver's memory, one word for each message being copied. The upper half of a word identifies the message, so that a late
//! sender claims no piece of another message.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use host::SlotKey;
use verbs::{Buf, Sge};

use crate::p2p::wire::RemoteMemory;
use transport::Registration;

/// The shortest message that both sides copy, and the limits of the piece size, in bytes: each piece costs a system call.
pub(crate) const SHARED_MIN: u64 = 64 << 10;
const PIECE_MIN: u64 = 32 << 10;
const PIECE_MAX: u64 = 128 << 10;
/// Pieces at most: the pieces claimed at either end are counted in a quarter of the word.
const PIECES_MAX: u64 = 1 << 15;
const SENDER_SHIFT: u32 = 16;
/// Messages per direction of a connection that are shared at a time.
const WORDS_PER_LINE: u32 = 8;

/// A message that both sides copy, as both describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedMessage {
    /// The index of its word.
    pub(crate) word: u32,
    /// The sequence number of the message among those of the word.
    pub(crate) sequence: u32,
    /// Its length in bytes.
    pub(crate) length: u64,
}

impl SharedMessage {
    fn piece_len(&self) -> u64 {
        let least = self.length.div_ceil(PIECES_MAX);
        (self.length / 8).clamp(PIECE_MIN, PIECE_MAX).max(least).next_multiple_of(4096)
    }

    /// The number of pieces.
    pub(crate) fn piece_count(&self) -> u64 {
        self.length.div_ceil(self.piece_len())
    }

    /// Its word, where `words` is the offset of the line.
    fn word_in<'a>(&self, memory: &'a Buf, words: usize) -> Option<&'a AtomicU64> {
        let word = (self.word < WORDS_PER_LINE).then_some(self.word as usize)?;
        memory.word(words + 8 * word).ok()
    }

    /// Resets the word: no piece is claimed.
    fn reset_word(&self, memory: &Buf, words: usize) -> Option<()> {
        self.word_in(memory, words)?.store(u64::from(self.sequence) << 32, Ordering::Release);
        Some(())
    }

    /// Claims the next piece from the start, for the receiver, or from the end, for the sender; returns its offset and its length.
    /// `None` when all are claimed.
    pub(crate) fn claim(&self, memory: &Buf, words: usize, receives: bool) -> Option<(u64, u32)> {
        let word = self.word_in(memory, words)?;
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let (first, last) = (now & 0xffff, now >> SENDER_SHIFT & 0xffff);
            if now >> 32 != u64::from(self.sequence) || first + last >= self.piece_count() {
                return None;
            }
            let (next, one) =
                if receives { (first, 1) } else { (self.piece_count() - 1 - last, 1 << SENDER_SHIFT) };
            match word.compare_exchange_weak(now, now + one, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let begin = next * self.piece_len();
                    return Some((begin, (self.length - begin).min(self.piece_len()) as u32));
                }
                Err(other) => now = other,
            }
        }
    }
}

/// The words of a line, which the receiver assigns to messages in the order in which they began to wait.
#[derive(Debug, Default)]
pub(crate) struct ClaimWords {
    sequences: [u32; WORDS_PER_LINE as usize],
    in_use: [bool; WORDS_PER_LINE as usize],
    /// The messages that wait, and the bytes of each.
    waiting: VecDeque<(SlotKey, u64)>,
}

impl ClaimWords {
    /// Queues a message of this many bytes for a word.
    pub(crate) fn wait(&mut self, key: SlotKey, length: u64) {
        self.waiting.push_back((key, length));
    }

    /// Assigns a word to the message that has waited longest; `None` if no message waits, or all words are in use.
    pub(crate) fn next(&mut self, memory: &Buf, words: usize) -> Option<(SlotKey, SharedMessage)> {
        let (key, length) = *self.waiting.front()?;
        let share = self.assign(memory, words, length)?;
        self.waiting.pop_front();
        Some((key, share))
    }

    /// Assigns a word to a message of this many bytes; `None` if all words are in use.
    fn assign(&mut self, memory: &Buf, words: usize, length: u64) -> Option<SharedMessage> {
        let word = self.in_use.iter().position(|in_use| !in_use)?;
        self.sequences[word] = self.sequences[word].wrapping_add(1);
        let share = SharedMessage { word: word as u32, sequence: self.sequences[word], length };
        share.reset_word(memory, words)?;
        self.in_use[word] = true;
        Some(share)
    }

    /// Frees the word; all pieces were claimed.
    pub(crate) fn end(&mut self, share: &SharedMessage) {
        if let Some(in_use) = self.in_use.get_mut(share.word as usize) {
            *in_use = false;
        }
    }
}

/// One side's part in copying a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub(crate) share: SharedMessage,
    /// Whether this side is the receiver, which owns the word.
    pub(crate) receives: bool,
    local: u64,
    lkey: u32,
    remote: RemoteMemory,
}

impl Copying {
    /// Describes a copy between memory at a local address and the peer's.
    pub(crate) fn new(
        share: SharedMessage,
        receives: bool,
        local: u64,
        registration: &Registration,
        remote: RemoteMemory,
    ) -> Self {
        Self { share, receives, local, lkey: registration.sge(local, 0).lkey, remote }
    }

    /// The local and the remote memory of a piece.
    pub(crate) fn ends(&self, (begin, length): (u64, u32)) -> (Sge, RemoteMemory) {
        let here = Sge { addr: self.local + begin, length, lkey: self.lkey };
        (here, RemoteMemory { addr: self.remote.addr + begin, length: length.into(), ..self.remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_claimed_once_and_cover_all() {
        let memory = Buf::alloc(128).expect("memory");
        for length in [SHARED_MIN, SHARED_MIN + 1, 1 << 20, (4 << 20) + 12_345, 100 << 20, 5 << 32] {
            let share = ClaimWords::default().assign(&memory, 64, length).expect("free");
            let claimed =
                |receives| std::iter::from_fn(|| share.claim(&memory, 64, receives)).collect::<Vec<_>>();
            let (mut all, theirs) = std::thread::scope(|scope| {
                let other = scope.spawn(|| claimed(false));
                (claimed(true), other.join().expect("no panic"))
            });
            assert!(all.is_sorted() && theirs.iter().rev().is_sorted(), "each from its end");
            all.extend(theirs);
            all.sort_unstable();
            assert_eq!(all.len() as u64, share.piece_count());
            let end = all.iter().fold(0, |end, (begin, length)| {
                assert_eq!(*begin, end, "pieces of {length} bytes follow each other");
                begin + u64::from(*length)
            });
            assert_eq!(end, length);
        }
    }

    #[test]
    fn a_late_sender_claims_nothing_of_another_message() {
        let (memory, mut words) = (Buf::alloc(64).expect("memory"), ClaimWords::default());
        let all: Vec<SharedMessage> =
            (0..WORDS_PER_LINE).map(|_| words.assign(&memory, 0, SHARED_MIN).expect("free")).collect();
        assert_eq!(words.assign(&memory, 0, SHARED_MIN), None);
        words.end(&all[3]);
        let next = words.assign(&memory, 0, SHARED_MIN).expect("free again");
        assert_eq!((next.word, all[3].claim(&memory, 0, false)), (all[3].word, None));
        assert!(next.claim(&memory, 0, false).is_some() && all[2].claim(&memory, 0, false).is_some());
        assert_eq!(
            SharedMessage { word: WORDS_PER_LINE, ..next }.claim(&memory, 0, false),
            None,
            "a peer that lies"
        );
    }
}
