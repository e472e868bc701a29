//! How members publish and read data. Short data are copied into the member's area, where others read them (bounce-buffer copy).
//! Long data go through the member's ring, in the module `chunks`; those of a member without a ring are zero-copy: others read them
//! from the owner's buffer. The form and size are published with the data, so that
//! members with different sizes detect the mismatch, and none waits for data that never arrive.

use verbs::{RemoteAddr, SendOp};

use crate::coll::shm::ring::{PeerRing, RING_LEN};
use crate::coll::shm::slots::{BCOPY_MAX, PublishedData, ShmSlots, Stage};
use crate::coll::shm::state::ShmColl;
use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};

/// Polls of a member's flag before waiting with progress.
const FLAG_POLLS: u32 = 256;

impl ShmColl {
    /// Publishes this member's data, once nobody needs the slot's former data.
    pub(super) fn publish(&mut self, buffer: &Buffer, call: &'static str) -> Result<()> {
        let published = if buffer.len() <= BCOPY_MAX as u64 { Some(buffer.len() as usize) } else { None };
        self.wait_slot_free(published.unwrap_or(0), call)?;
        if published.is_some() {
            self.slots().publish(self.me, self.number, buffer)?;
        } else {
            let at = self.register_zcopy(buffer)?;
            self.slots().publish_zcopy(self.me, self.number, buffer.len(), at, None);
        }
        self.has_published = true;
        Ok(())
    }

    /// As [`ShmColl::publish`], for contiguous bytes up to [`BCOPY_MAX`].
    #[inline]
    pub(super) fn publish_piece(&mut self, piece: Piece, call: &'static str) -> Result<()> {
        self.wait_slot_free(piece.len(), call)?;
        self.slots().publish_piece(self.me, self.number, piece)?;
        self.has_published = true;
        Ok(())
    }

    /// As [`ShmColl::read`], into a contiguous piece, for data up to [`BCOPY_MAX`].
    #[inline]
    pub(super) fn read_piece(
        &mut self,
        member: usize,
        (from, all): (usize, usize),
        into: Piece,
        call: &'static str,
    ) -> Result<()> {
        let published = self.wait_published(member, call)?;
        check_len(format_args!("rank {member}"), published.len(), all as u64)?;
        match published {
            PublishedData::Bcopy(len) => self.slots().read_piece((member, self.number), (from, len), into),
            // Only another version would publish such short data otherwise.
            PublishedData::Zcopy { at, .. } => {
                self.rdma_read(member, at.offset(from as u64), &into.buffer(), call)
            }
            PublishedData::Chunked { .. } => Err(other_form(member)),
        }
    }

    /// As [`ShmColl::read_piece`], for all bytes, into the library's own memory.
    pub(super) fn read_bytes(&mut self, member: usize, into: &mut [u8], call: &'static str) -> Result<()> {
        let published = self.wait_published(member, call)?;
        check_len(format_args!("rank {member}"), published.len(), into.len() as u64)?;
        match published {
            PublishedData::Bcopy(_) => self.slots().read_bytes((member, self.number), into),
            PublishedData::Zcopy { at, .. } => {
                let copy = Buffer::from_bytes(into)?;
                self.rdma_read(member, at, &copy, call)?;
                copy.load(into);
                Ok(())
            }
            PublishedData::Chunked { .. } => Err(other_form(member)),
        }
    }

    /// Registers a buffer until the operation ends, or a contiguous copy if it is scattered. Returns its remote address.
    pub(super) fn register_zcopy(&mut self, buffer: &Buffer) -> Result<RemoteAddr> {
        let data = if buffer.is_noncontiguous() { buffer.copied()? } else { buffer.clone() };
        let (Some((address, len)), Some(other)) = (data.contiguous_range(), self.others().next()) else {
            return Ok(RemoteAddr::default());
        };
        let process = self.processes[other];
        let registration = self.core.with(|engine| engine.transport.reach(process, address, len, true))?;
        let at = registration.remote(address as u64);
        self.zcopy_data.push((data, registration));
        Ok(at)
    }

