//! [`Inbox`] and [`Outbox`]: messages by stores into the receiver's NIC memory, where peers can map it.
//!
//! The memory is a ring of lines behind two more: in the first word of one the receiver counts the lines that it is done with, the other
//! is for the [`Line`] of both ends. A message is a record, in one piece: its head, whose first word is stored last, and its data. Before that the first word of the place behind it is
//! zero; so whoever finds another first word than 0 finds all of the record. A record that does not fit in front of the ring's end
//! begins at the ring's begin, where a mark leads.
//!
//! Nobody waits for a message to get room: the sender reads the receiver's count. Whoever dies in the middle of a record has said
//! nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use transport::Line;
use verbs::{Access, Buf, Error, Mr, Pd, Qp, Result, Words};

use crate::wire::{HEAD_MAX, LINE_WORDS, MARK, Message, Offer, length_of};

const LINE: usize = Line::LEN;
const WORD: usize = size_of::<u64>();
const _: () = assert!(LINE_WORDS * WORD == LINE);
/// How many lines are before the ring.
const BEFORE: usize = 2;
/// Where the line of both ends is.
pub(crate) const LINE_AT: usize = LINE;
/// Of how many parts of the ring the receiver tells when it is done with one.
const PARTS: u64 = 4;
/// Bytes of a ring.
const RING: usize = 64 << 10;

/// Lines that so many bytes take.
#[inline]
fn lines(bytes: usize) -> u64 {
    bytes.div_ceil(LINE) as u64
}

/// Where a ring's lines are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Lines of the ring: a power of two.
    count: u64,
}

impl Shape {
    /// Where a line is in the memory; lines are counted on, lap by lap.
    #[inline]
    fn at(self, line: u64) -> usize {
        (BEFORE + (line & (self.count - 1)) as usize) * LINE
    }

    /// Lines between a place and the ring's end.
    #[inline]
    fn ahead(self, line: u64) -> u64 {
        self.count - (line & (self.count - 1))
    }
}

/// The words of a line at a place that the [`Shape`] of this memory gives.
#[inline]
fn line(words: &Words, at: usize) -> &[AtomicU64; LINE_WORDS] {
    words[at / WORD..].first_chunk().expect("all lines are in the memory")
}

/// All words of memory for a ring.
fn words(memory: &Buf) -> Result<Words> {
    memory.words(0, memory.len() / WORD)
}

#[cold]
fn nonsense() -> Error {
    Error::Invalid("the peer stored what no process of this version stores".into())
}

/// Where the data of a message lie that has been found, until it is passed.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// The line behind it.
    pub(crate) upto: u64,
}

/// Where a peer's messages come: memory of this process's NIC.
#[derive(Debug)]
pub(crate) struct Inbox {
    memory: Mr,
    words: Words,
    shape: Shape,
    /// The next record; what is before it is done with.
    next: u64,
    /// What the sender can know of that.
    told: u64,
    /// Records that are done with.
    pub(crate) records: u16,
}

impl Inbox {
    pub(crate) fn new(pd: &Pd) -> Result<Self> {
        let memory = pd.device().alloc_dm(BEFORE * LINE + RING)?;
        let words = words(&memory)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.reg_mr(&memory, access)?;
        Ok(Self { memory, words, shape: Shape { count: lines(RING) }, next: 0, told: 0, records: 0 })
    }

    /// What the peer needs to map it.
    pub(crate) fn offer(&self) -> Offer {
        Offer { at: self.memory.remote(0), len: self.buf().len() as u32 }
    }

    /// The memory that data lie in.
    #[inline]
    pub(crate) fn buf(&self) -> &Buf {
        self.memory.buf()
    }

    #[inline]
    fn first_word(&self) -> u64 {
        line(&self.words, self.shape.at(self.next))[0].load(Ordering::Acquire)
    }

