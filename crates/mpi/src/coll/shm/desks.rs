//! [`Desks`]: the shared memory in which members of a communicator show data. Each member writes only to its own desk.
//!
//! Operations are numbered. A desk has slots for several operations. Each slot is a line with the operation's number, the length
//! and short data, so that one cache-line transfer moves all of it. A root may therefore run ahead, and late members find the data
//! of several operations. There is space for the longer data of two operations. Data above [`SHOWN_MAX`] are lent: the line
//! contains their address in the member's own memory, and the others read them there. A further line holds the last operation that
//! the member has passed, after which it reads nothing more of others, and whether it ended one with an error. No member overwrites
//! data that another may still read; a lender waits until all have passed.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Mr, RemoteAddr, Words};

use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};

/// Bytes that a member can show in one operation.
pub(crate) const SHOWN_MAX: usize = 8 << 10;
/// Operations for which a desk has a line, and for which it has space for longer data.
const PLACES: u64 = 8;
const ROOMS: u64 = 2;
/// The unit that processors transfer, and the two lines that they prefetch together.
const LINE: usize = 64;
const WORD: usize = 8;
const PAIR: usize = 2 * LINE;
/// Bytes of operation number and length, which precede short data or the address of lent data.
const HEAD: usize = 16;
/// Flags in the length: the data are lent; they are lent with a part of the result.
const LENT: u64 = 1 << 63;
const WITH_PART: u64 = 1 << 62;
/// Offsets in a member's line: the last operation whose part of the result is complete, and for each slot the operation that ended
/// with an error, with the error's class in the lowest byte.
const REDUCED: usize = 8;
const REFUSED: usize = 16;
const CLASS_BITS: u32 = 8;
/// The `passed` value of a member that has left.
const LEFT: u64 = u64::MAX;
const SHORT: usize = LINE - HEAD;
/// Size of a desk: the progress line, a line for each slot, and the space for longer data.
const DESK: usize = PAIR + PLACES as usize * PAIR + ROOMS as usize * SHOWN_MAX;
const _: () = assert!(REFUSED + PLACES as usize * WORD <= PAIR);

/// What a member gives in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// This many bytes, at its desk.
    Here(usize),
    /// This many bytes of its own memory at `at`, and the address for its part of the result, if it has one.
    There { len: u64, at: RemoteAddr, part: Option<RemoteAddr> },
}

impl Shown {
    /// Their size in bytes.
    pub(super) fn len(self) -> u64 {
        match self {
            Self::Here(len) => len as u64,
            Self::There { len, .. } => len,
        }
    }
}

/// One member's view of the memory.
#[derive(Debug)]
pub(super) struct Desks {
    memory: Buf,
    words: Words,
    members: usize,
}

impl Desks {
    /// Size in bytes for this many members.
    pub(super) fn len(members: usize) -> usize {
        members * DESK
    }

    /// The desks in a memory of [`Desks::len`] bytes.
    pub(super) fn new(memory: Buf, members: usize) -> Result<Self> {
        let words = memory.words(0, Self::len(members) / WORD)?;
        Ok(Self { memory, words, members })
    }

    /// Resets all slots and progress lines. No other member has the memory yet.
    pub(super) fn clear(&self) {
        for member in 0..self.members {
            (0..PAIR / 8).for_each(|word| self.word(member * DESK + 8 * word).store(0, Ordering::Relaxed));
            (0..PLACES).for_each(|place| self.word(Self::head_at(member, place)).store(0, Ordering::Relaxed));
        }
    }

    /// The operation that all others must have passed before `len` bytes are shown in operation `number`. RdmaBuffer data need no space:
    /// their length counts as zero.
    #[inline]
    pub(super) fn needed(number: u64, len: usize) -> u64 {
        number.saturating_sub(if len <= SHORT { PLACES } else { ROOMS })
    }

    /// Shows a buffer's bytes, [`SHOWN_MAX`] at most, as what a member gives in an operation.
    pub(super) fn show(&self, member: usize, number: u64, buffer: &Buffer) -> Result<()> {
        let (head, len) = (Self::head_at(member, number), buffer.len() as usize);
        if len > 0 {
            buffer.load_to(&self.memory, Self::data_at(member, number, len))?;
        }
        self.word(head + 8).store(len as u64, Ordering::Relaxed);
        self.word(head).store(number, Ordering::Release);
        Ok(())
    }

    /// As [`Desks::show`], for contiguous bytes.
    #[inline]
    pub(super) fn show_piece(&self, member: usize, number: u64, piece: Piece) -> Result<()> {
        let (head, len) = (Self::head_at(member, number), piece.len());
        piece.load_to(&self.memory, Self::data_at(member, number, len))?;
        self.word(head + 8).store(len as u64, Ordering::Relaxed);
        self.word(head).store(number, Ordering::Release);
        Ok(())
    }

