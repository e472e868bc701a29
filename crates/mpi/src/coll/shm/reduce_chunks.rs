//! Long reductions of an [`ShmColl`] in rounds. A round covers as many elements as fit into a chunk. Each member publishes its
//! operand of the others' parts, reduces its own part from all operands, and publishes the result; members that get the whole
//! result then read the other parts. Operands are combined in rank order, so that the operator need not be commutative, and all
//! members get the same bits. As in an exchange, a member does whatever is possible next.

use std::ops::Range;

use crate::coll::shm::chunks::{fits_rounds, longest_step};
use crate::coll::shm::operations::ShmReduction;
use crate::coll::shm::ring::CHUNK;
use crate::coll::shm::slots::{PublishedData, ShmSlots, Stage};
use crate::coll::shm::state::{MEMBERS_MAX, ShmColl};
use crate::coll::shm::transfer::check_len;
use crate::error::Result;
use crate::memory::Buffer;

/// A reduction in rounds, and how far this member is with it.
struct Rounds<'a> {
    given: &'a Buffer,
    result: Option<&'a Buffer>,
    reduction: ShmReduction<'a>,
    /// Elements of a part, at most, and the bytes between parts in a chunk.
    step: i64,
    lane: usize,
    rounds: u64,
    /// The first chunk of each member.
    first: [u64; MEMBERS_MAX],
    published: u64,
    reduced: u64,
    /// Rounds whose part has been read of each member.
    gathered: [u64; MEMBERS_MAX],
}

impl Rounds<'_> {
    /// The elements of a member's part in a round.
    fn part(&self, members: usize, round: u64, member: usize) -> Range<i64> {
        let begin = round as i64 * self.step * members as i64;
        let count = (self.given.count() - begin).min(self.step * members as i64);
        let cut = |at: usize| begin + count * at as i64 / members as i64;
        cut(member)..cut(member + 1)
    }

    /// Whether a member's part of the result can be read.
    fn can_gather(&self, slots: &ShmSlots, number: u64, member: usize) -> bool {
        let round = self.gathered[member];
        self.result.is_some()
            && round < self.published
            && slots.has(member, Stage::Reduced, number, round + 1)
    }

    /// Whether a member has published its operands of the next round.
    fn has_operands(&self, slots: &ShmSlots, number: u64, member: usize) -> bool {
        slots.has(member, Stage::Published, number, self.reduced + 1)
    }
}

impl ShmColl {
    /// Reduces contiguous operands. `result` is the buffer of a member that gets the result. Returns false if a member has no ring,
    /// or elements are too long for one: then all members return false, and nothing is reduced.
    pub(super) fn reduce_in_chunks(
        &mut self,
        given: &Buffer,
        result: Option<&Buffer>,
        reduction: ShmReduction<'_>,
    ) -> Result<bool> {
        let (call, members, len) = (reduction.call, self.processes.len(), given.len());
        let lane = longest_step(members);
        let step = lane as i64 / given.datatype().size().max(1);
        let rounds = (given.count() as u64).div_ceil((step.max(1) * members as i64) as u64);
        let fits = fits_rounds(given.count() as u64, step as u64 * members as u64);
        if !(fits && self.announce_chunks(len, call)?) {
            self.wait_slot_free(0, call)?;
            self.slots().publish_zcopy(self.me, self.number, len, verbs::RemoteAddr::default(), None);
            self.has_published = true;
            self.meet_rings(len, call)?;
            return Ok(false);
        }
        self.grow_scratch(CHUNK as i64)?;
        let mut rounds = Rounds {
            given,
            result,
            reduction,
            step,
            lane: lane as usize,
            rounds,
            first: [0; MEMBERS_MAX],
            published: 0,
            reduced: 0,
            gathered: [0; MEMBERS_MAX],
        };
        if self.has_room(0) {
            self.publish_operands(&mut rounds)?;
        }
        match self.meet_rings(len, call)? {
            Some(first) => rounds.first = first,
            None => return Ok(false),
        }
        self.reduce_rounds(&mut rounds)?;
        Ok(true)
    }

    /// Waits until all others have announced operands of `len` bytes. Returns their first chunks, or `None` if one has no ring.
    fn meet_rings(&mut self, len: u64, call: &'static str) -> Result<Option<[u64; MEMBERS_MAX]>> {
        let (mut first, mut all) = ([0; MEMBERS_MAX], true);
        for member in self.others() {
            let published = self.wait_published(member, call)?;
            check_len(format_args!("rank {member}"), published.len(), len)?;
            match published {
                PublishedData::Chunked { .. } => first[member] = self.meet_ring(member, published)?,
                _ => all = false,
            }
        }
        Ok(all.then_some(first))
    }

    fn reduce_rounds(&mut self, rounds: &mut Rounds<'_>) -> Result<()> {
        let number = self.number;
        loop {
            let slots = self.slots();
            let gathers = |member: &usize| rounds.can_gather(slots, number, *member);
            if let Some(member) = self.others().find(gathers) {
                self.gather_part(rounds, member)?;
            } else if rounds.reduced < rounds.published
                && self.others().all(|member| rounds.has_operands(slots, number, member))
            {
                self.reduce_part(rounds)?;
            } else if rounds.published < rounds.rounds && self.has_room(rounds.published) {
                self.publish_operands(rounds)?;
            } else if !self.wait_for_step(rounds)? {
                return Ok(());
            }
        }
    }