    /// Waits until the slot for this operation can be overwritten with `len` bytes, that is, until nobody reads its former data.
    pub(super) fn wait_slot_free(&mut self, len: usize, call: &'static str) -> Result<()> {
        let needed = ShmSlots::last_required_pass(self.number, len);
        for member in self.others() {
            if self.passed[member] < needed {
                self.wait(member, call, |slots| slots.passed(member) >= needed)?;
                self.passed[member] = self.slots().passed(member);
            }
        }
        Ok(())
    }

    /// Waits until a member has published its data.
    pub(super) fn wait_published(&mut self, member: usize, call: &'static str) -> Result<PublishedData> {
        let number = self.number;
        self.wait(member, call, |slots| slots.has_published(member, number))?;
        if !self.slots().has_published(member, number) {
            return Err(self.peer_error(member));
        }
        // A member that has started this operation has passed the one before.
        self.passed[member] = self.passed[member].max(number - 1);
        let published = self.slots().published(member, number)?;
        self.is_awaited |= !matches!(published, PublishedData::Bcopy(_));
        Ok(published)
    }

    /// Fills a buffer from offset `from` of a member's data, which must be `all` bytes. The member may be this one.
    pub(super) fn read(
        &mut self,
        member: usize,
        (from, all): (u64, u64),
        into: &Buffer,
        call: &'static str,
    ) -> Result<()> {
        let published = self.wait_published(member, call)?;
        check_len(format_args!("rank {member}"), published.len(), all)?;
        match published {
            _ if into.len() == 0 => Ok(()),
            PublishedData::Zcopy { .. } if member == self.me => {
                let own = self.zcopy_data.iter().map(|(data, _)| data.clone().packed_range(from, into.len()));
                own.for_each(|own| into.copy_data_from(&own));
                Ok(())
            }
            PublishedData::Bcopy(len) => self.slots().read((member, self.number), (from as usize, len), into),
            PublishedData::Zcopy { at, .. } => self.rdma_read(member, at.offset(from), into, call),
            PublishedData::Chunked { .. } => Err(other_form(member)),
        }
    }

    /// Reads a buffer's bytes from a member's memory.
    pub(super) fn rdma_read(
        &self,
        member: usize,
        at: RemoteAddr,
        into: &Buffer,
        call: &'static str,
    ) -> Result<()> {
        let (process, ranges) = (self.processes[member], [(at, into.len())]);
        let started = self.core.with(|engine| engine.rdma_transfer(process, &ranges, into, SendOp::Read))?;
        self.core.finish(call, started).ok().map(drop)
    }

    /// Announces data of `len` bytes that follow in this member's ring. Returns false if there is no memory for one.
    pub(super) fn announce_chunks(&mut self, len: u64, call: &'static str) -> Result<bool> {
        if !self.ring.is_decided() {
            let memory = self.core.with(|engine| engine.transport.nics()[0].mapped(RING_LEN));
            self.ring.set_memory(memory);
        }
        self.wait_slot_free(0, call)?;
        let Some((at, first)) = self.ring.begin() else { return Ok(false) };
        self.slots().publish_chunked(self.me, self.number, len, at, first);
        self.has_published = true;
        Ok(true)
    }

    /// Marks rounds of the current operation as finished.
    pub(super) fn mark(&mut self, stage: Stage, rounds: u64) {
        self.slots().mark(self.me, stage, self.number, rounds);
        (self.has_published, self.has_notified) = (true, false);
    }

    /// Whether no other member still reads what is in the chunk for a round.
    pub(super) fn has_room(&self, round: u64) -> bool {
        let (last, slots) = (self.ring.last_use(round), self.slots());
        self.others().all(|member| slots.has_taken(member, self.number, last))
    }

    /// Waits until there is room for the chunk of a round.
    pub(super) fn wait_for_room(&mut self, round: u64, call: &'static str) -> Result<()> {
        let (number, last) = (self.number, self.ring.last_use(round));
        self.others()
            .try_for_each(|member| self.wait(member, call, |slots| slots.has_taken(member, number, last)))
    }

    /// Fills a buffer from an offset of a member's chunk.
    pub(super) fn read_chunk(
        &self,
        member: usize,
        (chunk, at): (u64, usize),
        into: &Buffer,
        call: &'static str,
    ) -> Result<()> {
        match self.peer_rings[member].as_ref().map(|ring| ring.chunk(chunk)) {
            Some(Ok((memory, begin))) => Ok(into.store_from(memory, begin + at, into.len() as usize)?),
            Some(Err(remote)) => self.rdma_read(member, remote.offset(at as u64), into, call),
            None => Err(self.peer_error(member)),
        }
    }

