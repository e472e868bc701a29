//! [`Inbox`] and [`Outbox`]: a ring of messages in the receiver's NIC memory, for devices where the sender can map it.
//!
//! The memory begins with [`CONTROL_LINES`] cache lines, and the ring follows. In the first word of the first line the receiver
//! publishes its position, the number of lines that it has released. The second line is for the [`DuplexLine`] that both sides
//! write, and the third for words of the user. The rings of a connection are in one piece of memory, one after the other.
//!
//! A message is a record of whole lines: its header, whose first word is stored last, and its payload. Before that, the sender
//! stores 0 in the first word after the record. So a receiver that finds a nonzero word finds a whole record. A record is never
//! split: if it does not fit before the end of the ring, it begins at the start of the ring, and a mark takes its place.
//!
//! The sender learns of free room by reading the receiver's position, and neither waits for the other to answer. If a sender dies
//! while it stores a record, the receiver sees nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, Buf, Error, Mr, Pd, Qp, RemoteAddr, Result, Words};

use crate::header::{HEADER_MAX, Header, HeaderBytes, LINE_WORDS, Payload};
use crate::line::DuplexLine;
use crate::store_meter::{StoreMeter, Stores};

const LINE: usize = DuplexLine::LEN;
const WORD: usize = size_of::<u64>();
const _: () = assert!(LINE_WORDS * WORD == LINE);
/// Lines before the ring.
pub const CONTROL_LINES: usize = 3;
/// The offset of the line that both sides write.
pub const SHARED_LINE: usize = LINE;
/// The offset of the line for the user's words.
pub const USER_LINE: usize = 2 * LINE;
/// Lines reserved for the last message of a connection, which therefore never waits for room.
const LAST: u64 = 1;
/// Parts of the ring. The receiver publishes its position once for each part.
const PARTS: u64 = 4;
/// The first word where a record would begin, if the record is at the start of the ring instead.
const MARK: u64 = 0xff;
/// The shortest payload whose stores are chosen by their cost.
const METERED_MIN: usize = 4 << 10;
/// The lowest bit of a record's length in its first word; the length has 16 bits.
const LENGTH_SHIFT: u32 = 16;

/// The length of a record, as encoded in its first word.
#[inline]
const fn length_bits(len: usize) -> u64 {
    (len as u64 & 0xffff) << LENGTH_SHIFT
}

/// The number of lines for a record of `bytes`.
#[inline]
fn lines(bytes: usize) -> u64 {
    bytes.div_ceil(LINE) as u64
}

/// The layout of a ring.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Lines of the ring: a power of two.
    count: u64,
}

impl Shape {
    /// The offset of a line in the memory. Line numbers increase from lap to lap.
    #[inline]
    fn offset_of(self, line: u64) -> usize {
        (CONTROL_LINES + (line & (self.count - 1)) as usize) * LINE
    }

    /// Lines from this one to the end of the ring.
    #[inline]
    fn ahead(self, line: u64) -> u64 {
        self.count - (line & (self.count - 1))
    }
}

/// The words of a line at an offset from the [`Shape`] of this memory.
#[inline]
fn cache_line(words: &Words, at: usize) -> &[AtomicU64; LINE_WORDS] {
    words[at / WORD..].first_chunk().expect("all lines are in the memory")
}

/// All words of the memory of a ring.
fn words(memory: &Buf) -> Result<Words> {
    memory.words(0, memory.len() / WORD)
}

/// The peer has stored a message that no process of this version stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for Error {
    #[cold]
    fn from(Malformed: Malformed) -> Self {
        Self::Invalid("the peer sent a message that this version does not know".into())
    }
}

/// Memory into which a peer may store messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its address and key.
    pub at: RemoteAddr,
    /// Its length in bytes, not 0.
    pub len: u32,
}

impl Offer {
    /// Bytes of an encoded offer.
    pub const LEN: usize = 16;