    /// Copies the next round's operands of the others' parts to the ring.
    fn publish_operands(&mut self, rounds: &mut Rounds<'_>) -> Result<()> {
        let (round, members) = (rounds.published, self.processes.len());
        let is_shared = self.core.is_oversubscribed();
        for member in self.others() {
            let part = rounds.part(members, round, member);
            let data = rounds.given.elements(part.start, part.end - part.start)?;
            self.ring.store(round, member * rounds.lane, &data, is_shared)?;
        }
        self.ring.set_use(self.number, round);
        rounds.published += 1;
        self.mark(Stage::Published, rounds.published);
        Ok(())
    }

    /// Reduces this member's part of the next round, from the last rank to the first, and publishes it.
    fn reduce_part(&mut self, rounds: &mut Rounds<'_>) -> Result<()> {
        let (round, members, op) = (rounds.reduced, self.processes.len(), rounds.reduction.op);
        let (part, last, datatype) =
            (rounds.part(members, round, self.me), members - 1, rounds.given.datatype());
        let count = part.end - part.start;
        let mut own = rounds.given.elements(part.start, count)?;
        let into = match rounds.result {
            Some(result) => result.elements(part.start, count)?,
            None => self.scratch(2, datatype, count)?,
        };
        let is_in_place = own.overlaps(&into);
        if is_in_place && last != self.me {
            // Another member's operand will overwrite it.
            let copy = self.scratch(1, datatype, count)?;
            copy.copy_data_from(&own);
            own = copy;
        }
        match last == self.me {
            true if is_in_place => {}
            true => into.copy_data_from(&own),
            false => self.read_chunk(last, rounds.operand(last, self.me), &into, rounds.reduction.call)?,
        }
        // With fewer elements than members, a part may be empty.
        let others = if count > 0 { 0..last } else { 0..0 };
        for member in others.rev() {
            if member == self.me {
                into.reduce(&own, op)?;
                continue;
            }
            let operand = self.operand(rounds, member, count)?;
            into.reduce(&operand, op)?;
        }
        if rounds.reduction.to_all || rounds.result.is_none() {
            self.ring.store(round, self.me * rounds.lane, &into, self.core.is_oversubscribed())?;
            self.mark(Stage::Reduced, round + 1);
        }
        rounds.reduced += 1;
        self.mark_rounds_taken(rounds);
        Ok(())
    }

    /// Another member's operand of this member's part: in the member's ring, or else in scratch memory.
    fn operand(&self, rounds: &Rounds<'_>, member: usize, count: i64) -> Result<Buffer> {
        let (chunk, at) = rounds.operand(member, self.me);
        let datatype = rounds.given.datatype();
        if let Some(Ok((memory, begin))) = self.peer_rings[member].as_ref().map(|ring| ring.chunk(chunk)) {
            return Buffer::of_mapped(memory, begin + at, count, datatype);
        }
        let operand = self.scratch(0, datatype, count)?;
        self.read_chunk(member, (chunk, at), &operand, rounds.reduction.call)?;
        Ok(operand)
    }

    /// Reads a member's part of the result in its next round.
    fn gather_part(&mut self, rounds: &mut Rounds<'_>, member: usize) -> Result<()> {
        let round = rounds.gathered[member];
        let part = rounds.part(self.processes.len(), round, member);
        if let Some(result) = rounds.result {
            let into = result.elements(part.start, part.end - part.start)?;
            let at = (rounds.first[member] + round, member * rounds.lane);
            self.read_chunk(member, at, &into, rounds.reduction.call)?;
        }
        rounds.gathered[member] += 1;
        self.mark_rounds_taken(rounds);
        Ok(())
    }

    /// Marks the rounds in which this member reads nothing more.
    fn mark_rounds_taken(&mut self, rounds: &Rounds<'_>) {
        let gathered = self.others().map(|member| rounds.gathered[member]).min();
        let gathered = gathered.filter(|_| rounds.result.is_some()).unwrap_or(rounds.reduced);
        let taken = rounds.reduced.min(gathered);
        if taken > 0 {
            self.mark(Stage::Taken, taken);
        }
    }

    /// Waits until another step is possible. Returns false if none is left.
    fn wait_for_step(&mut self, rounds: &Rounds<'_>) -> Result<bool> {
        let (me, number, members) = (self.me, self.number, self.processes.len());
        let slots = self.slots();
        let lacks_operands =
            |member: &usize| rounds.reduced < rounds.rounds && !rounds.has_operands(slots, number, *member);
        let lacks_part = |member: &usize| rounds.result.is_some() && rounds.gathered[*member] < rounds.rounds;
        let operands = self.others().find(lacks_operands);
        let Some(member) = operands.or_else(|| self.others().find(lacks_part)) else {
            if rounds.published == rounds.rounds {
                return Ok(rounds.reduced < rounds.rounds);
            }
            self.wait_for_room(rounds.published, rounds.reduction.call)?;
            return Ok(true);
        };
        let room = (rounds.published < rounds.rounds).then(|| self.ring.last_use(rounds.published));
        let others = || (0..members).filter(|member| *member != me);
        let is_there = |slots: &ShmSlots| {
            others().any(|member| rounds.can_gather(slots, number, member))
                || (rounds.reduced < rounds.published
                    && others().all(|member| rounds.has_operands(slots, number, member)))
                || room.is_some_and(|last| others().all(|member| slots.has_taken(member, number, last)))
        };
        let has_come = |slots: &ShmSlots| {
            is_there(slots) || (operands.is_some() && rounds.has_operands(slots, number, member))
        };
        self.wait(member, rounds.reduction.call, has_come)?;
        if has_come(self.slots()) { Ok(true) } else { Err(self.peer_error(member)) }
    }
}

impl Rounds<'_> {
    /// The chunk and the offset of a member's operand for the part of `me` in the next round.
    fn operand(&self, member: usize, me: usize) -> (u64, usize) {
        (self.first[member] + self.reduced, me * self.lane)
    }
}
