//! [`Inbox`] and [`Outbox`]: messages by stores into the receiver's NIC memory, where peers can map it.
//!
//! The memory is a ring of lines behind three lines more: in the first word of one the receiver counts the lines that it is done
//! with, one is the pair's [`Line`], and one is for messages that both copy ([`Share`](crate::share::Share)). A
//! message is a record: its head, whose first word is stored last, and its payload. The first word of the place behind it is cleared
//! before that; so whoever finds another first word than 0 finds all of the record. A record lies in one piece: one that does not fit
//! in front of the ring's end begins at the ring's begin, where a
//! mark leads.
//!
//! Nobody waits for a message to get room: the sender reads the receiver's count. Whoever dies in the middle of a record has said
//! nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use transport::Line;
use verbs::{Access, Buf, Mr, Pd, Qp, RemoteAddr, Words};

use crate::connection::{Payload, Received};
use crate::error::{Class, Error, Result};
use crate::matching::Match;
use crate::memory::Piece;
use crate::wire::{
    HEAD, HEAD_MAX, Label, MARK, Message, Offer, eager_words, is_eager, length_of, parse_eager,
};

const LINE: usize = Line::LEN;
/// Where the line begins that both write.
pub(crate) const SHARED_LINE: usize = LINE;
/// Where the line begins whose words say how far long messages are copied (`share`).
pub(crate) const WORDS: usize = 2 * LINE;
const WORD: usize = 8;
/// How many lines are before the ring.
const BEFORE: usize = 3;
/// Lines reserved for the last record of a connection ([`Message::Leave`]), so that it never waits for room.
const LAST: u64 = 1;
/// Of how many parts of the ring the receiver tells when it is done with one.
const PARTS: u64 = 4;

/// Lines that so many bytes take.
fn lines(bytes: usize) -> u64 {
    bytes.div_ceil(LINE) as u64
}

/// Where a ring's lines are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Lines of the ring, a power of two, less one.
    mask: u64,
}

impl Shape {
    /// Of memory of so many bytes.
    fn of(bytes: usize) -> Self {
        Self { mask: lines(bytes) - BEFORE as u64 - 1 }
    }

    /// Lines of the ring.
    fn count(self) -> u64 {
        self.mask + 1
    }

    /// Where a line is in the memory; lines are counted on, lap by lap.
    fn at(self, line: u64) -> usize {
        (BEFORE + (line & self.mask) as usize) * LINE
    }

    /// Lines between a place and the ring's end.
    fn ahead(self, line: u64) -> u64 {
        self.count() - (line & self.mask)
    }
}

/// All words of a ring's memory.
fn all_words(memory: &Buf) -> Result<Words> {
    Ok(memory.words(0, memory.len() / WORD)?)
}

/// The first words of a record: its head of two, and two of its payload.
#[inline]
fn begin_of(words: &[AtomicU64], at: usize) -> [&AtomicU64; 4] {
    let [first, second, third, fourth] = &words[at / WORD..at / WORD + 4] else {
        unreachable!("a line has more words");
    };
    [first, second, third, fourth]
}

#[cold]
fn nonsense() -> Error {
    Error::new(Class::OTHER, "the peer stored what no process of this version stores")
}

/// Bytes of the memory of a ring that has so many.
pub(crate) fn memory_len(ring: usize) -> usize {
    BEFORE * LINE + ring
}

/// A record that has come: where it begins, and its first word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    at: usize,
    first: u64,
}

/// Where a peer's messages come: memory of this process's NIC.
#[derive(Debug)]
pub(crate) struct Inbox {
    memory: Mr,
    words: Words,
    shape: Shape,
    /// The next record, and how many were taken.
    next: u64,
    pub(crate) records: u16,
    /// Lines that are done with, and those that the sender can know of.
    done: u64,
    told: u64,
}

impl Inbox {
    /// A ring of so many bytes, a power of two.
    pub(crate) fn new(pd: &Pd, ring: usize) -> Result<Self> {
        let memory = pd.device().alloc_dm(memory_len(ring))?;
        let words = all_words(&memory)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.reg_mr(&memory, access)?;
        Ok(Self { memory, words, shape: Shape::of(memory_len(ring)), next: 0, records: 0, done: 0, told: 0 })
    }

    /// What the peer needs to map it.
    pub(crate) fn offer(&self) -> Offer {
        let RemoteAddr { addr, rkey } = self.memory.remote(0);
        Offer { addr, rkey, length: self.memory.buf().len() as u32 }
    }

