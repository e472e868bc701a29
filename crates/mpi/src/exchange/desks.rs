//! [`Desks`]: the memory that members of a communicator show things in: a desk for each, where it alone writes.
//!
//! Operations are numbered. A desk has places for the data of two of them: for each a line with the operation's number, the length
//! and what is short, so that it is one transfer between processors; and room for what is longer. A line of its own says up to which
//! operation the member has passed, that is, takes nothing more of others. Nobody shows anything where somebody may still take what
//! was there: the operation before the last.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Mr};

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;

/// Bytes that a member can show at a time.
pub(crate) const SHOWN_MAX: usize = 8 << 10;
/// Operations whose data a desk can have.
pub(super) const PLACES: u64 = 2;
/// What processors transfer, and what they fetch ahead: two lines.
const LINE: usize = 64;
const PAIR: usize = 2 * LINE;
/// Number and length before what is short.
const HEAD: usize = 16;
const SHORT: usize = LINE - HEAD;
/// A desk: the line of what it has passed, a line and room for each place.
const DESK: usize = PAIR + PLACES as usize * (PAIR + SHOWN_MAX);

/// The memory, as one member has it.
#[derive(Debug)]
pub(super) struct Desks {
    memory: Buf,
    members: usize,
}

impl Desks {
    /// Bytes of so many.
    pub(super) fn len(members: usize) -> usize {
        members * DESK
    }

    /// The desks in a memory of [`Desks::len`] bytes.
    pub(super) fn new(memory: Buf, members: usize) -> Result<Self> {
        // Looks at the end and the alignment: all other words are inside, and aligned as this one.
        memory.word(Self::len(members) - LINE)?;
        Ok(Self { memory, members })
    }

    /// Nothing is shown, and no operation was passed. Nobody else has the memory yet.
    pub(super) fn clear(&self) {
        for member in 0..self.members {
            self.passed_word(member).store(0, Ordering::Relaxed);
            (0..PLACES).for_each(|place| self.word(Self::head_at(member, place)).store(0, Ordering::Relaxed));
        }
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

    /// Whether a member has shown what it gives in an operation.
    #[inline]
    pub(super) fn has_shown(&self, member: usize, number: u64) -> bool {
        self.word(Self::head_at(member, number)).load(Ordering::Acquire) == number
    }

    /// How many bytes a member has shown.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no member shows.
    pub(super) fn shown_len(&self, member: usize, number: u64) -> Result<usize> {
        let len = self.word(Self::head_at(member, number) + 8).load(Ordering::Relaxed);
        match usize::try_from(len) {
            Ok(len) if len <= SHOWN_MAX => Ok(len),
            _ => Err(Error::new(Class::OTHER, "a member shows what no process of this version shows")),
        }
    }

    /// Takes as many bytes as a buffer has, of those that a member [has shown](Self::shown_len), from a place on.
    pub(super) fn take(
        &self,
        (member, number): (usize, u64),
        (from, shown): (usize, usize),
        into: &Buffer,
    ) -> Result<()> {
        let at = Self::data_at(member, number, shown) + from;
        Ok(into.store_from(&self.memory, at, into.len() as usize)?)
    }

    /// A member takes nothing more of others in an operation and those before.
    pub(super) fn pass(&self, member: usize, number: u64) {
        self.passed_word(member).store(number, Ordering::Release);
    }

    /// Up to which operation a member has passed.
    #[inline]
    pub(super) fn passed(&self, member: usize) -> u64 {
        self.passed_word(member).load(Ordering::Acquire)
    }

    fn head_at(member: usize, number: u64) -> usize {
        member * DESK + PAIR + (number % PLACES) as usize * PAIR
    }

    /// Where data of a length are: behind their number, if they are short.
    fn data_at(member: usize, number: u64, len: usize) -> usize {
        if len <= SHORT {
            return Self::head_at(member, number) + HEAD;
        }
        let places = PLACES as usize;
        member * DESK + PAIR + places * PAIR + (number % PLACES) as usize * SHOWN_MAX
    }

    #[inline]
    fn passed_word(&self, member: usize) -> &AtomicU64 {
        self.word(member * DESK)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        self.memory.word(at).expect("all desks are in the memory, and aligned there")
    }
}

/// Desks that their owner is done with. Others may not be.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(super) desks: Desks,
    /// The last operation.
    pub(super) number: u64,
    pub(super) _region: Mr,
}

impl Retired {
    /// Whether all members are done with them.
    pub(crate) fn is_done(&self) -> bool {
        (0..self.desks.members).all(|member| self.desks.passed(member) >= self.number)
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

    /// Goal: nothing that a member writes lies on what another or another operation needs. Method: all write all that they can, of
    /// every length at a boundary, and everything is there.
    #[test]
    fn desks_do_not_touch() {
        let members = 3;
        let desks = desks(members);
        for len in [0, 1, 8, SHORT, SHORT + 1, LINE, SHOWN_MAX - 1, SHOWN_MAX] {
            let bytes = |member: usize, number: u64| vec![(member as u8 + 1) * 16 + number as u8; len];
            let all = || (0..members).flat_map(|member| (1..=PLACES).map(move |number| (member, number)));
            for (member, number) in all() {
                assert_eq!(desks.has_shown(member, number), len > 0);
                desks
                    .show(member, number, &Buffer::own(&bytes(member, number)).expect("memory"))
                    .expect("room");
                desks.pass(member, 40 + member as u64);
            }
            for (member, number) in all() {
                let into = Buffer::own(&vec![0; len]).expect("memory");
                assert!(desks.has_shown(member, number) && !desks.has_shown(member, number + PLACES));
                assert_eq!(desks.shown_len(member, number), Ok(len));
                desks.take((member, number), (0, len), &into).expect("shown");
                assert_eq!(into.to_vec(), bytes(member, number));
                assert_eq!(desks.passed(member), 40 + member as u64);
            }
        }
    }

    #[test]
    fn a_length_that_nobody_shows_is_refused() {
        let desks = desks(2);
        let head = Desks::head_at(1, 1);
        for lie in [SHOWN_MAX as u64 + 1, u64::MAX] {
            desks.word(head + 8).store(lie, Ordering::Relaxed);
            assert_eq!(desks.shown_len(1, 1).expect_err("a lie").class, Class::OTHER);
        }
        assert!(Desks::new(Buf::alloc(Desks::len(2) - LINE).expect("memory"), 2).is_err(), "too short");
    }
}
