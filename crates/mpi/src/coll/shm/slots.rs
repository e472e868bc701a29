//! [`ShmSlots`]: the shared memory in which members of a communicator publish data. Each member writes only to its own area.
//!
//! Operations are numbered. An area has slots for several operations. Each slot is a line with the operation's number, the length
//! and short data, so that one cache-line transfer moves all of it. A root may therefore run ahead, and late members find the data
//! of several operations. There is space for the longer data of two operations. Data above [`BCOPY_MAX`] are elsewhere: the line
//! contains the address of the member's [ring](super::ring), or of the data themselves if it has no ring (zero copy). Further lines hold the last operation that the member has passed, after which it reads nothing more of others, whether it
//! ended one with an error, and how far it is with the chunks of its ring. No member overwrites data that another may still read;
//! the owner of zero-copy data waits until all have passed.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Mr, RemoteAddr, Words};

use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};

/// The longest data that a member copies into its area in one operation (bounce-buffer copy).
pub(crate) const BCOPY_MAX: usize = 8 << 10;
/// Operations for which an area has a slot, and for which it has space for longer data.
const SLOTS: u64 = 8;
const LARGE_SLOTS: u64 = 2;
/// The unit that processors transfer, and the two lines that they prefetch together.
const LINE: usize = 64;
const WORD: usize = 8;
const PAIR: usize = 2 * LINE;
/// Bytes of operation number and length, which precede short data or the address of zero-copy data.
const HEADER: usize = 16;
/// Flags in the length: the data are zero-copy; the same, with memory for a part of the result; the data follow in chunks.
const ZCOPY: u64 = 1 << 63;
const ZCOPY_WITH_PART: u64 = 1 << 62;
const CHUNKED: u64 = 1 << 61;
const FLAGS: u64 = ZCOPY | ZCOPY_WITH_PART | CHUNKED;
/// Offset in a member's first line: for each slot the operation that ended with an error, with the error's class in the lowest byte.
const FAILED: usize = 16;
const CLASS_BITS: u32 = 8;
/// A [`Stage`] is a word with an operation's number and, in these lowest bits, a number of rounds.
const ROUND_BITS: u32 = 24;
/// Rounds of an operation at most.
pub(super) const ROUNDS_MAX: u64 = (1 << ROUND_BITS) - 1;
/// Offsets in an area: whether the member accesses this memory no more; and the slots.
const GONE: usize = PAIR + 16;
const HEADERS: usize = 3 * PAIR;
/// The `passed` value of a member that has left.
const LEFT: u64 = u64::MAX;
const INLINE_MAX: usize = LINE - HEADER;
/// Size of a member's area: the progress lines, a line for each slot, and the space for longer data.
const AREA: usize = HEADERS + SLOTS as usize * PAIR + LARGE_SLOTS as usize * BCOPY_MAX;
const _: () = assert!(FAILED + SLOTS as usize * WORD <= PAIR);

/// The data of a member in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublishedData {
    /// This many bytes, copied into its area.
    Bcopy(usize),
    /// This many bytes of its own memory at `at`, and the address of its part of the result, if it has one.
    Zcopy { len: u64, at: RemoteAddr, part: Option<RemoteAddr> },
    /// This many bytes, which follow in its ring at `ring`, from the ring's chunk number `first` on.
    Chunked { len: u64, ring: RemoteAddr, first: u64 },
}

/// What a member has finished of an operation in rounds, by the offset of the word in its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Stage {
    /// Chunks that the others may read.
    Published = PAIR,
    /// Parts of the result that the others may read.
    Reduced = PAIR + 8,
    /// Rounds in which it reads nothing more of others.
    Taken = 2 * PAIR,
}

impl PublishedData {
    /// Their size in bytes.
    pub(super) fn len(self) -> u64 {
        match self {
            Self::Bcopy(len) => len as u64,
            Self::Zcopy { len, .. } | Self::Chunked { len, .. } => len,
        }
    }
}

/// One member's view of the memory.
#[derive(Debug)]
pub(super) struct ShmSlots {
    memory: Buf,
    words: Words,
    members: usize,
}

impl ShmSlots {
    /// Size in bytes for this many members.
    pub(super) fn len(members: usize) -> usize {
        members * AREA
    }