    /// Encodes it: address (8), key and length (4 each), in little-endian order.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.at.addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.at.rkey.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Decodes the offer at the start of these bytes; `None` for fewer bytes, and for memory of no bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let (addr, rest) = bytes.split_first_chunk()?;
        let (rkey, len) = rest.split_first_chunk()?;
        let len = u32::from_le_bytes(len.try_into().ok()?);
        let at = RemoteAddr { addr: u64::from_le_bytes(*addr), rkey: u32::from_le_bytes(*rkey) };
        (len > 0).then_some(Self { at, len })
    }
}

/// The next message, before its header is read.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its offset in [`Inbox::buf`].
    pub at: usize,
    /// Its length, header and payload.
    pub len: usize,
    /// The first word of its header, with the length in its bits 16 to 31.
    pub first: u64,
    /// The line after it.
    pub upto: u64,
}

/// The payload of a message whose header has been read, until it is released.
#[derive(Debug)]
pub struct Record {
    /// Its offset in [`Inbox::buf`].
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
    /// The line after it.
    pub upto: u64,
}

/// The receiving end of a ring: memory of this process's NIC.
#[derive(Debug)]
pub struct Inbox {
    /// The memory of all rings of the connection.
    all: Arc<Mr>,
    memory: Buf,
    words: Words,
    shape: Shape,
    /// The next record. All earlier ones are taken.
    next: u64,
    /// The position published to the sender.
    published: u64,
    /// Records taken, modulo 2^16.
    records: u16,
}

impl Inbox {
    /// The `N` rings of a connection, of `bytes` each, a power of two.
    ///
    /// # Errors
    /// As [`verbs::Device::alloc_dm`] and [`Pd::reg_mr`]; [`Error::Unsupported`] for NIC memory that a processor cannot poll.
    pub fn new<const N: usize>(pd: &Pd, bytes: usize) -> Result<[Self; N]> {
        debug_assert!(bytes.is_power_of_two() && bytes >= LINE);
        let (each, shape) = (CONTROL_LINES * LINE + bytes, Shape { count: lines(bytes) });
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let all = Arc::new(pd.reg_mr(&pd.device().alloc_dm(N * each)?, access)?);
        let ring = |place: usize| {
            let memory = all.buf().slice(place * each..(place + 1) * each)?;
            let words = words(&memory)?;
            Ok(Self { all: all.clone(), memory, words, shape, next: 0, published: 0, records: 0 })
        };
        let rings: Vec<Self> = (0..N).map(ring).collect::<Result<_>>()?;
        Ok(rings.try_into().expect("N rings were made"))
    }

    /// The memory that the peer needs to map: that of all rings of the connection.
    pub fn offer(&self) -> Offer {
        Offer { at: self.all.remote(0), len: self.all.buf().len() as u32 }
    }

    /// The memory that holds the payloads.
    #[inline]
    pub fn buf(&self) -> &Buf {
        &self.memory
    }

    /// Records taken, modulo 2^16; the next message of the [`DuplexLine`] has this number.
    #[inline]
    pub fn records(&self) -> u16 {
        self.records
    }

    #[inline]
    fn first_word(&self) -> u64 {
        cache_line(&self.words, self.shape.offset_of(self.next))[0].load(Ordering::Acquire)
    }

