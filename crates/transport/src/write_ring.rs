//! [`WriteRing`]: messages by RDMA writes into memory of the receiver, which polls there: they consume no receive, and the receiver
//! waits for no completion. For devices that write the last byte of a write last, and whose memory peers cannot map; others use
//! [`crate::Inbox`].
//!
//! Each side has a ring of lines for the other's messages, and a copy of the other's ring, from which it writes. Before the ring is
//! a line in whose first word the peer publishes how many lines it has released. A message is a record, in one write: its header,
//! its payload, and a nonzero word at the end of its last line. The receiver zeroes the words where a record can begin or end when
//! it releases lines. So a receiver that finds both words nonzero finds a whole record. If a record does not fit before the end of
//! the ring, it begins at the start of the ring, and a mark takes its place.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, Buf, Data, Mr, Pd, RemoteAddr, Result, SendFlags, SendOp};

use crate::header::{HEADER_MAX, Header, Payload};
use crate::line::DuplexLine;
use crate::queue::{MessageQueue, Signal};
use crate::ring::{Malformed, Offer, Record};

const LINE: usize = DuplexLine::LEN;
const WORD: usize = size_of::<u64>();
/// Parts of the ring. The receiver publishes its position once for each part.
const PARTS: u64 = 4;
/// Lines reserved for the last message of a connection, which therefore never waits for room.
const LAST: u64 = 1;
/// The last word of a record.
const END: u64 = 1;
/// The first word where a record would begin, if the record is at the start of the ring instead. No message begins with it, since
/// the length is above bit 15.
const MARK: u64 = 6;

/// The number of lines for a record of `len` bytes of header and payload.
fn lines(len: usize) -> u64 {
    (len + WORD).div_ceil(LINE) as u64
}

/// A word at an offset that this file computes.
fn word(memory: &Buf, at: usize) -> &AtomicU64 {
    memory.word(at).expect("all lines are inside the memory, which is aligned")
}

/// The writes for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stores {
    /// The offset of the mark that leads to the start of the ring, if one is needed; it is written first.
    mark: Option<usize>,
    /// The record.
    at: usize,
    len: usize,
}

/// Both directions of a connection whose messages are written.
#[derive(Debug)]
pub struct WriteRing {
    inbox: Mr,
    copy: Mr,
    /// The peer's ring, once it is known.
    peer: Option<RemoteAddr>,
    /// Lines of a ring: a power of two.
    count: u64,
    /// The next record to receive, the released position, and the position published to the peer.
    next: u64,
    released: u64,
    published: u64,
    /// The position of the next record to send, and the lines that the peer has released, as far as this side knows.
    put: u64,
    free: u64,
}

