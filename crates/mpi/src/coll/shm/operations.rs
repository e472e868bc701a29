//! The collective operations in shared memory.

use datatypes::Op;

use crate::coll::collective::Collective;
use crate::coll::shm::chunks::{Exchange, fits_rounds, longest_step, pays};
use crate::coll::shm::ring::CHUNK;
use crate::coll::shm::slots::{BCOPY_MAX, PublishedData};
use crate::coll::shm::state::{MEMBERS_MAX, ShmColl};
use crate::coll::shm::transfer::check_len;
use crate::error::Result;
use crate::memory::{Buffer, Piece};

/// Every this many operations, one also makes progress for all other communication, because the operations may never wait.
const PROGRESS_EVERY: u64 = 64;

/// Parameters of a reduction that all members share: the operator, the call's name, and whether all get the result.
#[derive(Clone, Copy)]
pub(super) struct ShmReduction<'a> {
    pub(super) op: &'a Op,
    pub(super) call: &'static str,
    pub(super) to_all: bool,
}

impl ShmColl {
    /// Carries out an operation that [`super::choice`] accepts.
    ///
    /// # Errors
    /// [`Class::TRUNCATE`] and [`Class::NOT_SAME`] for members whose arguments do not match; [`Class::PROC_ABORTED`] when a member
    /// is lost whose data are needed; the operator's error; the error of a member that has given up and whose data are needed.
    ///
    /// [`Class::TRUNCATE`]: crate::error::Class::TRUNCATE
    /// [`Class::NOT_SAME`]: crate::error::Class::NOT_SAME
    /// [`Class::PROC_ABORTED`]: crate::error::Class::PROC_ABORTED
    pub(super) fn run(&mut self, call: &Collective) -> Result<()> {
        self.begin();
        let name = call.name();
        let done = match call {
            Collective::Bcast { buffer, root } => self.bcast(buffer, *root as usize),
            Collective::Allgather { input, output } => self.allgather(input.as_ref(), output),
            Collective::Alltoall { input, output } => self.alltoall(input.as_ref(), output),
            Collective::Reduce { input, output, op, root } => {
                let gets = *root as usize == self.me;
                self.reduce((input.as_ref(), output), gets, ShmReduction { op, call: name, to_all: false })
            }
            Collective::Allreduce { input, output, op } => {
                self.reduce((input.as_ref(), output), true, ShmReduction { op, call: name, to_all: true })
            }
            _ => self.barrier(name),
        };
        self.finish(done, name)
    }

