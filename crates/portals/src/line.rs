//! [`Line`]: one cache line that the two ends of a link write in turn, each its own half. A put that answers one goes into the line that
//! it came in, so that it costs one transfer between processors; a record of a ring costs two, as its line must first come back from the
//! receiver.
//!
//! A half holds a short put of which nobody is told at its initiator, and what its writer has heard of the other half: only then the
//! other may write again. So a side puts here when its peer has spoken here since it did so last; all else goes to the ring. If both
//! have put at the same time, each says in its half that it has heard. A half says how many records of the ring come before it,
//! which merges the two.
//!
//! A half is four words: turn (1 byte), interface and length (1), records (2), portal table entry (2, and 2 unused); bits; node and user
//! of the initiator (4 each); data.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Result, Words};

use crate::message::{AckReq, Action, Request};
use crate::process::Process;
use crate::wire::Message;

/// Words of a half.
const HALF: usize = 4;
/// Bytes of its data, which are its last word.
const DATA: usize = 8;
/// The half of one who has put nothing, but looks here.
const GREETING: u64 = LOOKS << 8;
/// A bit of a half's second byte: its writer looks here.
const LOOKS: u64 = 0x80;

/// Whether a half has a message behind number `taken`.
#[inline]
const fn is_news(word: u64, taken: u8) -> bool {
    (word as u8) >> 4 != taken & 15
}

/// Whether a half's writer looks here, and is done with message `put` of the other half.
#[inline]
const fn has_heard(word: u64, put: u8) -> bool {
    word != 0 && word as u8 & 15 == put & 15
}

/// The line, as one side has it.
#[derive(Debug)]
pub(crate) struct Line {
    words: Words,
    memory: Buf,
    /// Where the data of the other half lie.
    data_at: usize,
    /// With which words the halves begin.
    mine: usize,
    theirs: usize,
    /// Messages that this side has put, and taken; the low four bits count.
    put: u8,
    taken: u8,
    /// Those taken that the peer can know of.
    told: u8,
}

impl Line {
    /// The line at a place in memory; tells the peer that this side looks at it.
    pub(crate) fn new(memory: &Buf, at: usize, is_first: bool) -> Result<Self> {
        let words = memory.words(at, 2 * HALF)?;
        let (mine, theirs) = if is_first { (0, HALF) } else { (HALF, 0) };
        words[mine].store(GREETING, Ordering::Release);
        let data_at = at + (theirs + HALF - 1) * size_of::<u64>();
        Ok(Self { words, memory: memory.clone(), data_at, mine, theirs, put: 0, taken: 0, told: 0 })
    }

    /// Whether a message of so many bytes of data can be told here at all, and the peer has heard the last one.
    #[inline]
    pub(crate) fn takes(&mut self, message: &Message, data: usize) -> bool {
        if !has_heard(self.theirs(), self.put) {
            self.tell();
            return false;
        }
        let Message::Request { request, exposed: None, .. } = message else { return false };
        let is_plain = request.action == Action::Put && request.ack == AckReq::None;
        let is_short = data <= DATA && request.pt_index <= u32::from(u16::MAX);
        let says_little = request.hdr_data == 0 && request.remote_offset == 0;
        is_plain && is_short && says_little
    }

    /// Tells the peer what this side has taken, if it cannot know: it may wait for that as this side waits for it.
    #[inline]
    fn tell(&mut self) {
        if self.told != self.taken {
            self.told = self.taken;
            let head = &self.words[self.mine];
            head.store(head.load(Ordering::Relaxed) & !15 | u64::from(self.taken & 15), Ordering::Release);
        }
    }

    /// Puts a message that the line [`Line::takes`], behind so many records; `load` gives its data.
    #[inline]
    pub(crate) fn put(&mut self, message: &Message, len: usize, records: u16, load: impl FnOnce(&mut [u8])) {
        let Message::Request { interface, request, .. } = message else { return };
        let mut data = [0; DATA];
        load(&mut data[..len]);
        (self.put, self.told) = (self.put.wrapping_add(1), self.taken);
        let turn = (self.put & 15) << 4 | self.taken & 15;
        let what = u64::from(*interface) << 4 | len as u64 | LOOKS;
        let word = u64::from(turn) | what << 8 | u64::from(records) << 16 | u64::from(request.pt_index) << 32;
        let [head, bits, who, bytes] = self.half(self.mine);
        bytes.store(u64::from_ne_bytes(data), Ordering::Relaxed);
        who.store(u64::from(request.initiator.nid) | u64::from(request.uid) << 32, Ordering::Relaxed);
        bits.store(request.match_bits, Ordering::Relaxed);
        head.store(word, Ordering::Release);
    }

