//! [`DuplexLine`]: a cache line that two processes write in turn, each its own half. An answer is written to the line that carried
//! the question, so that it costs one transfer between processors. A record of a ring costs two, since its line must first return
//! from the receiver.
//!
//! A half holds a message and acknowledges the message of the other half; only then may the other side write again. So a side uses
//! the line only if its peer has written it since this side last did; all other messages use a ring. If both sides write at the
//! same time, each acknowledges the other's message when it wants to put the next one. Each message holds the number of ring
//! records before it, which orders the two.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Result, Words};

/// Words of a half.
const HALF: usize = 4;
const WORD: usize = size_of::<u64>();
/// The first word of a half whose writer polls the line and has not put a message yet.
const GREETING: u64 = ATTACHED << 8;
/// A bit in the second byte of a half: its writer polls the line.
const ATTACHED: u64 = 0x80;

/// Whether a half has a message after number `taken`.
#[inline]
const fn is_unread(head: u64, taken: u8) -> bool {
    (head as u8) >> 4 != taken & 15
}

/// Whether a half's writer polls the line and has acknowledged message `put` of the other half, or none if there was none.
#[inline]
const fn has_acknowledged(head: u64, put: u8) -> bool {
    head != 0 && head as u8 & 15 == put & 15
}

/// A message of a [`DuplexLine`]. All fields but `records` are the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineMessage {
    /// Seven bits.
    pub kind: u8,
    /// The number of records of the ring before it, modulo 2^16.
    pub records: u16,
    /// 32 more bits.
    pub label: u32,
    /// The rest: header, payload, or both.
    pub words: [u64; HALF - 1],
}

impl LineMessage {
    /// The first word of a half: numbers of this message and of the last one acknowledged (1 byte), kind (1), records (2), label (4). It
    /// is not 0.
    #[inline]
    fn head(&self, turn: u8) -> u64 {
        let kind = u64::from(self.kind) & (ATTACHED - 1) | ATTACHED;
        u64::from(turn) | kind << 8 | u64::from(self.records) << 16 | u64::from(self.label) << 32
    }
}

/// One side of a cache line in memory that two processes map.
#[derive(Debug)]
pub struct DuplexLine {
    memory: Buf,
    words: Words,
    /// The offset of the other side's half in the memory, and the index of the first word of each half.
    at: usize,
    mine: usize,
    theirs: usize,
    /// Messages that this side has put, taken and released; the low four bits go into the line.
    put: u8,
    taken: u8,
    released: u8,
    /// Messages that this side has acknowledged.
    acknowledged: u8,
}

impl DuplexLine {
    /// Bytes of a line.
    pub const LEN: usize = 2 * HALF * WORD;

    /// Attaches to the line at byte `at` of memory that was zero before. Exactly one of the two sides is the first.
    ///
    /// # Errors
    /// As [`Buf::words`].
    pub fn new(memory: &Buf, at: usize, is_first: bool) -> Result<Self> {
        let words = memory.words(at, 2 * HALF)?;
        let (mine, theirs) = if is_first { (0, HALF) } else { (HALF, 0) };
        words[mine].store(GREETING, Ordering::Release);
        let at = at + theirs * WORD;
        Ok(Self {
            memory: memory.clone(),
            words,
            at,
            mine,
            theirs,
            put: 0,
            taken: 0,
            released: 0,
            acknowledged: 0,
        })
    }

    /// Whether a message may be put: the peer polls the line and has acknowledged the last message. If not, this side acknowledges what it
    /// has released, since the peer may wait for that as well.
    #[inline]
    pub fn is_free(&mut self) -> bool {
        let is_free = has_acknowledged(self.theirs(), self.put);
        if !is_free {
            self.acknowledge();
        }
        is_free
    }

    /// Whether the peer has not acknowledged the last message.
    pub fn is_unacknowledged(&self) -> bool {
        let head = self.theirs();
        head != 0 && !has_acknowledged(head, self.put)
    }

