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

use verbs::Buf;

use crate::connection::Payload;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::wire::{Half, Label};

/// Bytes of the line, of a half, and of what comes before the payload in that.
pub(crate) const LINE: usize = 64;
const HALF: usize = LINE / 2;
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
    /// Where the halves begin.
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
        let (mine, theirs) = if is_lower { (at, at + HALF) } else { (at + HALF, at) };
        // Looks at both ends of the line: later ones are inside.
        memory.word(at + LINE - 8)?;
        memory.word(mine)?.store(Half::GREETING, Ordering::Release);
        Ok(Self { memory, mine, theirs, put: 0, taken: 0, done: 0 })
    }

    /// Whether a short message with so many bytes of payload may go here now.
    #[inline]
    pub(crate) fn takes(&self, len: usize) -> bool {
        len <= PAYLOAD && Half::has_heard(self.word(self.theirs).load(Ordering::Relaxed), self.put)
    }

    /// Puts a short message that the line [`Line::takes`], behind so many records of the ring.
    pub(crate) fn put(&mut self, label: Label, payload: &Payload<'_>, records: u16) {
        let (mut bytes, len) = ([0; PAYLOAD], payload.len());
        payload.load(&mut bytes[..len]);
        self.put_bytes(label, bytes, len, records);
    }

    /// As [`Line::put`], of a program's payload.
    #[inline]
    pub(crate) fn put_short(&mut self, label: Label, buffer: &Buffer, records: u16) {
        let (mut bytes, len) = ([0; PAYLOAD], buffer.len() as usize);
        buffer.load(&mut bytes[..len]);
        self.put_bytes(label, bytes, len, records);
    }

    #[inline]
    fn put_bytes(&mut self, label: Label, bytes: [u8; PAYLOAD], len: usize, records: u16) {
        let (first, second) = bytes.split_at(8);
        for (at, part) in [(HEAD, first), (HEAD + 8, second)] {
            let part = part.try_into().map_or(0, u64::from_ne_bytes);
            self.word(self.mine + at).store(part, Ordering::Relaxed);
        }
        self.word(self.mine + 8).store(label.context, Ordering::Relaxed);
        self.put = self.put.wrapping_add(1);
        let half = Half { number: self.put, heard: self.done, len: len as u8, records, tag: label.tag };
        self.word(self.mine).store(half.word(), Ordering::Release);
    }

    /// Whether a message has come.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        Half::is_news(self.word(self.theirs).load(Ordering::Acquire), self.taken)
    }

    /// The message that has come, if it is next behind so many records of the ring: what it matches, and where its payload lies.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    #[inline]
    pub(crate) fn look(&self, records: u16) -> Result<Option<(Label, usize, usize)>> {
        let word = self.word(self.theirs).load(Ordering::Acquire);
        if !Half::is_news(word, self.taken) {
            return Ok(None);
        }
        let context = self.word(self.theirs + 8).load(Ordering::Relaxed);
        let (half, label) = Half::parse(word, context).ok_or_else(nonsense)?;
        if usize::from(half.len) > PAYLOAD {
            return Err(nonsense());
        }
        Ok((half.records == records).then(|| (label, self.theirs + HEAD, half.len.into())))
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

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        self.memory.word(at).expect("all of the line is in its memory, and aligned there")
    }
}