    /// Whether the peer has stored a record, or a mark, at the next position.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.first_word() != 0
    }

    /// Finds the next message. It remains the next one until [`Inbox::take`].
    ///
    /// # Errors
    /// [`Malformed`], by its length.
    #[inline(always)] // on a data path the result stays in registers
    pub fn peek(&mut self) -> Result<Option<Found>, Malformed> {
        match self.first_word() {
            0 => Ok(None),
            MARK => self.peek_at_start(),
            first => self.found(first).map(Some),
        }
    }

    /// [`Inbox::peek`], after a mark that leads to the start of the ring.
    #[cold]
    fn peek_at_start(&mut self) -> Result<Option<Found>, Malformed> {
        self.next += self.shape.ahead(self.next);
        match self.first_word() {
            0 => Ok(None),
            first => self.found(first).map(Some),
        }
    }

    /// The next message, which begins with this word.
    #[inline(always)]
    fn found(&self, first: u64) -> Result<Found, Malformed> {
        let len = (first >> LENGTH_SHIFT & 0xffff) as usize;
        if lines(len) > self.shape.ahead(self.next) {
            return Err(Malformed);
        }
        Ok(Found { at: self.shape.offset_of(self.next), len, first, upto: self.next + lines(len) })
    }

    /// The first words of a found message; at most [`LINE_WORDS`]. Each is read once, so a concurrent store by the peer counts as a
    /// later one.
    #[inline]
    pub fn words<const N: usize>(&self, found: &Found) -> [u64; N] {
        const { assert!(N <= LINE_WORDS) };
        let line = cache_line(&self.words, found.at);
        std::array::from_fn(
            |place| if place == 0 { found.first } else { line[place].load(Ordering::Relaxed) },
        )
    }

    /// Reads the header of the next message, if there is one. The message remains the next one until [`Inbox::take`].
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn poll<H: Header>(&mut self, header: &mut H) -> Result<Option<Record>, Malformed> {
        match self.find()? {
            Some(found) => self.decode(&found, header).map(Some),
            None => Ok(None),
        }
    }

    /// [`Inbox::peek`] for callers that read a whole header, and so do not need its result in registers.
    #[inline(never)]
    fn find(&mut self) -> Result<Option<Found>, Malformed> {
        self.peek()
    }

    /// Reads the header of a found message.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn decode<H: Header>(&self, found: &Found, header: &mut H) -> Result<Record, Malformed> {
        let &Found { at, len, first, upto } = found;
        let behind = match header.decode_short(&self.words(found), len) {
            Some(behind) => behind,
            None => self.read_bytes(header, (at, len), first)?,
        };
        let payload = len.checked_sub(behind).ok_or(Malformed)?;
        Ok(Record { at: at + behind, len: payload, upto })
    }

    /// Reads a header of any kind, whose first word is known, from a record of `len` bytes at `at`. Returns the bytes of the header.
    fn read_bytes<H: Header>(
        &self,
        header: &mut H,
        (at, len): (usize, usize),
        first: u64,
    ) -> Result<usize, Malformed> {
        let mut bytes = [0; HEADER_MAX];
        let known = len.min(HEADER_MAX);
        self.buf().read(at, &mut bytes[..known]).map_err(|_| Malformed)?;
        bytes[..WORD].copy_from_slice(&first.to_le_bytes());
        header.decode(&bytes[..known], len).ok_or(Malformed)
    }

    /// Takes the next message, which ends before the line `upto`. Its memory does not change until it is released.
    #[inline]
    pub fn take(&mut self, upto: u64) {
        self.next = upto;
        self.records = self.records.wrapping_add(1);
    }

    /// Releases the lines before `upto`. Messages are released in the order in which they are taken. Returns whether the position
    /// was published: the caller then notifies the sender, which may wait for room.
    #[inline]
    pub fn release(&mut self, upto: u64) -> bool {
        let publishes = upto - self.published >= self.shape.count / PARTS;
        if publishes {
            self.published = upto;
            self.words[0].store(upto, Ordering::Release);
        }
        publishes
    }

    /// Takes and releases the next message: [`Inbox::take`], then [`Inbox::release`].
    #[inline]
    pub fn consume(&mut self, upto: u64) -> bool {
        self.take(upto);
        self.release(upto)
    }
}

/// The sending end of a ring: memory of the peer's NIC.
#[derive(Debug)]
pub struct Outbox {
    memory: Buf,
    words: Words,
    shape: Shape,
    /// The position of the next record.
    next: u64,
    /// A line whose first word is 0, unless it is before `next`.
    cleared: u64,
    /// Lines that the receiver has released, as far as this side knows.
    free: u64,
    /// Records stored, modulo 2^16.
    records: u16,
    /// The costs of stores to this memory.
    meter: StoreMeter,
}