    /// The slots in a memory of [`ShmSlots::len`] bytes.
    pub(super) fn new(memory: Buf, members: usize) -> Result<Self> {
        let words = memory.words(0, Self::len(members) / WORD)?;
        Ok(Self { memory, words, members })
    }

    /// Resets all slots and progress lines. No other member has the memory yet.
    pub(super) fn clear(&self) {
        for member in 0..self.members {
            (0..HEADERS / 8).for_each(|word| self.word(member * AREA + 8 * word).store(0, Ordering::Relaxed));
            (0..SLOTS).for_each(|slot| self.word(Self::header_at(member, slot)).store(0, Ordering::Relaxed));
        }
    }

    /// The operation that all others must have passed before `len` bytes are published in operation `number`. Zero-copy data need
    /// no space: their length counts as zero.
    #[inline]
    pub(super) fn last_required_pass(number: u64, len: usize) -> u64 {
        number.saturating_sub(if len <= INLINE_MAX { SLOTS } else { LARGE_SLOTS })
    }

    /// Publishes a copy of a buffer's bytes, [`BCOPY_MAX`] at most, as a member's data in an operation.
    pub(super) fn publish(&self, member: usize, number: u64, buffer: &Buffer) -> Result<()> {
        let (head, len) = (Self::header_at(member, number), buffer.len() as usize);
        if len > 0 {
            buffer.load_to(&self.memory, Self::data_at(member, number, len))?;
        }
        self.word(head + 8).store(len as u64, Ordering::Relaxed);
        self.word(head).store(number, Ordering::Release);
        Ok(())
    }

    /// As [`ShmSlots::publish`], for contiguous bytes.
    #[inline]
    pub(super) fn publish_piece(&self, member: usize, number: u64, piece: Piece) -> Result<()> {
        let (head, len) = (Self::header_at(member, number), piece.len());
        piece.load_to(&self.memory, Self::data_at(member, number, len))?;
        self.word(head + 8).store(len as u64, Ordering::Relaxed);
        self.word(head).store(number, Ordering::Release);
        Ok(())
    }

    /// As [`ShmSlots::read`], into a contiguous piece.
    #[inline]
    pub(super) fn read_piece(
        &self,
        (member, number): (usize, u64),
        (from, published): (usize, usize),
        into: Piece,
    ) -> Result<()> {
        let at = Self::data_at(member, number, published) + from;
        Ok(into.store_from(&self.memory, at, into.len())?)
    }

    /// Copies all bytes that a member has published as [`PublishedData::Bcopy`]. `into` has exactly their size.
    #[inline]
    pub(super) fn read_bytes(&self, (member, number): (usize, u64), into: &mut [u8]) -> Result<()> {
        Ok(self.memory.read(Self::data_at(member, number, into.len()), into)?)
    }

    /// Publishes the address of a member's data in an operation, and the address of its part of the result, if it has one.
    pub(super) fn publish_zcopy(
        &self,
        member: usize,
        number: u64,
        len: u64,
        at: RemoteAddr,
        part: Option<RemoteAddr>,
    ) {
        let head = Self::header_at(member, number);
        let flags = if part.is_some() { ZCOPY | ZCOPY_WITH_PART } else { ZCOPY };
        let part = part.unwrap_or_default();
        let words = [len | flags, at.addr, at.rkey.into(), part.addr, part.rkey.into()];
        self.publish_words(head, number, &words);
    }

    /// Announces that a member's data in an operation follow in its ring, from the ring's chunk number `first` on.
    pub(super) fn publish_chunked(&self, member: usize, number: u64, len: u64, ring: RemoteAddr, first: u64) {
        let words = [len | CHUNKED, ring.addr, ring.rkey.into(), first];
        self.publish_words(Self::header_at(member, number), number, &words);
    }