    /// The memory that payloads lie in.
    pub(crate) fn buf(&self) -> &Buf {
        self.memory.buf()
    }

    /// Whether there is another message.
    #[inline]
    pub(crate) fn has_news(&mut self) -> bool {
        self.peek().is_some()
    }

    /// Where the next message is, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Found> {
        let at = self.shape.at(self.next);
        match self.words[at / WORD].load(Ordering::Acquire) {
            0 => None,
            MARK => self.peek_at_begin(),
            first => Some(Found { at, first }),
        }
    }

    /// As [`Inbox::peek`], where a mark leads to the ring's begin.
    #[cold]
    fn peek_at_begin(&mut self) -> Option<Found> {
        self.next += self.shape.ahead(self.next);
        let (at, first) = (self.shape.at(self.next), self.first_word());
        (first != 0).then_some(Found { at, first })
    }

    /// The next message, if it [`Inbox::has_news`] and is a short one whose payload is here: what it matches, and where its payload
    /// lies.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    #[inline]
    pub(crate) fn look(&self) -> Result<Option<(Label, usize, usize)>> {
        let at = self.shape.at(self.next);
        let [first, second, ..] = begin_of(&self.words, at).map(|word| word.load(Ordering::Relaxed));
        if !is_eager(first) {
            return Ok(None);
        }
        let (label, len) = parse_eager([first, second]).ok_or_else(nonsense)?;
        if lines(len) > self.shape.ahead(self.next) {
            return Err(nonsense());
        }
        Ok(Some((label, at + HEAD, len - HEAD)))
    }

    /// Takes the message that [`Inbox::peek`] has found, if it is a short one, and wanted, and there is room for all of its payload. Its
    /// tag, the payload's length, and whether the sender may wait for its lines.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    #[inline]
    pub(crate) fn take_piece(
        &mut self,
        Found { at, first }: Found,
        wanted: &Match,
        into: Piece,
    ) -> Result<Option<(i32, usize, bool)>> {
        if !is_eager(first) {
            return Ok(None);
        }
        let [_, second, one, two] = begin_of(&self.words, at).map(|word| word.load(Ordering::Relaxed));
        let (label, whole) = parse_eager([first, second]).ok_or_else(nonsense)?;
        let (lines, len) = (lines(whole), whole - HEAD);
        if lines > self.shape.ahead(self.next) {
            return Err(nonsense());
        }
        if !wanted.takes(&label) || len > into.len() {
            return Ok(None);
        }
        if len > 2 * WORD {
            into.store_from(self.buf(), at + HEAD, len)?;
        } else {
            into.put_words([one, two], len);
        }
        (self.next, self.records) = (self.next + lines, self.records.wrapping_add(1));
        Ok(Some((label.tag, len, self.release(self.next))))
    }

    /// Takes the message that [`Inbox::look`] has found, with so many bytes of payload, and gives its lines back as
    /// [`Inbox::release`].
    #[inline]
    pub(crate) fn pass(&mut self, len: usize) -> bool {
        (self.next, self.records) = (self.next + lines(HEAD + len), self.records.wrapping_add(1));
        self.release(self.next)
    }

    /// The next message, if it [`Inbox::has_news`], and up to which line it goes. It lies there until that is [`Inbox::release`]d.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    pub(crate) fn take(&mut self) -> Result<(Received, u64)> {
        let at = self.shape.at(self.next);
        let mut head = [0; HEAD_MAX];
        self.buf().read(at, &mut head)?;
        let len = length_of(&head);
        let (message, _) = Message::parse(&head, len).ok_or_else(nonsense)?;
        if lines(len) > self.shape.ahead(self.next) {
            return Err(nonsense());
        }
        (self.next, self.records) = (self.next + lines(len), self.records.wrapping_add(1));
        let head_len = message.head_len();
        Ok((Received { message, at: at + head_len, len: len - head_len }, self.next))
    }

    #[inline]
    fn first_word(&self) -> u64 {
        self.words[self.shape.at(self.next) / WORD].load(Ordering::Acquire)
    }

    /// The lines before this one are free again; whether the sender, who can know now, may wait for them.
    #[inline]
    pub(crate) fn release(&mut self, upto: u64) -> bool {
        self.done = upto;
        let tells = self.done - self.told >= self.shape.count() / PARTS;
        if tells {
            self.told = self.done;
            self.words[0].store(self.done, Ordering::Release);
        }
        tells
    }
}