    /// As [`Desks::take`], into a contiguous piece.
    #[inline]
    pub(super) fn take_piece(
        &self,
        (member, number): (usize, u64),
        (from, shown): (usize, usize),
        into: Piece,
    ) -> Result<()> {
        let at = Self::data_at(member, number, shown) + from;
        Ok(into.store_from(&self.memory, at, into.len())?)
    }

    /// Copies all bytes that a member [has shown](Self::shown) here. `into` has exactly their size.
    #[inline]
    pub(super) fn read(&self, (member, number): (usize, u64), into: &mut [u8]) -> Result<()> {
        Ok(self.memory.read(Self::data_at(member, number, into.len()), into)?)
    }

    /// Publishes the address of the bytes that a member gives in an operation, and the address for its part of the result, if it
    /// has one.
    pub(super) fn lend(
        &self,
        member: usize,
        number: u64,
        len: u64,
        at: RemoteAddr,
        part: Option<RemoteAddr>,
    ) {
        let head = Self::head_at(member, number);
        let mark = if part.is_some() { LENT | WITH_PART } else { LENT };
        let part = part.unwrap_or_default();
        let words = [len | mark, at.addr, at.rkey.into(), part.addr, part.rkey.into()];
        for (place, word) in words.into_iter().enumerate() {
            self.word(head + 8 * (place + 1)).store(word, Ordering::Relaxed);
        }
        self.word(head).store(number, Ordering::Release);
    }

    /// Whether a member has shown or lent its data of an operation.
    #[inline]
    pub(super) fn has_shown(&self, member: usize, number: u64) -> bool {
        self.word(Self::head_at(member, number)).load(Ordering::Acquire) == number
    }

    /// What a member has shown or lent.
    ///
    /// # Errors
    /// [`Class::OTHER`] for a length that no member shows.
    pub(super) fn shown(&self, member: usize, number: u64) -> Result<Shown> {
        let head = Self::head_at(member, number);
        let word = |place: usize| self.word(head + 8 * place).load(Ordering::Relaxed);
        let (len, place) = (word(1), |at| RemoteAddr { addr: word(at), rkey: word(at + 1) as u32 });
        if len & LENT != 0 {
            let part = (len & WITH_PART != 0).then(|| place(4));
            return Ok(Shown::There { len: len & !(LENT | WITH_PART), at: place(2), part });
        }
        match usize::try_from(len) {
            Ok(len) if len <= SHOWN_MAX => Ok(Shown::Here(len)),
            _ => Err(Error::new(Class::OTHER, "a member shows what no process of this version shows")),
        }
    }

    /// Fills a buffer with bytes that a member [has shown](Self::shown) here, starting at offset `from`.
    pub(super) fn take(
        &self,
        (member, number): (usize, u64),
        (from, shown): (usize, usize),
        into: &Buffer,
    ) -> Result<()> {
        let at = Self::data_at(member, number, shown) + from;
        Ok(into.store_from(&self.memory, at, into.len() as usize)?)
    }

    /// Marks an operation and all before it as passed: the member reads nothing more of others in them. `refused` is the error
    /// class if this operation failed.
    pub(super) fn pass(&self, member: usize, number: u64, refused: Option<Class>) {
        if let Some(Class(class)) = refused {
            let class = u8::try_from(class).unwrap_or(Class::OTHER.0 as u8);
            let word = self.word(Self::refused_at(member, number));
            word.store(number << CLASS_BITS | u64::from(class), Ordering::Relaxed);
        }
        self.passed_word(member).store(number, Ordering::Release);
    }

    /// The error class with which a member that [has passed](Self::passed) an operation ended it or a later one of the same slot.
    pub(super) fn refused(&self, member: usize, number: u64) -> Option<Class> {
        let word = self.word(Self::refused_at(member, number)).load(Ordering::Relaxed);
        let class = Class((word & ((1 << CLASS_BITS) - 1)) as i32);
        (word >> CLASS_BITS >= number).then_some(class)
    }

    /// Marks a member's part of an operation's result as complete.
    pub(super) fn reduce(&self, member: usize, number: u64) {
        self.word(member * DESK + REDUCED).store(number, Ordering::Release);
    }

    /// Whether a member's part of an operation's result is complete.
    pub(super) fn has_reduced(&self, member: usize, number: u64) -> bool {
        self.word(member * DESK + REDUCED).load(Ordering::Acquire) >= number
    }

    /// Marks all possible operations as passed: the member does not access this memory again.
    pub(super) fn leave(&self, member: usize) {
        self.pass(member, LEFT, None);
    }

    /// The last operation that a member has passed.
    #[inline]
    pub(super) fn passed(&self, member: usize) -> u64 {
        self.passed_word(member).load(Ordering::Acquire)
    }