impl WriteRing {
    /// Rings of `ring` bytes, a power of two, with room for records of `longest` bytes.
    ///
    /// # Errors
    /// Those of registering memory.
    pub fn new(pd: &Pd, ring: usize, longest: usize) -> Result<Self> {
        let count = (ring / LINE) as u64;
        debug_assert!(count.is_power_of_two() && count / PARTS > lines(longest));
        let inbox = pd.reg_mr(&Buf::alloc(LINE + ring)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let copy = pd.reg_mr(&Buf::alloc(LINE + ring)?, Access::LOCAL_WRITE)?;
        Ok(Self { inbox, copy, peer: None, count, next: 0, released: 0, published: 0, put: 0, free: 0 })
    }

    /// The memory that the peer needs to write to.
    pub fn offer(&self) -> Offer {
        Offer { at: self.inbox.remote(0), len: self.inbox.buf().len() as u32 }
    }

    /// Sets the peer's ring; returns whether it has the same length.
    pub fn open(&mut self, offer: Offer) -> bool {
        self.peer = Some(offer.at);
        offer.len as usize == self.inbox.buf().len()
    }

    /// The memory that holds the payloads.
    pub fn buf(&self) -> &Buf {
        self.inbox.buf()
    }

    /// The offset of a line in the memory. Line numbers increase from lap to lap.
    fn offset_of(&self, line: u64) -> usize {
        LINE + (line & (self.count - 1)) as usize * LINE
    }

    /// Lines from this one to the end of the ring.
    fn ahead(&self, line: u64) -> u64 {
        self.count - (line & (self.count - 1))
    }

    fn first_word(&self) -> u64 {
        word(self.buf(), self.offset_of(self.next)).load(Ordering::Acquire)
    }

    /// Whether there is another message, valid or not.
    pub fn has_record(&mut self) -> bool {
        let mut first = self.first_word();
        if first == MARK {
            self.next += self.ahead(self.next);
            first = self.first_word();
        }
        if first == 0 {
            return false;
        }
        let lines = lines(usize::from((u64::from_le(first) >> 16) as u16));
        let end = self.offset_of(self.next) + lines as usize * LINE - WORD;
        lines > self.ahead(self.next) || word(self.buf(), end).load(Ordering::Acquire) != 0
    }

    /// Takes the next message; the caller has checked [`WriteRing::has_record`]. It does not change until [`WriteRing::release`].
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take<H: Header>(&mut self, header: &mut H) -> Result<Record, Malformed> {
        let at = self.offset_of(self.next);
        let mut bytes = [0; HEADER_MAX];
        let known = HEADER_MAX.min(self.buf().len() - at);
        self.buf().read(at, &mut bytes[..known]).map_err(|_| Malformed)?;
        let len = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let behind = header.decode(&bytes[..known.min(len)], len).ok_or(Malformed)?;
        if lines(len) > self.ahead(self.next) {
            return Err(Malformed);
        }
        let payload = len.checked_sub(behind).ok_or(Malformed)?;
        self.next += lines(len);
        Ok(Record { at: at + behind, len: payload, upto: self.next })
    }

    /// Releases the lines before `upto`; returns whether to [publish](WriteRing::publish) the position.
    pub fn release(&mut self, upto: u64) -> bool {
        for line in self.released..upto {
            let at = self.offset_of(line);
            word(self.buf(), at).store(0, Ordering::Relaxed);
            word(self.buf(), at + LINE - WORD).store(0, Ordering::Relaxed);
        }
        self.released = upto;
        self.is_due()
    }

    fn is_due(&self) -> bool {
        self.released - self.published >= self.count / PARTS
    }

    /// Publishes the position, if a part of the ring has been released since the last time. If the send queue is full, the caller
    /// retries after the next completion.
    ///
    /// # Errors
    /// Those of posting.
    pub fn publish<K, const CHANNELS: usize, const INLINE: usize>(
        &mut self,
        queue: &mut MessageQueue<K, CHANNELS, INLINE>,
        flags: SendFlags,
    ) -> Result<()> {
        let Some(peer) = self.peer.filter(|_| self.is_due() && !queue.is_full()) else { return Ok(()) };
        self.published = self.released;
        let lines = self.released.to_le_bytes();
        queue.post(SendOp::Write(peer), Data::Inline(&lines), flags, Signal::Sometimes)
    }

    /// Whether there is room for a record of `len` bytes and the last record of the connection.
    pub fn has_room(&mut self, len: usize) -> bool {
        let (lines, ahead) = (lines(len), self.ahead(self.put));
        let wanted = self.put + lines + LAST + if lines > ahead { ahead } else { 0 };
        if wanted > self.free + self.count {
            let published = u64::from_le(word(self.buf(), 0).load(Ordering::Acquire));
            // A position that the receiver cannot have reached harms the receiver alone.
            self.free = published.clamp(self.free, self.put);
        }
        wanted <= self.free + self.count
    }

    /// Builds the record of a message in the local copy of the ring.
    fn put(&mut self, header: &impl Header, payload: &impl Payload) -> Result<Stores> {
        let mut head = header.encode();
        let len = head.as_slice().len() + payload.len();
        head.set_spare_bits(len as u16);
        let (lines, ahead) = (lines(len), self.ahead(self.put));
        let mark = (lines > ahead).then(|| self.offset_of(self.put));
        self.put += if mark.is_some() { ahead } else { 0 };
        let (at, bytes, copy) = (self.offset_of(self.put), lines as usize * LINE, self.copy.buf());
        copy.write(at, head.as_slice())?;
        payload.copy_to(copy, at + head.as_slice().len())?;
        word(copy, at + bytes - WORD).store(END, Ordering::Relaxed);
        self.put += lines;
        Ok(Stores { mark, at, len: bytes })
    }

    /// Writes a message to the peer. The caller has checked [room](WriteRing::has_room), unless it is the connection's last
    /// message, and that the send queue has two free entries. The payload may be reused when this returns. `copied` is called with
    /// its length before anything is posted.
    ///
    /// # Errors
    /// Those of the payload and of posting.
    pub fn send<K, const CHANNELS: usize, const INLINE: usize>(
        &mut self,
        queue: &mut MessageQueue<K, CHANNELS, INLINE>,
        (header, payload): (&impl Header, &impl Payload),
        (flags, signal): (SendFlags, Signal<K>),
        copied: impl FnOnce(u64),
    ) -> Result<()> {
        let stores = self.put(header, payload)?;
        copied(payload.len() as u64);
        let Some(peer) = self.peer else { return Ok(()) };
        let to = |at: usize| SendOp::Write(peer.offset(at as u64));
        if let Some(at) = stores.mark {
            queue.post(to(at), Data::Inline(&MARK.to_ne_bytes()), flags, Signal::Sometimes)?;
        }
        let (sge, mut bytes) = ([self.copy.sge(stores.at as u64, stores.len as u32)], [0; INLINE]);
        let data = match bytes.get_mut(..stores.len) {
            Some(into) => {
                self.copy.buf().read(stores.at, into)?;
                Data::Inline(into)
            }
            None => Data::Sges(&sge),
        };
        queue.post(to(stores.at), data, flags, signal)
    }
}

#[cfg(test)]
mod tests {
    use host::Rng;
    use verbs::Device;

