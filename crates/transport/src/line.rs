//! [`Line`]: one cache line that two processes write in turn, each its own half. An answer goes into the line that the question came in,
//! so that it costs one transfer between processors; a record of a ring costs two, as its line must first come back from the receiver.
//!
//! A half holds a message and what its writer has heard of the other half: only then the other may write again. So a side puts a message
//! here when its peer has spoken here since it did so last; all others go to a ring. If both have put at the same time, each says in its
//! half that it has heard, when it wants to put the next one. Each message says how many records of the ring come before it, which
//! merges the two.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Result, Words};

/// Words of a half.
const HALF: usize = 4;
const WORD: usize = size_of::<u64>();
/// The half of one who has put nothing, but looks here.
const GREETING: u64 = LOOKS << 8;
/// A bit of a half's second byte: its writer looks here.
const LOOKS: u64 = 0x80;

/// Whether a half has a message behind number `taken`.
#[inline]
const fn is_news(head: u64, taken: u8) -> bool {
    (head as u8) >> 4 != taken & 15
}

/// Whether a half's writer looks here, and is done with message `put` of the other half, or with none if there was none.
#[inline]
const fn has_heard(head: u64, put: u8) -> bool {
    head != 0 && head as u8 & 15 == put & 15
}

/// A message of a [`Line`]: what its halves are for, but for whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Seven bits.
    pub kind: u8,
    /// How many records of the ring come before it, modulo 2^16.
    pub records: u16,
    /// What it is called.
    pub label: u32,
    /// What it brings.
    pub words: [u64; HALF - 1],
}

impl Half {
    /// The first word as it lies in memory, with whose turn it is: number of this message and of the last one heard (1 byte), kind (1),
    /// records (2), label (4). It is not 0.
    #[inline]
    fn head(&self, turn: u8) -> u64 {
        let kind = u64::from(self.kind) & (LOOKS - 1) | LOOKS;
        u64::from(turn) | kind << 8 | u64::from(self.records) << 16 | u64::from(self.label) << 32
    }
}

/// A cache line in memory that two processes map, as one side has it.
#[derive(Debug)]
pub struct Line {
    memory: Buf,
    words: Words,
    /// Where the other side's half begins in the memory, and with which word each half begins.
    at: usize,
    mine: usize,
    theirs: usize,
    /// Messages that this side has put, has taken, and is done with; the low four bits count.
    put: u8,
    taken: u8,
    done: u8,
    /// Those that the peer can know this side to be done with.
    told: u8,
}

impl Line {
    /// Bytes of a line.
    pub const LEN: usize = 2 * HALF * WORD;

    /// The line at a place in memory that is zero before; tells the peer that this side looks at it. One of the two is the first.
    ///
    /// # Errors
    /// As [`Buf::words`].
    pub fn new(memory: &Buf, at: usize, is_first: bool) -> Result<Self> {
        let words = memory.words(at, 2 * HALF)?;
        let (mine, theirs) = if is_first { (0, HALF) } else { (HALF, 0) };
        words[mine].store(GREETING, Ordering::Release);
        let at = at + theirs * WORD;
        Ok(Self { memory: memory.clone(), words, at, mine, theirs, put: 0, taken: 0, done: 0, told: 0 })
    }

    /// Whether a message may be put: the peer looks here, and is done with the last one. If not, the peer is told what this side is done
    /// with, as it may wait for that likewise.
    #[inline]
    pub fn is_free(&mut self) -> bool {
        let is_free = has_heard(self.theirs(), self.put);
        if !is_free {
            self.acknowledge();
        }
        is_free
    }

    /// Whether the peer has not acknowledged the last message.
    pub fn is_held(&self) -> bool {
        let head = self.theirs();
        head != 0 && !has_heard(head, self.put)
    }

    /// Acknowledges the messages that this side is done with, without a message of its own.
    #[inline]
    pub fn acknowledge(&mut self) {
        if self.told != self.done {
            self.told = self.done;
            let head = &self.words[self.mine];
            head.store(head.load(Ordering::Relaxed) & !15 | u64::from(self.done & 15), Ordering::Release);
        }
    }

    /// Puts a message into a line that [is free](Line::is_free).
    #[inline]
    pub fn put(&mut self, half: &Half) {
        (self.put, self.told) = (self.put.wrapping_add(1), self.done);
        let turn = (self.put & 15) << 4 | self.done & 15;
        let [head, first, second, third] = self.half(self.mine);
        first.store(half.words[0], Ordering::Relaxed);
        second.store(half.words[1], Ordering::Relaxed);
        third.store(half.words[2], Ordering::Relaxed);
        head.store(half.head(turn), Ordering::Release);
    }

    /// Whether a message has come.
    #[inline]
    pub fn has_news(&self) -> bool {
        is_news(self.theirs(), self.taken)
    }