    /// Acknowledges the messages that this side has released, without a message of its own.
    #[inline]
    pub fn acknowledge(&mut self) {
        if self.acknowledged != self.released {
            self.acknowledged = self.released;
            let head = &self.words[self.mine];
            head.store(head.load(Ordering::Relaxed) & !15 | u64::from(self.released & 15), Ordering::Release);
        }
    }

    /// Puts a message into a line that [is free](DuplexLine::is_free).
    #[inline]
    pub fn put(&mut self, message: &LineMessage) {
        (self.put, self.acknowledged) = (self.put.wrapping_add(1), self.released);
        let turn = (self.put & 15) << 4 | self.released & 15;
        let [head, first, second, third] = self.half(self.mine);
        first.store(message.words[0], Ordering::Relaxed);
        second.store(message.words[1], Ordering::Relaxed);
        third.store(message.words[2], Ordering::Relaxed);
        head.store(message.head(turn), Ordering::Release);
    }

    /// Whether the peer has put a message.
    #[inline]
    pub fn has_message(&self) -> bool {
        is_unread(self.theirs(), self.taken)
    }

    /// The message that the peer has put, if exactly `records` ring records precede it. It remains until [`DuplexLine::take`].
    #[inline]
    pub fn poll(&self, records: u16) -> Option<LineMessage> {
        let [head, first, second, third] = self.half(self.theirs);
        let head = head.load(Ordering::Acquire);
        if !is_unread(head, self.taken) || (head >> 16) as u16 != records {
            return None;
        }
        let words = [first, second, third].map(|word| word.load(Ordering::Relaxed));
        Some(LineMessage { kind: (head >> 8) as u8 & 0x7f, records, label: (head >> 32) as u32, words })
    }

    /// Takes the message that [`DuplexLine::poll`] has returned. Its memory does not change until [`DuplexLine::release`].
    #[inline]
    pub fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Releases the memory of the message that was taken.
    #[inline]
    pub fn release(&mut self) {
        self.released = self.taken;
    }

    /// Takes and releases the message that [`DuplexLine::poll`] has returned.
    #[inline]
    pub fn consume(&mut self) {
        self.take();
        self.release();
    }

    /// The memory that contains the line.
    #[inline]
    pub fn memory(&self) -> &Buf {
        &self.memory
    }

    /// The offset of a word of the peer's message in [`DuplexLine::memory`].
    #[inline]
    pub fn offset_of(&self, word: usize) -> usize {
        self.at + (1 + word) * WORD
    }

    /// The first word of the other half.
    #[inline]
    fn theirs(&self) -> u64 {
        self.words[self.theirs].load(Ordering::Acquire)
    }

    #[inline]
    fn half(&self, at: usize) -> [&AtomicU64; HALF] {
        let [head, first, second, third] = &self.words[at..at + HALF] else {
            unreachable!("a half has HALF words");
        };
        [head, first, second, third]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use host::Rng;

    use super::*;

    fn message(number: u64) -> LineMessage {
        let words =
            [1, 2, 3].map(|word: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32));
        LineMessage { kind: number as u8 & 127, records: number as u16, label: !number as u32, words }
    }

    fn both(memory: &Buf, at: usize) -> [DuplexLine; 2] {
        [true, false].map(|is_first| DuplexLine::new(memory, at, is_first).expect("a line"))
    }

