//! What a member of an [`Exchange`] gives and takes in an operation: what is short it shows at its desk, where others take it; what is
//! long it lends, and others read it where it lies. Each form is told with the data, so that members who come with different sizes
//! learn of it, and none waits for what does not come.

use verbs::{RemoteAddr, SendOp};

use crate::coll::shm::desks::{Desks, SHOWN_MAX, Shown};
use crate::coll::shm::exchange::Exchange;
use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};

/// Looks in a row at what a member is to write.
const LOOKS: u32 = 256;

impl Exchange {
    /// Shows or lends what this member gives, as soon as nobody needs any more what was there before.
    pub(super) fn give(&mut self, buffer: &Buffer, call: &'static str) -> Result<()> {
        let shown = if buffer.len() <= SHOWN_MAX as u64 { Some(buffer.len() as usize) } else { None };
        self.await_place(shown.unwrap_or(0), call)?;
        if shown.is_some() {
            self.desks().show(self.me, self.number, buffer)?;
        } else {
            let at = self.lend(buffer)?;
            self.desks().lend(self.me, self.number, buffer.len(), at, None);
        }
        self.has_shown = true;
        Ok(())
    }

    /// As [`Exchange::give`], of bytes in one piece that can be shown.
    #[inline]
    pub(super) fn give_piece(&mut self, piece: Piece, call: &'static str) -> Result<()> {
        self.await_place(piece.len(), call)?;
        self.desks().show_piece(self.me, self.number, piece)?;
        self.has_shown = true;
        Ok(())
    }

    /// As [`Exchange::take`], into one piece, of what can be shown.
    #[inline]
    pub(super) fn take_piece(
        &mut self,
        member: usize,
        (from, all): (usize, usize),
        into: Piece,
        call: &'static str,
    ) -> Result<()> {
        let shown = self.await_shown(member, call)?;
        fits(format_args!("rank {member}"), shown.len(), all as u64)?;
        match shown {
            Shown::Here(len) => self.desks().take_piece((member, self.number), (from, len), into),
            // Who lends so little is of another version.
            Shown::There { at, .. } => self.fetch(member, at.offset(from as u64), &into.buffer(), call),
        }
    }

    /// As [`Exchange::take_piece`], into memory of this library's, of all that is given.
    pub(super) fn take_bytes(&mut self, member: usize, into: &mut [u8], call: &'static str) -> Result<()> {
        let shown = self.await_shown(member, call)?;
        fits(format_args!("rank {member}"), shown.len(), into.len() as u64)?;
        match shown {
            Shown::Here(_) => self.desks().read((member, self.number), into),
            Shown::There { at, .. } => {
                let copy = Buffer::own(into)?;
                self.fetch(member, at, &copy, call)?;
                copy.load(into);
                Ok(())
            }
        }
    }

    /// Lends a buffer, or a copy of what does not lie in one piece, until the operation ends: where the others find it.
    pub(super) fn lend(&mut self, buffer: &Buffer) -> Result<RemoteAddr> {
        let data = if buffer.is_scattered() { buffer.copied()? } else { buffer.clone() };
        let (Some((address, len)), Some(other)) = (data.one_piece(), self.others().next()) else {
            return Ok(RemoteAddr::default());
        };
        let process = self.processes[other];
        let reach = self.core.with(|engine| engine.transport.reach(process, address, len, true))?;
        let at = reach.remote(address as u64);
        self.lent.push((data, reach));
        Ok(at)
    }

    /// Waits until nobody takes any more what this member gave in the operation whose place this one's is, when it shows so many bytes.
    pub(super) fn await_place(&mut self, len: usize, call: &'static str) -> Result<()> {
        let needed = Desks::needed(self.number, len);
        for member in self.others() {
            if self.passed[member] < needed {
                self.wait(member, call, |desks| desks.passed(member) >= needed)?;
                self.passed[member] = self.desks().passed(member);
            }
        }
        Ok(())
    }

    /// Waits for what a member gives.
    pub(super) fn await_shown(&mut self, member: usize, call: &'static str) -> Result<Shown> {
        let number = self.number;
        self.wait(member, call, |desks| desks.has_shown(member, number))?;
        if !self.desks().has_shown(member, number) {
            return Err(self.refusal(member));
        }
        // Who has begun this operation has passed the one before.
        self.passed[member] = self.passed[member].max(number - 1);
        let shown = self.desks().shown(member, number)?;
        self.meets_lender |= matches!(shown, Shown::There { .. });
        Ok(shown)
    }

    /// Takes a buffer's bytes from a place on, of as many as a member, perhaps this one, must give.
    pub(super) fn take(
        &mut self,
        member: usize,
        (from, all): (u64, u64),
        into: &Buffer,
        call: &'static str,
    ) -> Result<()> {
        let shown = self.await_shown(member, call)?;
        fits(format_args!("rank {member}"), shown.len(), all)?;
        match shown {
            _ if into.len() == 0 => Ok(()),
            Shown::There { .. } if member == self.me => {
                let own = self.lent.iter().map(|(data, _)| data.clone().window(from, into.len()));
                own.for_each(|own| into.copy_of(&own));
                Ok(())
            }
            Shown::Here(len) => self.desks().take((member, self.number), (from as usize, len), into),
            Shown::There { at, .. } => self.fetch(member, at.offset(from), into, call),
        }
    }