    /// The message that has come, if it is next behind so many records of the ring.
    #[inline]
    pub fn look(&self, records: u16) -> Option<Half> {
        let [head, first, second, third] = self.half(self.theirs);
        let head = head.load(Ordering::Acquire);
        if !is_news(head, self.taken) || (head >> 16) as u16 != records {
            return None;
        }
        let words = [first, second, third].map(|word| word.load(Ordering::Relaxed));
        Some(Half { kind: (head >> 8) as u8 & 0x7f, records, label: (head >> 32) as u32, words })
    }

    /// Takes the message that [`Line::look`] has found. It lies here until it is [`Line::release`]d.
    #[inline]
    pub fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// What was taken is no more needed.
    #[inline]
    pub fn release(&mut self) {
        self.done = self.taken;
    }

    /// Takes the message that [`Line::look`] has found, which is no more needed.
    #[inline]
    pub fn pass(&mut self) {
        self.take();
        self.release();
    }

    /// The memory that the line is a part of.
    #[inline]
    pub fn memory(&self) -> &Buf {
        &self.memory
    }

    /// Where a word of the message that has come lies there.
    #[inline]
    pub fn place_of(&self, word: usize) -> usize {
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
            unreachable!("a half has so many words");
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

    fn message(number: u64) -> Half {
        let words =
            [1, 2, 3].map(|word: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word as u32));
        Half { kind: number as u8 & 127, records: number as u16, label: !number as u32, words }
    }

    fn both(memory: &Buf, at: usize) -> [Line; 2] {
        [true, false].map(|is_first| Line::new(memory, at, is_first).expect("a line"))
    }

    /// Goal: what one side puts is what the other takes, once; nothing is put before the last one was heard, and two that put at the same time
    /// go on. Method: random turns.
    #[test]
    fn two_sides_speak_in_turn() {
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
                assert_eq!(sides[at].has_news(), expected.is_some());
                let Some(number) = expected else { continue };
                assert_eq!(sides[at].look(number as u16 + 1), None, "records come before it");
                let found = sides[at].look(number as u16).expect("a message");
                assert_eq!(found, message(number));
                let bytes = memory.to_vec(sides[at].place_of(1)..sides[at].place_of(3)).expect("inside");
                assert_eq!(bytes, [found.words[1].to_ne_bytes(), found.words[2].to_ne_bytes()].concat());
                sides[at].pass();
            }
        }
        assert!(full > 100, "{full}");
    }

    /// Goal: a line on which both have put at the same time is used again, by whoever asks first, and only once what came is no more needed.
    #[test]
    fn it_is_used_again_when_both_have_put() {
        for asks in [0, 1] {
            let memory = Buf::alloc(64).expect("memory");
            let mut sides = both(&memory, 0);
            for side in &mut sides {
                assert!(side.is_free());
                side.put(&message(7));
            }
            for side in &mut sides {
                assert_eq!(side.look(7), Some(message(7)));
                side.take();
            }
            assert!(sides.iter_mut().all(|side| !side.is_free()), "what has come is still in use");
            sides.iter_mut().for_each(Line::release);
            assert!(!sides[asks].is_free() && sides[1 - asks].is_free(), "one that asks has told");
            sides[1 - asks].put(&message(8));
            assert_eq!(sides[asks].look(8), Some(message(8)));
            sides[asks].pass();
            assert!(sides[asks].is_free());
        }
    }

    /// Goal: two threads that speak as fast as they can lose nothing. Method: each puts numbers in order whenever it may, until one has put all
    /// of its: from then on a line that one does not want to put in need not become free for the other.
    #[test]
    fn threads_lose_nothing() {
        const COUNT: u64 = 20_000;
        let memory = Buf::alloc(64).expect("memory");
        let (is_over, both_end) = (AtomicBool::new(false), Barrier::new(2));
        let plain = |number| Half { records: 0, ..message(number) };
        let run = |mut side: Line| {
            let (mut sent, mut got) = (0, 0);
            let take = |side: &mut Line, got: &mut u64| {
                let found = side.look(0).map(|found| assert_eq!(found, plain(*got)));
                found.into_iter().for_each(|()| side.pass());
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

    /// Goal: nobody puts before the other side looks here.
    #[test]
    fn nobody_speaks_before_the_other_listens() {
        let memory = Buf::alloc(64).expect("memory");
        let mut line = Line::new(&memory, 0, true).expect("a line");
        assert!(!line.is_free() && !line.has_news(), "nobody looks");
        let mut other = Line::new(&memory, 0, false).expect("a line");
        assert!(line.is_free() && other.is_free() && !line.has_news() && !other.has_news());
        assert!(Line::new(&memory, 8, true).is_err(), "more than there is");
    }
}