/// Where messages to a peer go: memory of its NIC.
#[derive(Debug)]
pub(crate) struct Outbox {
    memory: Buf,
    words: Words,
    shape: Shape,
    /// Where the next record goes, and how many went.
    next: u64,
    pub(crate) records: u16,
    /// Lines that the receiver is done with, as far as this side knows.
    free: u64,
}

impl Outbox {
    /// The ring that a peer offers; nothing if it cannot be mapped, or is none.
    pub(crate) fn new(qp: &Qp, offer: Offer, longest: usize) -> Option<Self> {
        let len = offer.length as usize;
        let count = lines(len).checked_sub(BEFORE as u64)?;
        let is_ring = len.is_multiple_of(LINE) && count.is_power_of_two();
        // Behind the longest record one's worth may be lost at the end, and of a part the receiver does not tell.
        if !is_ring || 2 * lines(longest) + 1 + LAST + count / PARTS > count {
            return None;
        }
        let memory = qp.map(RemoteAddr { addr: offer.addr, rkey: offer.rkey }, len).ok()?;
        let words = all_words(&memory).ok()?;
        Some(Self { memory, words, shape: Shape::of(len), next: 0, records: 0, free: 0 })
    }

    /// The receiver's memory, all of it: as long as the [`Offer`] says.
    pub(crate) fn buf(&self) -> &Buf {
        &self.memory
    }

    /// Whether there is room for a record of `len` bytes and the last record of the connection.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        let lines = lines(len);
        let ahead = self.shape.ahead(self.next);
        let lost = if lines > ahead { ahead } else { 0 };
        let end = self.next + lost + lines + 1 + LAST;
        end <= self.free + self.shape.count() || self.has_room_by_now(end)
    }

    /// Whether there is room up to a line, by what the receiver tells now.
    #[cold]
    fn has_room_by_now(&mut self, end: u64) -> bool {
        let told = self.words[0].load(Ordering::Acquire);
        // What a peer says that lies harms nobody else.
        self.free = told.clamp(self.free, self.next);
        end <= self.free + self.shape.count()
    }

    /// Stores a message. There must be [room](Outbox::has_room), unless it is the connection's last. The payload may be used again when this
    /// returns.
    pub(crate) fn put(&mut self, message: &Message, payload: &Payload<'_>) -> Result<()> {
        let len = message.head_len() + payload.len();
        let at = self.begin(len);
        let head = message.bytes(len as u16);
        self.memory.write(at + 8, &head.as_slice()[8..])?;
        payload.load_to(&self.memory, at + head.as_slice().len())?;
        self.end(head.first_word(), len);
        Ok(())
    }

    /// Stores a short message as [`Outbox::put`], if there is room. Whether it has.
    #[inline]
    pub(crate) fn put_piece(&mut self, label: Label, piece: Piece) -> Result<bool> {
        let len = HEAD + piece.len();
        if !self.has_room(len) {
            return Ok(false);
        }
        let (at, next) = (self.begin(len), self.next + lines(len));
        let [first, second] = eager_words(label, len as u16);
        let [begin, context, one, two] = begin_of(&self.words, at);
        context.store(second, Ordering::Relaxed);
        if piece.len() <= 2 * WORD {
            let words = piece.words();
            one.store(words[0], Ordering::Relaxed);
            two.store(words[1], Ordering::Relaxed);
        } else {
            piece.load_to(&self.memory, at + HEAD)?;
        }
        begin.store(first, Ordering::Release);
        (self.next, self.records) = (next, self.records.wrapping_add(1));
        Ok(true)
    }

    /// Where the next record goes: at the ring's begin, if it does not fit in front of its end. The place behind it is cleared.
    #[inline]
    fn begin(&mut self, len: usize) -> usize {
        let (lines, ahead) = (lines(len), self.shape.ahead(self.next));
        if lines > ahead {
            self.begin_anew(ahead);
        }
        self.first_word(self.next + lines).store(0, Ordering::Relaxed);
        self.shape.at(self.next)
    }

    /// The next record goes at the ring's begin, as a mark says.
    #[cold]
    fn begin_anew(&mut self, ahead: u64) {
        self.first_word(self.next + ahead).store(0, Ordering::Relaxed);
        self.first_word(self.next).store(MARK, Ordering::Release);
        self.next += ahead;
    }

    /// The next record is there.
    #[inline]
    fn end(&mut self, first: u64, len: usize) {
        self.first_word(self.next).store(first, Ordering::Release);
        (self.next, self.records) = (self.next + lines(len), self.records.wrapping_add(1));
    }

    #[inline]
    fn first_word(&self, line: u64) -> &AtomicU64 {
        &self.words[self.shape.at(line) / WORD]
    }
}