    fn publish_words(&self, head: usize, number: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.word(head + 8 * (index + 1)).store(*word, Ordering::Relaxed);
        }
        self.word(head).store(number, Ordering::Release);
    }

    /// Whether a member has published its data of an operation.
    #[inline]
    pub(super) fn has_published(&self, member: usize, number: u64) -> bool {
        self.word(Self::header_at(member, number)).load(Ordering::Acquire) == number
    }

    /// The data that a member has published.
    ///
    /// # Errors
    /// [`Class::OTHER`] for a length that no member publishes.
    pub(super) fn published(&self, member: usize, number: u64) -> Result<PublishedData> {
        let head = Self::header_at(member, number);
        let word = |index: usize| self.word(head + 8 * index).load(Ordering::Relaxed);
        let (len, addr) = (word(1), |at| RemoteAddr { addr: word(at), rkey: word(at + 1) as u32 });
        let bytes = len & !FLAGS;
        match (len & FLAGS, usize::try_from(bytes)) {
            (0, Ok(len)) if len <= BCOPY_MAX => Ok(PublishedData::Bcopy(len)),
            (ZCOPY, _) => Ok(PublishedData::Zcopy { len: bytes, at: addr(2), part: None }),
            (flags, _) if flags == ZCOPY | ZCOPY_WITH_PART => {
                Ok(PublishedData::Zcopy { len: bytes, at: addr(2), part: Some(addr(4)) })
            }
            (CHUNKED, _) => Ok(PublishedData::Chunked { len: bytes, ring: addr(2), first: word(4) }),
            _ => Err(Error::new(
                Class::OTHER,
                "a member has published data of a length that no process of this version uses",
            )),
        }
    }

    /// Fills a buffer with bytes that a member has published as [`PublishedData::Bcopy`], starting at offset `from`.
    pub(super) fn read(
        &self,
        (member, number): (usize, u64),
        (from, published): (usize, usize),
        into: &Buffer,
    ) -> Result<()> {
        let at = Self::data_at(member, number, published) + from;
        Ok(into.store_from(&self.memory, at, into.len() as usize)?)
    }

    /// Marks an operation and all before it as passed: the member reads nothing more of others in them. `failed` is the error
    /// class if this operation failed.
    pub(super) fn mark_passed(&self, member: usize, number: u64, failed: Option<Class>) {
        if let Some(Class(class)) = failed {
            let class = u8::try_from(class).unwrap_or(Class::OTHER.0 as u8);
            let word = self.word(Self::failed_at(member, number));
            word.store(number << CLASS_BITS | u64::from(class), Ordering::Relaxed);
        }
        self.passed_word(member).store(number, Ordering::Release);
    }

    /// The error class with which a member that [has passed](Self::passed) an operation ended it or a later one of the same slot.
    pub(super) fn error_of(&self, member: usize, number: u64) -> Option<Class> {
        let word = self.word(Self::failed_at(member, number)).load(Ordering::Relaxed);
        let class = Class((word & ((1 << CLASS_BITS) - 1)) as i32);
        (word >> CLASS_BITS >= number).then_some(class)
    }

    /// Marks this many rounds of an operation as finished.
    #[inline]
    pub(super) fn mark(&self, member: usize, stage: Stage, number: u64, rounds: u64) {
        self.stage_word(member, stage).store(number << ROUND_BITS | rounds, Ordering::Release);
    }

    /// Whether a member has finished this many rounds of an operation. One that is in a later operation has, unless it ended this
    /// one with an error.
    #[inline]
    pub(super) fn has(&self, member: usize, stage: Stage, number: u64, rounds: u64) -> bool {
        let word = self.stage_word(member, stage).load(Ordering::Acquire);
        match (word >> ROUND_BITS).cmp(&number) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => word & ROUNDS_MAX >= rounds,
            std::cmp::Ordering::Greater => self.error_of(member, number).is_none(),
        }
    }

    /// Whether a member reads nothing more in a round of an operation, `current` or an earlier one.
    pub(super) fn has_taken(&self, member: usize, current: u64, (number, round): (u64, u64)) -> bool {
        self.passed(member) >= number
            || (number == current && self.has(member, Stage::Taken, number, round + 1))
    }

    /// Marks all possible operations as passed: the member reads nothing more of others.
    pub(super) fn leave(&self, member: usize) {
        self.mark_passed(member, LEFT, None);
    }

    /// The member does not access this memory again.
    pub(super) fn mark_gone(&self, member: usize) {
        self.word(member * AREA + GONE).store(1, Ordering::Release);
    }

    /// The last operation that a member has passed.
    #[inline]
    pub(super) fn passed(&self, member: usize) -> u64 {
        self.passed_word(member).load(Ordering::Acquire)
    }

    fn header_at(member: usize, number: u64) -> usize {
        member * AREA + HEADERS + (number % SLOTS) as usize * PAIR
    }

    /// Offset of data of this length. Short data follow their length word.
    fn data_at(member: usize, number: u64, len: usize) -> usize {
        if len <= INLINE_MAX {
            return Self::header_at(member, number) + HEADER;
        }
        member * AREA + HEADERS + SLOTS as usize * PAIR + (number % LARGE_SLOTS) as usize * BCOPY_MAX
    }

    fn failed_at(member: usize, number: u64) -> usize {
        member * AREA + FAILED + 8 * (number % SLOTS) as usize
    }

    #[inline]
    fn stage_word(&self, member: usize, stage: Stage) -> &AtomicU64 {
        self.word(member * AREA + stage as usize)
    }

    #[inline]
    fn passed_word(&self, member: usize) -> &AtomicU64 {
        self.word(member * AREA)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at / WORD]
    }
}