impl Outbox {
    /// Maps the `N` rings that a peer offers; `None` if that fails, or a ring has no room for records of `longest` bytes.
    pub fn new<const N: usize>(qp: &Qp, offer: Offer, longest: usize) -> Option<[Self; N]> {
        let (len, each) = (offer.len as usize, offer.len as usize / N);
        let count = lines(each).checked_sub(CONTROL_LINES as u64)?;
        let is_ring = len.is_multiple_of(N * LINE) && count.is_power_of_two();
        // Up to the length of a record may be lost at the end of the ring, and up to one part may be unpublished.
        if !is_ring || 2 * lines(longest) + 1 + LAST + count / PARTS > count {
            return None;
        }
        let all = qp.map(offer.at, len).ok()?;
        let ring = |place: usize| Self::from_memory(all.slice(place * each..(place + 1) * each).ok()?);
        (0..N).map(ring).collect::<Option<Vec<Self>>>()?.try_into().ok()
    }

    /// The ring in memory of the right length.
    fn from_memory(memory: Buf) -> Option<Self> {
        let words = words(&memory).ok()?;
        let shape = Shape { count: lines(memory.len()) - CONTROL_LINES as u64 };
        let meter = StoreMeter::default();
        Some(Self { memory, words, shape, next: 0, cleared: 0, free: 0, records: 0, meter })
    }

    /// The memory, which is the receiver's.
    pub fn buf(&self) -> &Buf {
        &self.memory
    }

    /// Records stored, modulo 2^16; the next message of the [`DuplexLine`] has this number.
    #[inline]
    pub fn records(&self) -> u16 {
        self.records
    }