    use super::*;
    use crate::header::{HeaderBytes, LINE_WORDS};

    const RING: usize = 16 << 10;
    const LONGEST: usize = 2 << 10;
    const HEAD: usize = 16;

    /// A header of one kind, with a number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Number(u64);

    impl Header for Number {
        type Short = [u64; 2];

        fn encode_short(&self) -> Option<[u64; 2]> {
            None
        }

        fn encode(&self) -> HeaderBytes {
            HeaderBytes::from_words([1, self.0])
        }

        fn decode_short(&mut self, _line: &[u64; LINE_WORDS], _total: usize) -> Option<usize> {
            None
        }

        fn decode(&mut self, bytes: &[u8], _total: usize) -> Option<usize> {
            let words: &[[u8; 8]; 2] = bytes.as_chunks().0.first_chunk()?;
            let [first, number] = words.map(u64::from_le_bytes);
            self.0 = number;
            (first as u8 == 1).then_some(HEAD)
        }
    }

    fn rings() -> (Device, [WriteRing; 2]) {
        let device = fabric::open("iwarp", &host::real::host()).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let mut rings = [0; 2].map(|_| WriteRing::new(&pd, RING, LONGEST).expect("memory"));
        let offers = rings.each_ref().map(WriteRing::offer);
        rings.iter_mut().zip(offers).for_each(|(ring, offer)| assert!(ring.open(offer)));
        (device, rings)
    }

    /// Does the device's work for a message: writes the mark, then the record.
    fn write(from: &mut WriteRing, to: &WriteRing, number: u64, payload: &[u8]) {
        let Stores { mark, at, len } = from.put(&Number(number), &payload).expect("inside");
        mark.into_iter().for_each(|at| to.buf().write(at, &MARK.to_ne_bytes()).expect("inside"));
        let record = from.copy.buf().to_vec(at..at + len).expect("inside");
        to.buf().write(at, &record).expect("inside");
    }

    /// Goal: records of all lengths arrive whole and in order, lap after lap, and never more than there is room for. Method: random
    /// lengths and turns.
    #[test]
    fn records_of_random_lengths_arrive_in_order() {
        let (_device, [mut from, mut to]) = rings();
        let (mut rng, mut sent, mut taken, mut full) = (Rng::new(3), 0, 0, 0);
        let payload = |number: u64| vec![number as u8; (number * 131) as usize % (LONGEST - HEAD)];
        while taken < 5000 {
            let (sends, times) = (rng.one_in(2), rng.next_u64() % 20);
            for _ in 0..times {
                if sends && from.has_room(HEAD + payload(sent).len()) {
                    write(&mut from, &to, sent, &payload(sent));
                    sent += 1;
                } else if sends {
                    full += 1;
                } else if to.has_record() {
                    let mut number = Number(0);
                    let Record { at, len, upto } = to.take(&mut number).expect("well formed");
                    assert_eq!(number, Number(taken));
                    assert_eq!(to.buf().to_vec(at..at + len).expect("inside"), payload(taken));
                    if to.release(upto) {
                        to.published = to.released;
                        from.buf().write(0, &to.released.to_le_bytes()).expect("inside");
                    }
                    taken += 1;
                } else {
                    assert_eq!(taken, sent);
                }
            }
        }
        assert!(full > 100, "{full}");
    }

    /// Goal: for any words that a peer writes, the receiver stays within its memory; for any position that it publishes, the sender
    /// does. Method: random words in the relevant positions.
    #[test]
    fn hostile_words_do_not_affect_others() {
        let (_device, [mut from, mut to]) = rings();
        let (mut rng, mut refused) = (Rng::new(5), 0);
        for _ in 0..20_000 {
            let lie = if rng.one_in(3) { MARK } else { rng.next_u64() & 0xffff_00ff };
            let at = to.offset_of(to.next);
            word(to.buf(), at).store(lie, Ordering::Relaxed);
            if to.has_record() {
                match to.take(&mut Number(0)) {
                    Ok(record) => {
                        assert!(record.at + record.len <= to.buf().len());
                        to.release(record.upto);
                    }
                    Err(Malformed) => refused += 1,
                }
            }
            to.next += rng.next_u64() % 3;
            let shift = rng.next_u64() % 64;
            word(from.buf(), 0).store(rng.next_u64() >> shift, Ordering::Relaxed);
            if from.has_room(LONGEST) {
                from.put(&Number(1), &[0; 100].as_slice()).expect("inside");
            }
            assert!(from.free <= from.put && from.put <= from.free + from.count);
        }
        assert!(refused > 1000, "{refused}");
    }
}