    /// Whether the next word is one that somebody stored.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        self.first_word() != 0
    }

    /// Writes the next message to where the caller keeps it, if there is one; it stays the next one until [`Inbox::pass`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for what no process says.
    #[inline]
    pub(crate) fn look(&mut self, message: &mut Message) -> Result<Option<Record>> {
        let mut first = self.first_word();
        if first == MARK {
            self.next += self.shape.ahead(self.next);
            first = self.first_word();
        }
        if first == 0 {
            return Ok(None);
        }
        let (at, len) = (self.shape.at(self.next), length_of(first));
        if lines(len) > self.shape.ahead(self.next) {
            return Err(nonsense());
        }
        // Read once: what the peer stores meanwhile is as if it had come later.
        let words = line(&self.words, at).each_ref().map(|word| word.load(Ordering::Relaxed));
        if let Some(behind) = message.read_line(first, &words, len) {
            return Ok(Some(Record { at: at + behind, len: len - behind, upto: self.next + lines(len) }));
        }
        let mut head = [0; HEAD_MAX];
        let known = len.min(HEAD_MAX);
        self.buf().read(at, &mut head[..known])?;
        head[..8].copy_from_slice(&first.to_le_bytes());
        let behind = message.read(&head[..known], len).ok_or_else(nonsense)?;
        Ok(Some(Record { at: at + behind, len: len - behind, upto: self.next + lines(len) }))
    }

    /// The lines before this one, to which a message goes that [`Inbox::look`] has found, are no more needed; whether the sender, who
    /// can know now, may wait for the room.
    #[inline]
    pub(crate) fn pass(&mut self, upto: u64) -> bool {
        self.next = upto;
        self.records = self.records.wrapping_add(1);
        let tells = self.next - self.told >= self.shape.count / PARTS;
        if tells {
            self.told = self.next;
            self.words[0].store(self.next, Ordering::Release);
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
    /// Where the next record goes.
    next: u64,
    /// The first words of lines before this one, from the next record's on, are zero.
    cleared: u64,
    /// Lines that the receiver is done with, as far as this side knows.
    free: u64,
    /// Records that were stored.
    pub(crate) records: u16,
}

impl Outbox {
    /// The ring that a peer offers; nothing if it cannot be mapped, or is none for messages of so many bytes.
    pub(crate) fn new(qp: &Qp, offer: Offer, longest: usize) -> Option<Self> {
        let len = offer.len as usize;
        let count = lines(len).checked_sub(BEFORE as u64)?;
        let is_ring = len.is_multiple_of(LINE) && count.is_power_of_two();
        // Of the longest record there may be one under way and one that is told of late, and one's worth is lost at the end.
        if !is_ring || count / PARTS < lines(longest) + 1 {
            return None;
        }
        Self::at(qp.map(offer.at, len).ok()?)
    }

    /// The ring in memory of one's length.
    fn at(memory: Buf) -> Option<Self> {
        let words = words(&memory).ok()?;
        let shape = Shape { count: lines(memory.len()) - BEFORE as u64 };
        Some(Self { memory, words, shape, next: 0, cleared: shape.count, free: 0, records: 0 })
    }

    /// The memory, which is the receiver's.
    pub(crate) fn buf(&self) -> &Buf {
        &self.memory
    }

    /// Whether there is room for a record of so many bytes.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        let (lines, ahead) = (lines(len), self.shape.ahead(self.next));
        let lost = if lines > ahead { ahead } else { 0 };
        let end = self.next + lost + lines + 1;
        if end <= self.free + self.shape.count {
            return true;
        }
        let told = self.words[0].load(Ordering::Acquire);
        // What a peer says that lies harms nobody else.
        self.free = told.clamp(self.free, self.next);
        end <= self.free + self.shape.count
    }

    /// Stores a message of so many bytes in all, if there [`Outbox::has_room`]; `load` stores its data at a place in the memory.
    #[inline]
    pub(crate) fn put(
        &mut self,
        message: &Message,
        data: usize,
        load: impl FnOnce(&Buf, usize) -> Result<()>,
    ) -> Result<()> {
        let (first, behind) = match message.line_head(data) {
            Some(head) => {
                let at = self.begin(size_of_val(&head) + data);
                let [first, rest @ ..] = head;
                let [_, words @ ..] = line(&self.words, at);
                words.iter().zip(rest).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
                load(&self.memory, at + size_of_val(&head))?;
                (first, size_of_val(&head))
            }
            None => {
                let head = message.record();
                let behind = head.as_slice().len();
                let at = self.begin(behind + data);
                let (first, rest) = head.as_record(behind + data);
                self.memory.write(at + WORD, rest)?;
                load(&self.memory, at + behind)?;
                (first, behind)
            }
        };
        self.first_word(self.next).store(first, Ordering::Release);
        self.next += lines(behind + data);
        self.records = self.records.wrapping_add(1);
        self.clear_ahead();
        Ok(())
    }

    /// Where the next record goes: at the ring's begin, if it does not fit in front of its end. The place behind it is cleared.
    #[inline]
    fn begin(&mut self, len: usize) -> usize {
        let (lines, ahead) = (lines(len), self.shape.ahead(self.next));
        if lines > ahead {
            self.clear(self.next + ahead);
            self.first_word(self.next).store(MARK, Ordering::Release);
            self.next += ahead;
        }
        self.clear(self.next + lines);
        self.shape.at(self.next)
    }

    /// Clears the place of a record behind the next one.
    #[inline]
    fn clear(&mut self, line: u64) {
        if line >= self.cleared {
            self.first_word(line).store(0, Ordering::Relaxed);
            self.cleared = line + 1;
        }
    }

    /// Clears the place behind a short record that may come next: while nobody waits, as the line is still the receiver's.
    #[inline]
    fn clear_ahead(&mut self) {
        if self.next + 2 <= self.free + self.shape.count {
            self.clear(self.next + 1);
        }
    }

    #[inline]
    fn first_word(&self, line: u64) -> &AtomicU64 {
        &self::line(&self.words, self.shape.at(line))[0]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use host::Rng;
    use verbs::Device;

    use super::*;
    use crate::connection::EAGER_MAX;
    use crate::event::{Fail, List};
    use crate::message::{AckReq, Action, Answer, Request};
    use crate::process::Process;

    fn boxes() -> (Device, Inbox, Outbox) {
        let device = fabric::open("shm", &host::real::host()).expect("a device");
        let inbox = Inbox::new(&device.alloc_pd().expect("a domain")).expect("memory");
        let outbox = Outbox::at(inbox.buf().clone()).expect("a ring");
        (device, inbox, outbox)
    }

    fn message(number: u64, len: usize) -> Message {
        let request = Request {
            operation: number,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::default(),
            uid: 0,
            pt_index: 0,
            match_bits: 0,
            remote_offset: 0,
            length: len as u64,
            hdr_data: 0,
        };
        let (fail, list, is_quiet, mlength, offset) = (Fail::Ok, List::Priority, false, 1, 2);
        let answer = Answer { operation: number, fail, is_quiet, list, mlength, offset };
        match number % 3 {
            0 => Message::Answer { interface: 1, answer, is_asked: true },
            _ => Message::Request { interface: 2, request, exposed: None },
        }
    }

    fn put(outbox: &mut Outbox, message: &Message, data: &[u8]) -> bool {
        let has_room = outbox.has_room(HEAD_MAX + data.len());
        if has_room {
            outbox.put(message, data.len(), |buf, at| buf.write(at, data)).expect("inside");
        }
        has_room
    }

    /// Goal: records of all lengths come whole and in order, lap after lap, however far the receiver is behind. Method: random lengths
    /// and turns; what is full is found full, and what is empty empty.
    #[test]
    fn records_come_in_order() {
        let (_device, mut inbox, mut outbox) = boxes();
        let (mut rng, mut sent, mut number) = (Rng::new(3), VecDeque::new(), 0);
        let (mut full, mut taken, mut said) = (0, 0, Message::Credit);
        while taken < 20_000 {
            let most = if rng.one_in(3) { EAGER_MAX + 1 } else { 40 };
            let (turn, len, times) = (rng.one_in(2), rng.next_u64() % most, rng.next_u64() % 40);
            let data = rng.bytes(len as usize);
            for _ in 0..times {
                if turn {
                    let message = message(number, data.len());
                    if put(&mut outbox, &message, &data) {
                        sent.push_back((message, data.clone()));
                        number += 1;
                    } else {
                        full += 1;
                    }
                } else if let Some(record) = inbox.look(&mut said).expect("sense") {
                    let again = inbox.look(&mut said).expect("sense");
                    assert_eq!(again.map(|again| again.upto), Some(record.upto));
                    let data = inbox.buf().to_vec(record.at..record.at + record.len).expect("inside");
                    assert_eq!(sent.pop_front(), Some((said.clone(), data)));
                    inbox.pass(record.upto);
                    taken += 1;
                } else {
                    assert!(sent.is_empty());
                }
            }
        }
        assert!(full > 100, "{full}");
    }

    /// Goal: the longest message finds room in an empty ring, wherever that stands.
    #[test]
    fn the_longest_finds_room() {
        let (_device, mut inbox, mut outbox) = boxes();
        let data = vec![7; EAGER_MAX as usize];
        for number in 0..3000 {
            assert!(put(&mut outbox, &message(number, 0), &[]), "{number}");
            let upto = inbox.look(&mut Message::Credit).expect("sense").expect("a record").upto;
            inbox.pass(upto);
            if number % 7 == 0 {
                assert!(put(&mut outbox, &message(1, data.len()), &data), "{number}");
                let upto = inbox.look(&mut Message::Credit).expect("sense").expect("a record").upto;
                inbox.pass(upto);
            }
        }
    }

    /// Goal: whatever a peer stores, the receiver stays within its memory; whatever it counts, the sender does. Method: random words
    /// in places that matter, among which are lengths and marks.
    #[test]
    fn lies_harm_nobody_else() {
        let (_device, mut inbox, mut outbox) = boxes();
        let (mut rng, mut refused) = (Rng::new(5), 0);
        for _ in 0..50_000 {
            let lie = match rng.next_u64() % 4 {
                0 => MARK,
                1 => rng.next_u64(),
                2 => 1 | (rng.next_u64() & 0xffff) << 16,
                _ => 2 | (rng.next_u64() & 0xff) << 16,
            };
            line(&inbox.words, inbox.shape.at(inbox.next))[0].store(lie, Ordering::Relaxed);
            match inbox.look(&mut Message::Credit) {
                Ok(Some(record)) => {
                    assert!(record.at + record.len <= inbox.buf().len());
                    inbox.pass(record.upto);
                }
                Ok(None) => {}
                Err(_) => refused += 1,
            }
            inbox.next += rng.next_u64() % 3;
            let shift = rng.next_u64() % 64;
            outbox.words[0].store(rng.next_u64() >> shift, Ordering::Relaxed);
            let (message, data) = (message(2, 100), [1; 100]);
            put(&mut outbox, &message, &data);
            assert!(outbox.free <= outbox.next && outbox.next <= outbox.free + outbox.shape.count);
        }
        assert!(refused > 1000, "{refused}");
    }
}
