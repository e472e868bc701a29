//! Long reductions of an [`ShmColl`] of two members that are one chunk at most, and of members without rings. Each member reduces one part of all operands, which it reads piece by piece from their
//! owners' memory. Members that get the result then read the other parts of it. With two members each reduces everything: reading
//! the half that another processor has just written takes longer. Operands are combined in rank order, so that the operator need
//! not be commutative, and all members get the same bits.

use std::ops::Range;

use verbs::RemoteAddr;

use crate::coll::shm::operations::ShmReduction;
use crate::coll::shm::slots::{PublishedData, ShmSlots, Stage};
use crate::coll::shm::state::ShmColl;
use crate::coll::shm::transfer::check_len;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;

/// Bytes of a piece: one system call each, and small enough to stay in cache.
const PIECE: i64 = 128 << 10;

/// Addresses of a member's operand and of its part of the result.
type OperandAddrs = (RemoteAddr, RemoteAddr);

impl ShmColl {
    /// Reduces contiguous operands, each member all of them or one part. `result` is the buffer of a member that gets the result.
    pub(super) fn reduce_long(
        &mut self,
        given: &Buffer,
        result: Option<&Buffer>,
        reduction: ShmReduction<'_>,
        in_parts: bool,
    ) -> Result<()> {
        let call = reduction.call;
        let part = match result {
            _ if in_parts => self.part_of(self.me, given.count()),
            Some(_) => 0..given.count(),
            None => 0..0,
        };
        let mine = match result {
            Some(result) => result.elements(part.start, part.end - part.start)?,
            None => Buffer::zeroed(given.datatype().clone(), part.end - part.start)?,
        };
        self.grow_scratch(PIECE)?;
        self.wait_slot_free(0, call)?;
        let at = self.register_zcopy(given)?;
        let part_at = if in_parts { Some(self.register_zcopy(&mine)?) } else { None };
        self.slots().publish_zcopy(self.me, self.number, given.len(), at, part_at);
        self.has_published = true;
        if !in_parts && result.is_none() {
            return Ok(());
        }
        let operands = self.wait_operands(given.len(), in_parts, call)?;
        let step = (PIECE / given.datatype().size().max(1)).max(1);
        for first in part.clone().step_by(step as usize) {
            let piece = first..part.end.min(first + step);
            let into = mine.elements(first - part.start, piece.end - first)?;
            self.reduce_piece(piece, (given, &operands), &into, reduction)?;
        }
        if !in_parts {
            return Ok(());
        }
        self.mark(Stage::Reduced, 1);
        self.notify_others();
        let Some(result) = result else { return Ok(()) };
        for member in self.others() {
            let part = self.part_of(member, given.count());
            self.wait_part(member, call)?;
            let into = result.elements(part.start, part.end - part.start)?;
            self.rdma_read(member, operands[member].1, &into, call)?;
        }
        Ok(())
    }

    /// The elements that a member reduces.
    fn part_of(&self, member: usize, count: i64) -> Range<i64> {
        let cut = |at: usize| (i128::from(count) * at as i128 / self.processes.len() as i128) as i64;
        cut(member)..cut(member + 1)
    }

    /// Waits until all others have published operands of `len` bytes, and a part of the result if `in_parts`. Returns their
    /// addresses.
    fn wait_operands(&mut self, len: u64, in_parts: bool, call: &'static str) -> Result<Vec<OperandAddrs>> {
        let mut operands = vec![OperandAddrs::default(); self.processes.len()];
        for member in self.others() {
            let published = self.wait_published(member, call)?;
            check_len(format_args!("rank {member}"), published.len(), len)?;
            operands[member] = match published {
                PublishedData::Zcopy { at, part, .. } if part.is_some() == in_parts => {
                    (at, part.unwrap_or_default())
                }
                _ => {
                    let text = format!("rank {member} reduces in place, or this one, and not both");
                    return Err(Error::new(Class::NOT_SAME, text));
                }
            };
        }
        Ok(operands)
    }

    /// Waits until a member's part of the result is complete.
    fn wait_part(&mut self, member: usize, call: &'static str) -> Result<()> {
        let number = self.number;
        let has_reduced = |slots: &ShmSlots| slots.has(member, Stage::Reduced, number, 1);
        self.wait(member, call, has_reduced)?;
        if has_reduced(self.slots()) { Ok(()) } else { Err(self.peer_error(member)) }
    }

    /// Reduces a range of elements of all members, from the last rank to the first.
    fn reduce_piece(
        &self,
        piece: Range<i64>,
        (given, operands): (&Buffer, &[OperandAddrs]),
        into: &Buffer,
        ShmReduction { op, call, .. }: ShmReduction<'_>,
    ) -> Result<()> {
        let (count, datatype, last) = (piece.end - piece.start, given.datatype(), self.processes.len() - 1);
        let mut own = given.elements(piece.start, count)?;
        let is_in_place = own.overlaps(into);
        if is_in_place && last != self.me {
            // Another member's operand will overwrite it.
            let copy = self.scratch(1, datatype, count)?;
            copy.copy_data_from(&own);
            own = copy;
        }
        let from = |member: usize| operands[member].0.offset((piece.start * datatype.size()) as u64);
        match last == self.me {
            true if is_in_place => {}
            true => into.copy_data_from(&own),
            false => self.rdma_read(last, from(last), into, call)?,
        }
        let operand = self.scratch(0, datatype, count)?;
        for member in (0..last).rev() {
            if member == self.me {
                into.reduce(&own, op)?;
                continue;
            }
            self.rdma_read(member, from(member), &operand, call)?;
            into.reduce(&operand, op)?;
        }
        Ok(())
    }
}
