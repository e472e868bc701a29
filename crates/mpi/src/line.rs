//! [`Line`]: one cache line that two processes write in turn, each its own half. An answer goes into the line that the question
//! came in, so that it costs one transfer between processors; a record of a ring costs two, as its line must first come back from
//! the receiver.
//!
//! A half holds a message and what its writer has heard of the other half: only then the other may write again. So a side puts a
//! message here when its peer has spoken since it did so last; all others go to the ring. Each message says how many records of the
//! ring come before it, which merges the two.
//!
//! The line is a part of the memory that the lower rank offers.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Words};

use crate::connection::Payload;
use crate::error::{Class, Error, Result};
use crate::matching::Match;
use crate::memory::Piece;
use crate::wire::{Half, Label};

/// What a receive finds that has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    /// Something that it does not take so.
    Other,
    /// So many bytes in two words, which it has taken.
    Words {
        tag: i32,
        words: [u64; 2],
        len: usize,
    },
}

/// Bytes of the line, of a half, and of what comes before the payload in that.
pub(crate) const LINE: usize = 64;
const HALF: usize = LINE / 2;
const WORD: usize = 8;
const HEAD: usize = 16;
/// Bytes of the longest payload.
pub(crate) const PAYLOAD: usize = HALF - HEAD;

#[cold]
fn nonsense() -> Error {
    Error::new(Class::OTHER, "the peer wrote what no process of this version writes")
}

/// The line, as one side has it.
#[derive(Debug)]
pub(crate) struct Line {
    memory: Buf,
    words: Words,
    /// Where the other side's half begins, and with which word each.
    at: usize,
    mine: usize,
    theirs: usize,
    /// Messages that this side has put, has taken, and is done with.
    put: u8,
    taken: u8,
    done: u8,
}

impl Line {
    /// The line at a place in memory, which tells the peer that this side looks at it.
    pub(crate) fn new(memory: Buf, at: usize, is_lower: bool) -> Result<Self> {
        let words = memory.words(at, LINE / WORD)?;
        let (mine, theirs) = if is_lower { (0, HALF / WORD) } else { (HALF / WORD, 0) };
        words[mine].store(Half::GREETING, Ordering::Release);
        Ok(Self { memory, words, at: at + theirs * WORD, mine, theirs, put: 0, taken: 0, done: 0 })
    }

    /// Whether a short message with so many bytes of payload may go here now.
    #[inline]
    pub(crate) fn takes(&self, len: usize) -> bool {
        len <= PAYLOAD && Half::has_heard(self.theirs(), self.put)
    }

    /// Puts a short message that the line [`Line::takes`], behind so many records of the ring.
    pub(crate) fn put(&mut self, label: Label, payload: &Payload<'_>, records: u16) {
        let (mut bytes, len) = ([0; PAYLOAD], payload.len());
        payload.load(&mut bytes[..len]);
        let word = |part: &[u8; 8]| u64::from_ne_bytes(*part);
        let words = bytes.first_chunk().zip(bytes.last_chunk());
        self.put_words(
            label,
            words.map_or([0; 2], |(first, second)| [word(first), word(second)]),
            len,
            records,
        );
    }

    /// As [`Line::put`], of a program's bytes.
    #[inline]
    pub(crate) fn put_piece(&mut self, label: Label, piece: Piece, records: u16) {
        self.put_words(label, piece.words(), piece.len(), records);
    }

    #[inline]
    fn put_words(&mut self, label: Label, words: [u64; 2], len: usize, records: u16) {
        self.put = self.put.wrapping_add(1);
        let half = Half { number: self.put, heard: self.done, len: len as u8, records, tag: label.tag };
        let [head, context, first, second] = self.half(self.mine);
        first.store(words[0], Ordering::Relaxed);
        second.store(words[1], Ordering::Relaxed);
        context.store(label.context, Ordering::Relaxed);
        head.store(half.word(), Ordering::Release);
    }

    /// Takes the message that has come, if it is next behind so many records of the ring, wanted, and not too long; what that is, and
    /// what it brought.
    #[inline]
    pub(crate) fn take_wanted(&mut self, records: u16, wanted: &Match, room: usize) -> Wanted {
        let [head, context, first, second] = self.half(self.theirs);
        let word = head.load(Ordering::Acquire);
        if !Half::is_news(word, self.taken) {
            return Wanted::Nothing;
        }
        let Some((half, label)) = Half::parse(word, context.load(Ordering::Relaxed)) else {
            return Wanted::Other;
        };
        let len = usize::from(half.len);
        if half.records != records {
            return Wanted::Nothing;
        }
        if !wanted.takes(&label) || len > room.min(PAYLOAD) {
            return Wanted::Other;
        }
        let words = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
        self.pass();
        Wanted::Words { tag: label.tag, words, len }
    }

    /// Whether a message has come.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        Half::is_news(self.theirs(), self.taken)
    }

    /// The message that has come, if it is next behind so many records of the ring: what it matches, and where its payload lies.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    #[inline]
    pub(crate) fn look(&self, records: u16) -> Result<Option<(Label, usize, usize)>> {
        let [head, context, ..] = self.half(self.theirs);
        let word = head.load(Ordering::Acquire);
        if !Half::is_news(word, self.taken) {
            return Ok(None);
        }
        let context = context.load(Ordering::Relaxed);
        let (half, label) = Half::parse(word, context).ok_or_else(nonsense)?;
        if usize::from(half.len) > PAYLOAD {
            return Err(nonsense());
        }
        Ok((half.records == records).then(|| (label, self.at + HEAD, half.len.into())))
    }

    /// Takes the message that [`Line::look`] has found. It lies here until it is [`Line::release`]d.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Takes the message that [`Line::look`] has found, which is no more needed.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.take();
        self.release();
    }

    /// The message that was taken is no more needed.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.done = self.taken;
    }

    /// The memory that payloads lie in.
    pub(crate) fn buf(&self) -> &Buf {
        &self.memory
    }

    /// The first word of the other half.
    #[inline]
    fn theirs(&self) -> u64 {
        self.words[self.theirs].load(Ordering::Acquire)
    }

    /// A half: its head, the context, the payload.
    #[inline]
    fn half(&self, at: usize) -> [&AtomicU64; 4] {
        let [head, context, first, second] = &self.words[at..at + HALF / WORD] else {
            unreachable!("a half has so many words");
        };
        [head, context, first, second]
    }
}