/// Memory of a communicator that a member has left and others may still use: its ring, from which they may still read; at rank 0
/// also the slots, which they may still poll, as a member may wait until the others have passed its last operation.
#[derive(Debug)]
pub(crate) struct RetiredSlots {
    pub(super) slots: ShmSlots,
    pub(super) me: usize,
    /// The memory of the slots, at rank 0.
    pub(super) region: Option<Mr>,
    pub(super) ring: Option<Mr>,
}

impl RetiredSlots {
    /// Whether this member owns memory that others may still use.
    pub(super) fn is_memory_owner(&self) -> bool {
        self.region.is_some() || self.ring.is_some()
    }

    /// Whether all members have left, and at rank 0 whether none polls the slots.
    pub(crate) fn is_unused(&self) -> bool {
        let gone = |member: usize| self.slots.word(member * AREA + GONE).load(Ordering::Acquire) != 0;
        (0..self.slots.members).all(|member| {
            self.slots.passed(member) == LEFT && (self.region.is_none() || member == self.me || gone(member))
        })
    }
}

impl Drop for RetiredSlots {
    fn drop(&mut self) {
        self.slots.mark_gone(self.me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 3] = [Stage::Published, Stage::Reduced, Stage::Taken];

    fn slots(members: usize) -> ShmSlots {
        let memory = Buf::alloc(ShmSlots::len(members)).expect("memory");
        memory.fill(0xff);
        let slots = ShmSlots::new(memory, members).expect("enough");
        slots.clear();
        slots
    }

    /// Goal: areas of members and operations do not overlap. Method: all members write as much as possible, with every boundary
    /// length, and all of it is read back.
    #[test]
    fn areas_of_members_and_operations_do_not_overlap() {
        let members = 3;
        let slots = slots(members);
        for len in [0, 1, 8, INLINE_MAX, INLINE_MAX + 1, LINE, BCOPY_MAX - 1, BCOPY_MAX] {
            let bytes = |member: usize, number: u64| vec![(member as u8 + 1) * 16 + number as u8; len];
            let last = if len <= INLINE_MAX { SLOTS } else { LARGE_SLOTS };
            let all = || (0..members).flat_map(|member| (1..=last).map(move |number| (member, number)));
            assert_eq!(
                (ShmSlots::last_required_pass(last, len), ShmSlots::last_required_pass(last + 1, len)),
                (0, 1),
                "{len} bytes"
            );
            for (member, number) in all() {
                assert_eq!(slots.has_published(member, number), len > 0);
                slots
                    .publish(member, number, &Buffer::from_bytes(&bytes(member, number)).expect("memory"))
                    .expect("room");
                slots.mark_passed(member, 40 + member as u64, Some(Class(60 + member as i32)));
                for (rounds, stage) in STAGES.into_iter().enumerate() {
                    slots.mark(member, stage, 50 + member as u64, 7 + rounds as u64);
                }
            }
            for (member, number) in all() {
                let into = Buffer::from_bytes(&vec![0; len]).expect("memory");
                assert!(slots.has_published(member, number) && !slots.has_published(member, number + SLOTS));
                assert_eq!(slots.published(member, number), Ok(PublishedData::Bcopy(len)));
                slots.read((member, number), (0, len), &into).expect("shown");
                assert_eq!(into.to_vec(), bytes(member, number));
                assert_eq!(slots.passed(member), 40 + member as u64);
                let failed = |number| slots.error_of(member, number);
                assert_eq!(failed(40 + member as u64), Some(Class(60 + member as i32)));
                assert_eq!(failed(40 + member as u64 + SLOTS), None, "later ones went well");
                for (rounds, stage) in STAGES.into_iter().enumerate() {
                    let has =
                        |number, rounds| slots.has(member, stage, number + member as u64, rounds as u64);
                    assert!(has(50, 7 + rounds) && !has(50, 8 + rounds) && has(49, 1000) && !has(51, 0));
                }
            }
        }
    }

    /// Goal: addresses of zero-copy data are read back exactly, whatever the slot held before.
    #[test]
    fn zcopy_addresses_are_read_back() {
        let slots = slots(2);
        let slot = |number: u64| RemoteAddr { addr: u64::MAX - number, rkey: u32::MAX - number as u32 };
        for (number, len) in [(1, BCOPY_MAX as u64 + 1), (2, 5 << 40), (3, 0)] {
            for part in [None, Some(slot(9))] {
                let published = PublishedData::Zcopy { len, at: slot(number), part };
                slots.publish_zcopy(1, number, len, slot(number), part);
                assert!(slots.has_published(1, number) && !slots.has_published(0, number));
                assert_eq!((slots.published(1, number), published.len()), (Ok(published), len));
            }
            let published = PublishedData::Chunked { len, ring: slot(number), first: number };
            slots.publish_chunked(1, number, len, slot(number), number);
            assert_eq!((slots.published(1, number), published.len()), (Ok(published), len));
            slots.publish(1, number + SLOTS, &Buffer::from_bytes(&[7; 40]).expect("memory")).expect("room");
            assert_eq!(slots.published(1, number + SLOTS), Ok(PublishedData::Bcopy(40)));
        }
    }

    /// A member that has failed has finished no round, even when it is in a later operation.
    #[test]
    fn rounds_of_a_failed_operation_are_not_finished() {
        let slots = slots(2);
        slots.mark(1, Stage::Published, 5, 2);
        slots.mark_passed(1, 5, Some(Class::TRUNCATE));
        assert!(slots.has(1, Stage::Published, 5, 2) && !slots.has(1, Stage::Published, 5, 3));
        slots.mark(1, Stage::Published, 6, 1);
        assert!(!slots.has(1, Stage::Published, 5, 2) && slots.has(1, Stage::Published, 4, 9));
    }

    #[test]
    fn slots_are_in_use_until_all_have_left_and_none_polls_them() {
        let region = || {
            let device = fabric::open("shm", &host::real::host()).expect("a device");
            let buf = device.alloc_dm(4096).expect("memory");
            device.alloc_pd().expect("a domain").reg_mr(&buf, verbs::Access::LOCAL_WRITE).expect("a region")
        };
        let memory = Buf::alloc(ShmSlots::len(2)).expect("memory");
        let retired = |me: usize, region: Option<Mr>| RetiredSlots {
            slots: ShmSlots::new(memory.clone(), 2).expect("enough"),
            me,
            region,
            ring: None,
        };
        let (owner, other) = (retired(0, Some(region())), retired(1, None));
        owner.slots.leave(0);
        assert!(!owner.is_unused() && !other.is_unused());
        other.slots.leave(1);
        assert!(!owner.is_unused() && other.is_unused());
        drop(other);
        assert!(owner.is_unused());
    }

    #[test]
    fn invalid_published_length_is_an_error() {
        let slots = slots(2);
        let head = ShmSlots::header_at(1, 1);
        for lie in [BCOPY_MAX as u64 + 1, !ZCOPY] {
            slots.word(head + 8).store(lie, Ordering::Relaxed);
            assert_eq!(slots.published(1, 1).expect_err("a lie").class, Class::OTHER);
        }
        assert!(ShmSlots::new(Buf::alloc(ShmSlots::len(2) - LINE).expect("memory"), 2).is_err(), "too short");
    }
}