    fn head_at(member: usize, number: u64) -> usize {
        member * DESK + PAIR + (number % PLACES) as usize * PAIR
    }

    /// Offset of data of this length. Short data follow their length word.
    fn data_at(member: usize, number: u64, len: usize) -> usize {
        if len <= SHORT {
            return Self::head_at(member, number) + HEAD;
        }
        member * DESK + PAIR + PLACES as usize * PAIR + (number % ROOMS) as usize * SHOWN_MAX
    }

    fn refused_at(member: usize, number: u64) -> usize {
        member * DESK + REFUSED + 8 * (number % PLACES) as usize
    }

    #[inline]
    fn passed_word(&self, member: usize) -> &AtomicU64 {
        self.word(member * DESK)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at / WORD]
    }
}

/// Desks that their owner has finished with. Other members may still poll them: after the last operation, a member may wait until
/// the others have passed it.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(super) desks: Desks,
    pub(super) _region: Mr,
}

impl Retired {
    /// Whether all members have left.
    pub(crate) fn is_done(&self) -> bool {
        (0..self.desks.members).all(|member| self.desks.passed(member) == LEFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desks(members: usize) -> Desks {
        let memory = Buf::alloc(Desks::len(members)).expect("memory");
        memory.fill(0xff);
        let desks = Desks::new(memory, members).expect("enough");
        desks.clear();
        desks
    }

    /// Goal: areas of members and operations do not overlap. Method: all members write as much as possible, with every boundary
    /// length, and all of it is read back.
    #[test]
    fn desks_do_not_touch() {
        let members = 3;
        let desks = desks(members);
        for len in [0, 1, 8, SHORT, SHORT + 1, LINE, SHOWN_MAX - 1, SHOWN_MAX] {
            let bytes = |member: usize, number: u64| vec![(member as u8 + 1) * 16 + number as u8; len];
            let last = if len <= SHORT { PLACES } else { ROOMS };
            let all = || (0..members).flat_map(|member| (1..=last).map(move |number| (member, number)));
            assert_eq!((Desks::needed(last, len), Desks::needed(last + 1, len)), (0, 1), "{len} bytes");
            for (member, number) in all() {
                assert_eq!(desks.has_shown(member, number), len > 0);
                desks
                    .show(member, number, &Buffer::own(&bytes(member, number)).expect("memory"))
                    .expect("room");
                desks.pass(member, 40 + member as u64, Some(Class(60 + member as i32)));
                desks.reduce(member, 50 + member as u64);
            }
            for (member, number) in all() {
                let into = Buffer::own(&vec![0; len]).expect("memory");
                assert!(desks.has_shown(member, number) && !desks.has_shown(member, number + PLACES));
                assert_eq!(desks.shown(member, number), Ok(Shown::Here(len)));
                desks.take((member, number), (0, len), &into).expect("shown");
                assert_eq!(into.to_vec(), bytes(member, number));
                assert_eq!(desks.passed(member), 40 + member as u64);
                let refused = |number| desks.refused(member, number);
                assert_eq!(refused(40 + member as u64), Some(Class(60 + member as i32)));
                assert_eq!(refused(40 + member as u64 + PLACES), None, "later ones went well");
                let reduced = |number| desks.has_reduced(member, number);
                assert!(reduced(50 + member as u64) && !reduced(51 + member as u64));
            }
        }
    }

    /// Goal: addresses of lent data are read back exactly, whatever the slot held before.
    #[test]
    fn what_is_lent_is_found() {
        let desks = desks(2);
        let place = |number: u64| RemoteAddr { addr: u64::MAX - number, rkey: u32::MAX - number as u32 };
        for (number, len) in [(1, SHOWN_MAX as u64 + 1), (2, 5 << 40), (3, 0)] {
            for part in [None, Some(place(9))] {
                let shown = Shown::There { len, at: place(number), part };
                desks.lend(1, number, len, place(number), part);
                assert!(desks.has_shown(1, number) && !desks.has_shown(0, number));
                assert_eq!((desks.shown(1, number), shown.len()), (Ok(shown), len));
            }
            desks.show(1, number + PLACES, &Buffer::own(&[7; 40]).expect("memory")).expect("room");
            assert_eq!(desks.shown(1, number + PLACES), Ok(Shown::Here(40)));
        }
    }

    #[test]
    fn a_length_that_nobody_shows_is_refused() {
        let desks = desks(2);
        let head = Desks::head_at(1, 1);
        for lie in [SHOWN_MAX as u64 + 1, !LENT] {
            desks.word(head + 8).store(lie, Ordering::Relaxed);
            assert_eq!(desks.shown(1, 1).expect_err("a lie").class, Class::OTHER);
        }
        assert!(Desks::new(Buf::alloc(Desks::len(2) - LINE).expect("memory"), 2).is_err(), "too short");
    }
}