    /// The ring of a member that has announced chunks, mapped if possible; and the number of the first chunk.
    ///
    /// # Errors
    /// As [`ShmColl::wait_published`], and if the data are not announced that way.
    pub(super) fn meet_ring(&mut self, member: usize, published: PublishedData) -> Result<u64> {
        let PublishedData::Chunked { ring: at, first, .. } = published else {
            return Err(Error::new(Class::NOT_SAME, format_args!("rank {member} publishes its data whole")));
        };
        if self.peer_rings[member].as_ref().is_none_or(|known| known.at() != at) {
            let process = self.processes[member];
            let memory = self.core.with(|engine| engine.transport.map(process, at, RING_LEN));
            self.peer_rings[member] = Some(PeerRing::new(at, memory));
        }
        Ok(first)
    }

    /// Ends an operation, successful or not. After that nobody waits for this member, and no member reads its zero-copy data.
    pub(super) fn complete(&mut self, done: Result<()>, call: &'static str) -> Result<()> {
        let failed = done.as_ref().err().map(|error| error.class);
        self.slots().mark_passed(self.me, self.number, failed);
        // The owner of longer data waits for this flag, and so does a member that needs data from one that has given up.
        if !self.has_notified || self.is_awaited || failed.is_some() {
            self.notify_others();
        }
        if self.zcopy_data.is_empty() {
            return done;
        }
        let number = self.number;
        let done = self.others().fold(done, |done, member| {
            let passed = self.wait(member, call, |slots| slots.passed(member) >= number);
            let failed = || self.slots().error_of(member, number).map(|_| self.peer_error(member));
            done.and(passed).and_then(|()| failed().map_or(Ok(()), Err))
        });
        self.zcopy_data.clear();
        done
    }

    /// The error for data that a member did not publish before it passed the operation.
    pub(super) fn peer_error(&self, member: usize) -> Error {
        let class = self.slots().error_of(member, self.number).unwrap_or(Class::NOT_SAME);
        Error::new(class, format_args!("rank {member} has ended the operation with an error"))
    }

    /// Polls until a member has written a value, or has passed the operation. The first polls check only the value.
    pub(super) fn wait(
        &mut self,
        member: usize,
        call: &'static str,
        is_there: impl Fn(&ShmSlots) -> bool,
    ) -> Result<()> {
        if (0..self.core.polls(FLAG_POLLS)).any(|_| is_there(self.slots())) {
            return Ok(());
        }
        if self.has_published && !self.has_notified {
            self.notify_others();
        }
        let (slots, number) = (self.slots(), self.number);
        let (process, owner) = (self.processes[member], self.processes[0]);
        let has_passed = || slots.passed(member) >= number;
        self.core.wait_for_store(call, (process, owner), || is_there(slots), has_passed)
    }

    /// Wakes sleeping members: after this member has published its data, or else after its `passed` flag; after the flag in any
    /// case if somebody waits for it. A member that waits for a later `passed` flag before it publishes data is woken in the next
    /// operation. It may depend on that, as MPI lets every collective operation synchronize all members. The lock in here is a
    /// fence, which waits until other processors release the written line; so this is called once this member has the data it
    /// needs, or is about to wait for long.
    pub(super) fn notify_others(&mut self) {
        self.has_notified = true;
        self.core.with(|engine| {
            self.others().for_each(|member| engine.transport.ring(self.processes[member]));
        });
    }
}

/// The error for data that a member publishes in chunks in an operation where this one reads them whole.
fn other_form(member: usize) -> Error {
    Error::new(Class::NOT_SAME, format_args!("rank {member} publishes its data in chunks"))
}

/// Checks that the data of `who` have exactly the expected number of bytes.
pub(super) fn check_len(who: impl std::fmt::Display, len: u64, all: u64) -> Result<()> {
    if len == all {
        return Ok(());
    }
    let class = if len > all { Class::TRUNCATE } else { Class::NOT_SAME };
    Err(Error::new(class, format_args!("the data of {who} have {len} bytes, where {all} are expected")))
}