    /// Whether there is room for a record of `len` bytes, and after it for the last record of the connection.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        let (lines, ahead) = (lines(len), self.shape.ahead(self.next));
        let lost = if lines > ahead { ahead } else { 0 };
        let end = self.next + lost + lines + 1 + LAST;
        end <= self.free + self.shape.count || self.has_room_by_now(end)
    }

    /// Rereads the receiver's published position, and checks again for room before a line.
    #[cold]
    fn has_room_by_now(&mut self, end: u64) -> bool {
        let published = self.words[0].load(Ordering::Acquire);
        // A position that the receiver cannot have reached harms the receiver alone.
        self.free = published.clamp(self.free, self.next);
        end <= self.free + self.shape.count
    }

    /// Stores a message. The caller has checked [room](Outbox::has_room) for header and payload, unless it is the last message of
    /// the connection and takes one line.
    ///
    /// # Errors
    /// Those of the payload. Nothing has been sent then.
    #[inline]
    pub fn put<H: Header>(&mut self, header: &H, payload: &impl Payload) -> Result<()> {
        let short = header.encode_short();
        let Some([first, rest @ ..]) = short.as_ref().map(AsRef::as_ref) else {
            return self.put_bytes(&header.encode(), payload);
        };
        let (behind, data) = ((1 + rest.len()) * WORD, payload.len());
        let at = self.begin(behind + data);
        let line = cache_line(&self.words, at);
        let (head, places) = line.split_at(behind / WORD);
        let store = |(place, word): (&AtomicU64, u64)| place.store(word, Ordering::Relaxed);
        head[1..].iter().zip(rest.iter().copied()).for_each(store);
        match payload.words() {
            Some(words) if data <= size_of_val(places) => places.iter().zip(words).for_each(store),
            _ if data < METERED_MIN => payload.copy_to(&self.memory, at + behind)?,
            _ => self.store_long(payload, at + behind)?,
        }
        self.first_word(self.next).store(first | length_bits(behind + data), Ordering::Release);
        self.end(behind + data);
        Ok(())
    }

    /// Stores a message with an encoded header.
    fn put_bytes(&mut self, header: &HeaderBytes, payload: &impl Payload) -> Result<()> {
        let (behind, data) = (header.as_slice().len(), payload.len());
        let at = self.begin(behind + data);
        let (first, rest) = header.split_first();
        self.memory.write(at + WORD, rest)?;
        match data {
            ..METERED_MIN => payload.copy_to(&self.memory, at + behind)?,
            _ => self.store_long(payload, at + behind)?,
        }
        self.first_word(self.next).store(first | length_bits(behind + data), Ordering::Release);
        self.end(behind + data);
        Ok(())
    }

    /// Stores a long payload, by the stores that cost less. In the first lap, pages of the memory appear in this process, which costs
    /// more than stores do.
    #[inline(never)]
    fn store_long(&mut self, payload: &impl Payload, at: usize) -> Result<()> {
        let Self { memory, meter, .. } = self;
        if self.next < self.shape.count {
            return payload.copy_to(memory, at);
        }
        meter.store(payload.len(), |stores| match stores {
            Stores::Plain => payload.copy_to(memory, at),
            Stores::Bypassing => payload.copy_past_caches(memory, at),
        })
    }

    /// Whether plain stores to the peer's memory cost less than others, as [`StoreMeter::is_near`] says.
    pub fn is_near(&mut self) -> bool {
        self.meter.is_near()
    }

    /// Counts the record of `len` bytes that has been stored.
    #[inline]
    fn end(&mut self, len: usize) {
        self.next += lines(len);
        self.records = self.records.wrapping_add(1);
        self.clear_ahead(lines(len));
    }

    /// Returns the offset for the next record: the start of the ring if it does not fit before the end. Clears the position after
    /// it.
    #[inline]
    fn begin(&mut self, len: usize) -> usize {
        let (lines, ahead) = (lines(len), self.shape.ahead(self.next));
        if lines > ahead {
            self.begin_at_start(ahead);
        }
        self.clear(self.next + lines);
        self.shape.offset_of(self.next)
    }

    /// Moves the next record to the start of the ring, `ahead` lines on, and stores a mark.
    #[cold]
    fn begin_at_start(&mut self, ahead: u64) {
        self.clear(self.next + ahead);
        self.first_word(self.next).store(MARK, Ordering::Release);
        self.next += ahead;
    }

    /// Clears the position of a record after the next one.
    #[inline]
    fn clear(&mut self, line: u64) {
        if line != self.cleared {
            self.first_word(line).store(0, Ordering::Relaxed);
            self.cleared = line;
        }
    }

    /// Clears the position after a record of `lines` that may come next, while no receiver waits: messages often are as long as the
    /// one before.
    #[inline]
    fn clear_ahead(&mut self, lines: u64) {
        if lines <= 8 && self.next + lines < self.free + self.shape.count {
            self.clear(self.next + lines);
        }
    }

    #[inline]
    fn first_word(&self, line: u64) -> &AtomicU64 {
        &cache_line(&self.words, self.shape.offset_of(line))[0]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use host::Rng;
    use verbs::Device;

    use super::*;
    use crate::header::HeaderBytes;

    /// A header of the frequent kind, or of another kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Number {
        Short(u64),
        Long(u64),
    }

    const SHORT: u64 = 1;
    const LONG: u64 = 2;
    const SHORT_WORDS: usize = 3;
    const LONG_WORDS: usize = 14;
    const NONE: Number = Number::Short(0);

    /// Derives all words of a header after the first from its number.
    fn word(number: u64, place: usize) -> u64 {
        number.rotate_left(8 * place as u32)
    }

    fn all_words<const N: usize>(kind: u64, number: u64) -> [u64; N] {
        std::array::from_fn(|place| if place == 0 { kind } else { word(number, place) })
    }

    impl Header for Number {
        type Short = [u64; SHORT_WORDS];

        fn encode_short(&self) -> Option<[u64; SHORT_WORDS]> {
            if let Self::Short(number) = *self { Some(all_words(SHORT, number)) } else { None }
        }

        fn encode(&self) -> HeaderBytes {
            match *self {
                Self::Short(number) => HeaderBytes::from_words::<SHORT_WORDS>(all_words(SHORT, number)),
                Self::Long(number) => HeaderBytes::from_words::<LONG_WORDS>(all_words(LONG, number)),
            }
        }

        fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
            let is_short = line[0] & 0xff == SHORT && total >= 8 * SHORT_WORDS;
            let number = line[1].rotate_right(8);
            let is_whole = (1..SHORT_WORDS).all(|place| line[place] == word(number, place));
            *self = Self::Short(number);
            (is_short && is_whole).then_some(8 * SHORT_WORDS)
        }

        fn decode(&mut self, bytes: &[u8], total: usize) -> Option<usize> {
            let (words, _) = bytes.as_chunks::<8>();
            let words: &[[u8; 8]; LONG_WORDS] = words.first_chunk()?;
            let words = words.map(u64::from_le_bytes);
            let number = words[1].rotate_right(8);
            let is_whole = (1..LONG_WORDS).all(|place| words[place] == word(number, place));
            *self = Self::Long(number);
            (words[0] & 0xff == LONG && is_whole && total >= 8 * LONG_WORDS).then_some(8 * LONG_WORDS)
        }
    }

    const RING: usize = 64 << 10;
    const LONGEST: usize = 8 << 10;

    fn boxes() -> (Device, Inbox, Outbox) {
        let device = fabric::open("shm", &host::real::host()).expect("a device");
        let [inbox] = Inbox::new(&device.alloc_pd().expect("a domain"), RING).expect("memory");
        let outbox = Outbox::from_memory(inbox.buf().clone()).expect("a ring");
        (device, inbox, outbox)
    }

    fn header(number: u64) -> Number {
        if number.is_multiple_of(3) { Number::Long(number) } else { Number::Short(number) }
    }

    fn put(outbox: &mut Outbox, header: &Number, payload: &[u8]) -> bool {
        let has_room = outbox.has_room(HEADER_MAX + payload.len());
        if has_room {
            outbox.put(header, &payload).expect("inside");
        }
        has_room
    }

    /// Goal: records of all lengths arrive whole and in order, lap after lap, however far the receiver is behind. Method: random
    /// lengths and turns; a full ring is found full, and an empty one empty.
    #[test]
    fn records_of_random_lengths_arrive_in_order() {
        let (_device, mut inbox, mut outbox) = boxes();
        let (mut rng, mut sent, mut number) = (Rng::new(3), VecDeque::new(), 0);
        let (mut full, mut taken, mut found) = (0, 0, NONE);
        while taken < 20_000 {
            let most = if rng.one_in(3) { (LONGEST - HEADER_MAX) as u64 + 1 } else { 40 };
            let (turn, len, times) = (rng.one_in(2), rng.next_u64() % most, rng.next_u64() % 40);
            let payload = rng.bytes(len as usize);
            for _ in 0..times {
                if turn {
                    let header = header(number);
                    if put(&mut outbox, &header, &payload) {
                        sent.push_back((header, payload.clone()));
                        number += 1;
                    } else {
                        full += 1;
                    }
                } else if let Some(record) = inbox.poll(&mut found).expect("sense") {
                    let again = inbox.poll(&mut found).expect("sense");
                    assert_eq!(again.map(|again| again.upto), Some(record.upto));
                    let payload = inbox.buf().to_vec(record.at..record.at + record.len).expect("inside");
                    assert_eq!(sent.pop_front(), Some((found, payload)));
                    inbox.consume(record.upto);
                    taken += 1;
                } else {
                    assert!(sent.is_empty());
                }
            }
        }
        assert!(full > 100, "{full}");
        assert_eq!(u64::from(outbox.records()), number % (1 << 16));
    }

    /// Goal: the longest message finds room in an empty ring, at every position of the ring.
    #[test]
    fn longest_record_finds_room_in_an_empty_ring() {
        let (_device, mut inbox, mut outbox) = boxes();
        let payload = vec![7; LONGEST - HEADER_MAX];
        for number in 0..3000 {
            assert!(put(&mut outbox, &header(number), &[]), "{number}");
            let upto = inbox.poll(&mut header(0)).expect("sense").expect("a record").upto;
            inbox.consume(upto);
            if number % 7 == 0 {
                assert!(put(&mut outbox, &header(1), &payload), "{number}");
                let upto = inbox.poll(&mut header(0)).expect("sense").expect("a record").upto;
                inbox.consume(upto);
            }
        }
    }

    /// Goal: the last record of a connection needs no room, and destroys no record that was not taken. Method: rings are filled
    /// from different lines on; then one more record of one line is stored.
    #[test]
    fn last_record_is_stored_in_a_full_ring() {
        let (_device, mut inbox, mut outbox) = boxes();
        let (mut taken, mut sent, mut found) = (0, 0, NONE);
        let mut take = |inbox: &mut Inbox| {
            let upto = inbox.poll(&mut found).expect("well formed").expect("a record").upto;
            assert_eq!(found, Number::Short(taken));
            inbox.consume(upto);
            taken += 1;
        };
        for first in 0..64 {
            for _ in 0..first {
                assert!(put(&mut outbox, &Number::Short(sent), &[]));
                sent += 1;
                take(&mut inbox);
            }
            let begin = sent;
            while put(&mut outbox, &Number::Short(sent), &[]) {
                sent += 1;
            }
            outbox.put(&Number::Short(sent), &[].as_slice()).expect("inside");
            sent += 1;
            assert!(sent - begin > 100);
            (begin..sent).for_each(|_| take(&mut inbox));
            assert_eq!(inbox.poll(&mut NONE.clone()).expect("well formed").map(|record| record.upto), None);
        }
    }

    /// Goal: for any words that a peer stores, the receiver stays within its memory; for any position that a peer publishes, the
    /// sender does. Method: random words in the relevant positions, including lengths and marks.
    #[test]
    fn hostile_words_do_not_affect_others() {
        let (_device, mut inbox, mut outbox) = boxes();
        let (mut rng, mut refused) = (Rng::new(5), 0);
        for _ in 0..50_000 {
            let lie = match rng.next_u64() % 4 {
                0 => MARK,
                1 => rng.next_u64(),
                2 => SHORT | (rng.next_u64() & 0xffff) << 16,
                _ => LONG | (rng.next_u64() & 0xff) << 16,
            };
            cache_line(&inbox.words, inbox.shape.offset_of(inbox.next))[0].store(lie, Ordering::Relaxed);
            match inbox.poll(&mut header(0)) {
                Ok(Some(record)) => {
                    assert!(record.at + record.len <= inbox.buf().len());
                    inbox.consume(record.upto);
                }
                Ok(None) => {}
                Err(_) => refused += 1,
            }
            inbox.next += rng.next_u64() % 3;
            let shift = rng.next_u64() % 64;
            outbox.words[0].store(rng.next_u64() >> shift, Ordering::Relaxed);
            put(&mut outbox, &header(2), &[1; 100]);
            assert!(outbox.free <= outbox.next && outbox.next <= outbox.free + outbox.shape.count);
        }
        assert!(refused > 1000, "{refused}");
    }

    #[test]
    fn offers_are_read_as_written_and_empty_ones_refused() {
        let offer = Offer { at: RemoteAddr { addr: 0x1234_5678_9abc, rkey: 77 }, len: 5 };
        let bytes = offer.bytes();
        assert_eq!(Offer::parse(&[&bytes[..], &[9; 3]].concat()), Some(offer));
        assert_eq!(Offer::parse(&bytes[..15]), None);
        assert_eq!(Offer::parse(&Offer { len: 0, ..offer }.bytes()), None);
    }
}