    /// Whether a message has come.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        is_news(self.theirs(), self.taken)
    }

    /// The message that has come, if it is the next behind so many records, and how many bytes of data it has; it stays there until
    /// [`Line::pass`].
    #[inline]
    pub(crate) fn look(&self, records: u16) -> Option<(Message, usize)> {
        let [head, bits, who, _] = self.half(self.theirs);
        let word = head.load(Ordering::Acquire);
        if !is_news(word, self.taken) || (word >> 16) as u16 != records {
            return None;
        }
        // More than there can be are as many: what a peer says that lies harms nobody else.
        let len = ((word >> 8) as usize & 15).min(DATA);
        let (match_bits, who) = (bits.load(Ordering::Relaxed), who.load(Ordering::Relaxed));
        let request = Request {
            operation: 0,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::rank(who as u32),
            uid: (who >> 32) as u32,
            pt_index: (word >> 32) as u32 & u32::from(u16::MAX),
            match_bits,
            remote_offset: 0,
            length: len as u64,
            hdr_data: 0,
        };
        Some((Message::Request { interface: (word >> 12) as u8 & 3, request, exposed: None }, len))
    }

    /// The message that [`Line::look`] has found is no more needed.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// The memory that data lie in, and where.
    #[inline]
    pub(crate) fn data(&self) -> (&Buf, usize) {
        (&self.memory, self.data_at)
    }

    #[inline]
    fn theirs(&self) -> u64 {
        self.words[self.theirs].load(Ordering::Acquire)
    }

    #[inline]
    fn half(&self, at: usize) -> [&AtomicU64; HALF] {
        let [head, bits, who, data] = &self.words[at..at + HALF] else {
            unreachable!("a half has so many words");
        };
        [head, bits, who, data]
    }
}

#[cfg(test)]
mod tests {
    use host::Rng;

    use super::*;

    fn message(number: u64) -> Message {
        let request = Request {
            operation: 0,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::rank(number as u32),
            uid: 7,
            pt_index: number as u32 % 1000,
            match_bits: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            remote_offset: 0,
            length: number % 9,
            hdr_data: 0,
        };
        Message::Request { interface: number as u8 % 4, request, exposed: None }
    }

    /// Goal: what one side puts is what the other takes, once; nothing is put before the last one was heard, and two that put at the same time
    /// go on. Method: random turns.
    #[test]
    fn two_sides_speak_in_turn() {
        let memory = Buf::alloc(128).expect("memory");
        let mut sides = [true, false].map(|is_first| Line::new(&memory, 64, is_first).expect("a line"));
        let (mut rng, mut on_the_way, mut number, mut full) = (Rng::new(9), [None, None], 0_u64, 0);
        while number < 10_000 {
            let at = usize::from(rng.one_in(2));
            if rng.one_in(2) {
                let (it, len) = (message(number), (number % 9) as usize);
                if sides[at].takes(&it, len) {
                    assert!(on_the_way[at].is_none());
                    sides[at].put(&it, len, number as u16, |data| data.fill(number as u8));
                    on_the_way[at] = Some(number);
                    number += 1;
                } else {
                    full += 1;
                }
            } else {
                let expected = on_the_way[1 - at].take();
                assert_eq!(sides[at].has_news(), expected.is_some());
                let Some(number) = expected else { continue };
                assert!(sides[at].look(number as u16 + 1).is_none(), "records come before it");
                let (it, len) = sides[at].look(number as u16).expect("a message");
                assert_eq!((&it, len), (&message(number), (number % 9) as usize));
                let (memory, data_at) = sides[at].data();
                assert_eq!(memory.to_vec(data_at..data_at + len).expect("inside"), vec![number as u8; len]);
                sides[at].pass();
            }
        }
        assert!(full > 100, "{full}");
    }

    /// Goal: what has no place here is left to the ring, and nobody puts before the other side looks here.
    #[test]
    fn what_has_no_place_goes_elsewhere() {
        let memory = Buf::alloc(64).expect("memory");
        let mut line = Line::new(&memory, 0, true).expect("a line");
        assert!(!line.takes(&message(1), 1), "nobody looks");
        let mut other = Line::new(&memory, 0, false).expect("a line");
        assert!(line.takes(&message(1), 1) && other.takes(&message(8), 8));
        assert!(!line.takes(&message(1), 9));
        let changed = |change: fn(&mut Request)| {
            let Message::Request { interface, mut request, .. } = message(1) else { return message(1) };
            change(&mut request);
            Message::Request { interface, request, exposed: None }
        };
        let changes: [fn(&mut Request); 5] = [
            |it| it.hdr_data = 1,
            |it| it.remote_offset = 1,
            |it| it.ack = AckReq::Full,
            |it| it.pt_index = 1 << 16,
            |it| it.action = Action::Get,
        ];
        assert!(changes.into_iter().all(|change| !line.takes(&changed(change), 1)));
        assert!(!line.takes(&Message::Credit, 0));
    }

    /// Goal: whatever a peer writes, the data are in the line.
    #[test]
    fn lies_stay_in_the_line() {
        let memory = Buf::alloc(64).expect("memory");
        let line = Line::new(&memory, 0, true).expect("a line");
        let mut rng = Rng::new(1);
        for _ in 0..10_000 {
            memory.word(HALF * 8).expect("inside").store(rng.next_u64(), Ordering::Relaxed);
            if let Some((_, len)) = line.look((rng.next_u64() % 2) as u16) {
                assert!(line.data().1 + len <= memory.len());
            }
        }
    }
}