    /// Begins the next operation.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.number += 1;
        (self.has_published, self.has_notified, self.is_awaited) = (false, false, false);
    }

    /// Ends the operation.
    #[inline]
    pub(super) fn finish(&mut self, done: Result<()>, call: &'static str) -> Result<()> {
        let done = self.complete(done, call);
        if self.number.is_multiple_of(PROGRESS_EVERY) {
            self.core.test(|_| None::<()>);
        }
        done
    }

    /// No member leaves before all have entered.
    pub(super) fn barrier(&mut self, call: &'static str) -> Result<()> {
        self.publish_piece(Piece::empty(), call)?;
        self.others().try_for_each(|member| self.wait_published(member, call).map(drop))
    }

    /// The root publishes, and the others read.
    fn bcast(&mut self, buffer: &Buffer, root: usize) -> Result<()> {
        const CALL: &str = "MPI_Bcast";
        let (len, is_root) = (buffer.len(), root == self.me);
        // Several rounds even of short data: the others read the first one while the root copies the next.
        let step = len.div_ceil(4).next_multiple_of(64).clamp(CHUNK as u64 / 4, CHUNK as u64);
        let in_rounds = if is_root {
            len > BCOPY_MAX as u64 && fits_rounds(len, step) && self.announce_chunks(len, CALL)?
        } else {
            let published = self.wait_published(root, CALL)?;
            check_len(format_args!("rank {root}"), published.len(), len)?;
            matches!(published, PublishedData::Chunked { .. })
        };
        match is_root {
            _ if in_rounds => self.exchange(&Exchange {
                call: CALL,
                all: len,
                each: len,
                from: 0,
                step,
                sources: if is_root { 0 } else { 1 << root },
                lanes: usize::from(is_root),
                is_scattered: false,
                lane: &|_| buffer.clone(),
                into: &|_| buffer.clone(),
                own: None,
            }),
            true => self.publish(buffer, CALL),
            false => self.read(root, (0, len), buffer, CALL),
        }
    }

    fn allgather(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        const CALL: &str = "MPI_Allgather";
        let len = output.len() / self.processes.len() as u64;
        let block = |member: usize| output.clone().packed_range(member as u64 * len, len);
        let given = input.cloned().unwrap_or_else(|| block(self.me));
        check_len("this rank", given.len(), len)?;
        let own = input.map(|input| (input.clone(), block(self.me)));
        let step = CHUNK as u64;
        let is_long = len > BCOPY_MAX as u64;
        let in_rounds =
            self.prefers_chunks(len) && fits_rounds(len, step) && self.announce_chunks(len, CALL)?;
        if !in_rounds {
            self.publish(&given, CALL)?;
            copy_own(own.as_ref());
        }
        if !is_long {
            return self.for_each_ready(|shm, member| shm.read(member, (0, len), &block(member), CALL));
        }
        self.exchange(&Exchange {
            call: CALL,
            all: len,
            each: len,
            from: 0,
            step,
            sources: self.others_mask(),
            lanes: usize::from(in_rounds),
            is_scattered: false,
            lane: &|_| given.clone(),
            into: &block,
            own,
        })
    }

    fn alltoall(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        const CALL: &str = "MPI_Alltoall";
        let (all, members, me) = (output.len(), self.processes.len(), self.me);
        let len = all / members as u64;
        let part = |buffer: &Buffer, member: usize| buffer.clone().packed_range(member as u64 * len, len);
        let (given, block) = (input.unwrap_or(output), |member: usize| part(output, member));
        let mine = (me as u64 * len, all);
        check_len("this rank", given.len(), all)?;
        let own = input.map(|input| (part(input, me), block(me)));
        let longest = longest_step(members - 1);
        let step = len.div_ceil(len.div_ceil(longest).max(1)).next_multiple_of(64).min(longest);
        let is_long = all > BCOPY_MAX as u64;
        let in_rounds =
            self.prefers_chunks(all) && fits_rounds(len, step) && self.announce_chunks(all, CALL)?;
        if !in_rounds {
            // Zero-copy data must stay unchanged until all have read them.
            let copied = if is_long && input.is_none() { Some(output.copied()?) } else { None };
            self.publish(copied.as_ref().unwrap_or(given), CALL)?;
            copy_own(own.as_ref());
        }
        if !is_long {
            return self.for_each_ready(|shm, member| shm.read(member, mine, &block(member), CALL));
        }
        self.exchange(&Exchange {
            call: CALL,
            all,
            each: len,
            from: mine.0,
            step,
            sources: self.others_mask(),
            lanes: if in_rounds { members - 1 } else { 0 },
            is_scattered: true,
            lane: &|lane| part(given, (me + 1 + lane) % members),
            into: &block,
            own,
        })
    }

    /// All members publish their operands. Members that get the result reduce the operands, from the last rank to the first. Long
    /// contiguous operands are reduced in rounds.
    fn reduce(
        &mut self,
        (input, output): (Option<&Buffer>, &Buffer),
        gets: bool,
        reduction: ShmReduction<'_>,
    ) -> Result<()> {
        let (given, call) = (input.unwrap_or(output), reduction.call);
        let (count, datatype) = (output.count(), output.datatype());
        // This member's own operand need not be read back from its area, unless the result overwrites it.
        let own = input.filter(|input| input.count() == count && input.datatype().is_same_object(datatype));
        let is_alike = !gets || input.is_none() || own.is_some();
        if given.len() > BCOPY_MAX as u64 && given.contiguous_range().is_some() && is_alike {
            if pays(given.len(), self.processes.len()) {
                if self.reduce_in_chunks(given, gets.then_some(output), reduction)? {
                    return Ok(());
                }
                // A member has no ring: all members have found that, and begin again.
                self.slots().mark_passed(self.me, self.number, None);
                self.notify_others();
                self.begin();
            }
            // In place, a result must not overwrite an operand that others still read.
            let in_parts = self.processes.len() > 2 || (reduction.to_all && input.is_none());
            return self.reduce_long(given, gets.then_some(output), reduction, in_parts);
        }
        self.publish(given, call)?;
        if !gets {
            return Ok(());
        }
        let (last, len) = (self.processes.len() - 1, output.len());
        match own {
            Some(own) if last == self.me => output.copy_data_from(own),
            None if last == self.me && input.is_none() => {}
            _ => self.read(last, (0, len), output, call)?,
        }
        let operand = self.scratch(0, datatype, count)?;
        for member in (0..last).rev() {
            if let Some(own) = own.filter(|_| member == self.me) {
                output.reduce(own, reduction.op)?;
                continue;
            }
            self.read(member, (0, len), &operand, call)?;
            output.reduce(&operand, reduction.op)?;
        }
        Ok(())
    }

    /// The other members, one bit each.
    fn others_mask(&self) -> u32 {
        const { assert!(MEMBERS_MAX <= u32::BITS as usize) }
        self.others().map(|member| 1 << member).sum()
    }

    /// Reads the data of all other members, in the order in which they become available. Waiting for a fixed member would waste the
    /// time in which another's data could be copied, and where ranks share cores each wait is a context switch.
    fn for_each_ready(&mut self, mut read: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        let mut open = self.others_mask();
        loop {
            let is_open = |member: &usize| open & (1 << member) != 0;
            let is_ready =
                |member: &usize| is_open(member) && self.slots().has_published(*member, self.number);
            let Some(member) = self.others().find(is_ready).or_else(|| self.others().find(is_open)) else {
                return Ok(());
            };
            open &= !(1 << member);
            read(self, member)?;
        }
    }
}

/// Copies a member's own data to where they go.
fn copy_own(own: Option<&(Buffer, Buffer)>) {
    if let Some((from, to)) = own
        && to.len() > 0
    {
        to.copy_data_from(from);
    }
}