    /// Goal: each message is taken once and unchanged; none is put before the last one was acknowledged; sides that put at the same
    /// time continue. Method: random turns.
    #[test]
    fn messages_of_random_turns_arrive_once() {
        let memory = Buf::alloc(128).expect("memory");
        let mut sides = both(&memory, 64);
        let (mut rng, mut on_the_way, mut number, mut full) = (Rng::new(9), [None, None], 0_u64, 0);
        while number < 10_000 {
            let at = usize::from(rng.one_in(2));
            if rng.one_in(2) {
                if sides[at].is_free() {
                    assert!(on_the_way[at].is_none());
                    sides[at].put(&message(number));
                    on_the_way[at] = Some(number);
                    number += 1;
                } else {
                    full += 1;
                }
            } else {
                let expected = on_the_way[1 - at].take();
                assert_eq!(sides[at].has_message(), expected.is_some());
                let Some(number) = expected else { continue };
                assert_eq!(sides[at].poll(number as u16 + 1), None, "records come before it");
                let found = sides[at].poll(number as u16).expect("a message");
                assert_eq!(found, message(number));
                let bytes = memory.to_vec(sides[at].offset_of(1)..sides[at].offset_of(3)).expect("inside");
                assert_eq!(bytes, [found.words[1].to_ne_bytes(), found.words[2].to_ne_bytes()].concat());
                sides[at].consume();
            }
        }
        assert!(full > 100, "{full}");
    }

    /// Goal: a line on which both sides have put at the same time is free again for the second side that asks, after both have released.
    #[test]
    fn line_is_free_again_after_both_have_put() {
        for asks in [0, 1] {
            let memory = Buf::alloc(64).expect("memory");
            let mut sides = both(&memory, 0);
            for side in &mut sides {
                assert!(side.is_free());
                side.put(&message(7));
            }
            for side in &mut sides {
                assert_eq!(side.poll(7), Some(message(7)));
                side.take();
            }
            assert!(sides.iter_mut().all(|side| !side.is_free()), "the messages are not released");
            sides.iter_mut().for_each(DuplexLine::release);
            assert!(!sides[asks].is_free() && sides[1 - asks].is_free(), "the first that asks acknowledges");
            sides[1 - asks].put(&message(8));
            assert_eq!(sides[asks].poll(8), Some(message(8)));
            sides[asks].consume();
            assert!(sides[asks].is_free());
        }
    }

    /// Goal: two threads that put as fast as they can lose nothing. Method: each puts numbers in order whenever the line is free, until one
    /// has put all its numbers: a side that puts no more need not free the line for the other.
    #[test]
    fn messages_of_two_threads_arrive_in_order() {
        const COUNT: u64 = 20_000;
        let memory = Buf::alloc(64).expect("memory");
        let (is_over, both_end) = (AtomicBool::new(false), Barrier::new(2));
        let plain = |number| LineMessage { records: 0, ..message(number) };
        let run = |mut side: DuplexLine| {
            let (mut sent, mut got) = (0, 0);
            let take = |side: &mut DuplexLine, got: &mut u64| {
                let found = side.poll(0).map(|found| assert_eq!(found, plain(*got)));
                found.into_iter().for_each(|()| side.consume());
                *got += u64::from(found.is_some());
                found.is_some()
            };
            while !is_over.load(Ordering::Relaxed) {
                let is_free = side.is_free();
                if is_free {
                    side.put(&plain(sent));
                    sent += 1;
                }
                if sent == COUNT {
                    is_over.store(true, Ordering::Relaxed);
                }
                if !take(&mut side, &mut got) && !is_free {
                    std::thread::yield_now();
                }
            }
            both_end.wait();
            take(&mut side, &mut got);
            (sent, got)
        };
        let ends = std::thread::scope(|scope| {
            both(&memory, 0).map(|side| scope.spawn(|| run(side))).map(|side| side.join().expect("no panic"))
        });
        let [(sent, got), (sent_back, got_back)] = ends;
        assert_eq!((sent, sent_back), (got_back, got));
        assert_eq!(sent.max(sent_back), COUNT);
    }

    /// Goal: a line is not free before the other side polls it.
    #[test]
    fn line_is_not_free_before_the_peer_attaches() {
        let memory = Buf::alloc(64).expect("memory");
        let mut line = DuplexLine::new(&memory, 0, true).expect("a line");
        assert!(!line.is_free() && !line.has_message(), "the peer is not attached");
        let mut other = DuplexLine::new(&memory, 0, false).expect("a line");
        assert!(line.is_free() && other.is_free() && !line.has_message() && !other.has_message());
        assert!(DuplexLine::new(&memory, 8, true).is_err(), "more than there is");
    }
}
