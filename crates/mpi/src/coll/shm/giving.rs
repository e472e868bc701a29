//! How members of an [`Exchange`] give and take data. Short data are shown: copied to the member's desk, where others read them.
//! Long data are lent: others read them from the owner's buffer. The form and size are published with the data, so that members
//! with different sizes detect the mismatch, and none waits for data that never arrive.

use verbs::{RemoteAddr, SendOp};

use crate::coll::shm::desks::{Desks, SHOWN_MAX, Shown};
use crate::coll::shm::exchange::Exchange;
use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};

/// Polls of a member's flag before waiting with progress.
const FLAG_POLLS: u32 = 256;

impl Exchange {
    /// Shows or lends this member's data, once nobody needs the slot's former data.
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

    /// As [`Exchange::give`], for contiguous bytes short enough to show.
    #[inline]
    pub(super) fn give_piece(&mut self, piece: Piece, call: &'static str) -> Result<()> {
        self.await_place(piece.len(), call)?;
        self.desks().show_piece(self.me, self.number, piece)?;
        self.has_shown = true;
        Ok(())
    }

    /// As [`Exchange::take`], into a contiguous piece, for data short enough to show.
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
            // Only another version would lend data this short.
            Shown::There { at, .. } => self.fetch(member, at.offset(from as u64), &into.buffer(), call),
        }
    }

    /// As [`Exchange::take_piece`], for all bytes given, into the library's own memory.
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

    /// Lends a buffer until the operation ends, or a contiguous copy if it is scattered. Returns its remote address.
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

    /// Waits until the slot for this operation can be overwritten with `len` bytes, that is, until nobody reads its former data.
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

    /// Waits until a member has shown or lent its data.
    pub(super) fn await_shown(&mut self, member: usize, call: &'static str) -> Result<Shown> {
        let number = self.number;
        self.wait(member, call, |desks| desks.has_shown(member, number))?;
        if !self.desks().has_shown(member, number) {
            return Err(self.refusal(member));
        }
        // A member that has started this operation has passed the one before.
        self.passed[member] = self.passed[member].max(number - 1);
        let shown = self.desks().shown(member, number)?;
        self.meets_lender |= matches!(shown, Shown::There { .. });
        Ok(shown)
    }

    /// Fills a buffer from offset `from` of a member's data, which must be `all` bytes. The member may be this one.
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

    /// Copies from offset `from` of this member's own data, which must be `all` bytes.
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
        let started = self.core.with(|engine| engine.rdma_transfer(process, &places, into, SendOp::Read))?;
        self.core.finish(call, started).ok().map(drop)
    }

    /// Whether members can write to memory that another member lends.
    pub(super) fn may_write(&self, member: usize) -> Result<bool> {
        let process = self.processes[member];
        self.core.with(|engine| Ok(engine.transport.nic_of(process)?.reaches_both_ways()))
    }

    /// Writes this member's data, starting at an offset, to the memory that another member lends for it, if it does.
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
        let started =
            self.core.with(|engine| engine.rdma_transfer(process, &places, &rest, SendOp::Write))?;
        self.core.finish(call, started).ok().map(drop)
    }

    /// Ends an operation, successful or not. After that nobody waits for this member, and its lent memory is its own again.
    pub(super) fn end(&mut self, done: Result<()>, call: &'static str) -> Result<()> {
        let refused = done.as_ref().err().map(|error| error.class);
        self.desks().pass(self.me, self.number, refused);
        // A lender waits for this flag, and so does a member that needs data from one that has given up.
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

    /// The error for data that a member did not give before it passed the operation.
    pub(super) fn refusal(&self, member: usize) -> Error {
        let class = self.desks().refused(member, self.number).unwrap_or(Class::NOT_SAME);
        Error::new(class, format_args!("rank {member} has ended the operation with an error"))
    }

    /// Polls until a member has written a value, or has passed the operation. The first polls check only the value.
    pub(super) fn wait(
        &mut self,
        member: usize,
        call: &'static str,
        is_there: impl Fn(&Desks) -> bool,
    ) -> Result<()> {
        if (0..self.core.polls(FLAG_POLLS)).any(|_| is_there(self.desks())) {
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

    /// Wakes sleeping members: after this member has shown its data, or else after its `passed` flag; after the flag in any case if
    /// somebody waits for it. A member that waits for a later `passed` flag before it shows data is woken in the next operation. It
    /// may depend on that, as MPI lets every collective operation synchronize all members. The lock in here is a fence, which waits
    /// until other processors release the written line; so this is called once this member has the data it needs, or is about to
    /// wait for long.
    pub(super) fn ring(&mut self) {
        self.has_rung = true;
        self.core.with(|engine| {
            self.others().for_each(|member| engine.transport.ring(self.processes[member]));
        });
    }
}

/// Checks that `who` gives exactly the expected number of bytes.
pub(super) fn fits(who: impl std::fmt::Display, given: u64, all: u64) -> Result<()> {
    if given == all {
        return Ok(());
    }
    let class = if given > all { Class::TRUNCATE } else { Class::NOT_SAME };
    Err(Error::new(class, format_args!("{who} gives {given} bytes, where {all} belong")))
}