    /// Keeps a buffer's bytes from a place on, of as many as this member must give.
    pub(super) fn keep(&self, given: &Buffer, (from, all): (u64, u64), into: &Buffer) -> Result<()> {
        fits("this rank", given.len(), all)?;
        if into.len() > 0 {
            into.copy_of(&given.clone().window(from, into.len()));
        }
        Ok(())
    }

    /// Reads a buffer's bytes from a member's memory.
    pub(super) fn fetch(
        &self,
        member: usize,
        at: RemoteAddr,
        into: &Buffer,
        call: &'static str,
    ) -> Result<()> {
        let (process, places) = (self.processes[member], [(at, into.len())]);
        let begun = self.core.with(|engine| engine.move_bytes(process, &places, into, SendOp::Read))?;
        self.core.finish(call, begun).ok().map(drop)
    }

    /// Whether members can write to memory that another one lends.
    pub(super) fn may_write(&self, member: usize) -> Result<bool> {
        let process = self.processes[member];
        self.core.with(|engine| Ok(engine.transport.nic_of(process)?.reaches_both_ways()))
    }

    /// Writes what this member gives, from a place on, to where another one lends memory for it, if it does.
    pub(super) fn put_rest(
        &mut self,
        member: usize,
        given: &Buffer,
        from: u64,
        call: &'static str,
    ) -> Result<()> {
        let Shown::There { at, len, .. } = self.await_shown(member, call)? else { return Ok(()) };
        fits(format_args!("rank {member}"), len, given.len())?;
        let rest = self.lent.last().map_or(given, |(data, _)| data).clone().window(from, len - from);
        let (process, places) = (self.processes[member], [(at.offset(from), rest.len())]);
        let begun = self.core.with(|engine| engine.move_bytes(process, &places, &rest, SendOp::Write))?;
        self.core.finish(call, begun).ok().map(drop)
    }

    /// Ends an operation that was done so far, or not. Whatever came of it, nobody waits for this member any more; what it has lent it
    /// has back when this returns.
    pub(super) fn end(&mut self, done: Result<()>, call: &'static str) -> Result<()> {
        let refused = done.as_ref().err().map(|error| error.class);
        self.desks().pass(self.me, self.number, refused);
        // Whoever lends waits for this note, and whoever misses something of a member that has given up.
        if !self.has_rung || self.meets_lender || refused.is_some() {
            self.ring();
        }
        if self.lent.is_empty() {
            return done;
        }
        let number = self.number;
        let done = self.others().fold(done, |done, member| {
            let passed = self.wait(member, call, |desks| desks.passed(member) >= number);
            let refused = || self.desks().refused(member, number).map(|_| self.refusal(member));
            done.and(passed).and_then(|()| refused().map_or(Ok(()), Err))
        });
        self.lent.clear();
        done
    }

    /// Why nothing more is to be had of a member that has passed.
    pub(super) fn refusal(&self, member: usize) -> Error {
        let class = self.desks().refused(member, self.number).unwrap_or(Class::NOT_SAME);
        Error::new(class, format_args!("rank {member} has ended the operation with an error"))
    }

    /// Waits for what a member is to write, or until it has passed. The first looks are at that alone.
    pub(super) fn wait(
        &mut self,
        member: usize,
        call: &'static str,
        is_there: impl Fn(&Desks) -> bool,
    ) -> Result<()> {
        if (0..self.core.looks(LOOKS)).any(|_| is_there(self.desks())) {
            return Ok(());
        }
        if self.has_shown && !self.has_rung {
            self.ring();
        }
        let (desks, number) = (self.desks(), self.number);
        let (process, owner) = (self.processes[member], self.processes[0]);
        let has_passed = || desks.passed(member) >= number;
        self.core.await_store(call, (process, owner), || is_there(desks), has_passed)
    }

    /// Wakes those that sleep: behind what this member shows, or else behind the note that it has passed; behind that in any case where
    /// somebody waits for it. Who waits for a note that came later, to show something, hears of it in the next operation, which it may
    /// wait for as well, as MPI lets every collective operation wait for all. The lock in here is a fence, which waits until others have
    /// let go of the line that was written: so it comes when this member has found what it wants, or is about to wait for long.
    pub(super) fn ring(&mut self) {
        self.has_rung = true;
        self.core.with(|engine| {
            self.others().for_each(|member| engine.transport.ring(self.processes[member]));
        });
    }
}

/// That somebody gives as many bytes as belong there.
pub(super) fn fits(who: impl std::fmt::Display, given: u64, all: u64) -> Result<()> {
    if given == all {
        return Ok(());
    }
    let class = if given > all { Class::TRUNCATE } else { Class::NOT_SAME };
    Err(Error::new(class, format_args!("{who} gives {given} bytes, where {all} belong")))
}
