//! The collective operations in shared memory.

use datatypes::Op;

use crate::coll::collective::Collective;
use crate::coll::shm::slots::BCOPY_MAX;
use crate::coll::shm::state::{MEMBERS_MAX, ShmColl};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::shm_copy::SHARED_MIN;

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
        (self.has_published, self.has_notified, self.reads_zcopy) = (false, false, false);
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

    /// The root publishes, and the others read. With two members both copy long data: the other member publishes its destination,
    /// and the root writes the second half there.
    fn bcast(&mut self, buffer: &Buffer, root: usize) -> Result<()> {
        const CALL: &str = "MPI_Bcast";
        let len = buffer.len();
        let half = len / 2;
        let by_both = len >= SHARED_MIN && self.processes.len() == 2 && self.may_write(1 - self.me)?;
        if root != self.me {
            if !by_both {
                return self.read(root, (0, len), buffer, CALL);
            }
            if buffer.is_noncontiguous() {
                self.publish_piece(Piece::empty(), CALL)?;
                return self.read(root, (0, len), buffer, CALL);
            }
            self.publish(buffer, CALL)?;
            self.notify_others();
            return self.read(root, (0, len), &buffer.clone().packed_range(0, half), CALL);
        }
        self.publish(buffer, CALL)?;
        if by_both { self.write_rest(1 - root, buffer, half, CALL) } else { Ok(()) }
    }

    fn allgather(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        let len = output.len() / self.processes.len() as u64;
        let block = |member: usize| output.clone().packed_range(member as u64 * len, len);
        self.publish(input.unwrap_or(&block(self.me)), "MPI_Allgather")?;
        if let Some(input) = input {
            self.copy_own(input, (0, len), &block(self.me))?;
        }
        self.for_each_ready(|shm, member| shm.read(member, (0, len), &block(member), "MPI_Allgather"))
    }

    fn alltoall(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        let all = output.len();
        let len = all / self.processes.len() as u64;
        let block = |member: usize| output.clone().packed_range(member as u64 * len, len);
        let mine = (self.me as u64 * len, all);
        match input {
            // Zero-copy data must stay unchanged until all have read them.
            None if all > BCOPY_MAX as u64 => self.publish(&output.copied()?, "MPI_Alltoall")?,
            None => self.publish(output, "MPI_Alltoall")?,
            Some(input) => {
                self.publish(input, "MPI_Alltoall")?;
                self.copy_own(input, mine, &block(self.me))?;
            }
        }
        self.for_each_ready(|shm, member| shm.read(member, mine, &block(member), "MPI_Alltoall"))
    }

    /// All members publish their operands. Members that get the result reduce the operands, from the last rank to the first. Long
    /// contiguous operands are reduced piece by piece.
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

    /// Reads the data of all other members, in the order in which they become available. Waiting for a fixed member would waste the
    /// time in which another's data could be copied, and where ranks share cores each wait is a context switch.
    fn for_each_ready(&mut self, mut read: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        const { assert!(MEMBERS_MAX <= u32::BITS as usize) }
        let mut open: u32 = self.others().map(|member| 1 << member).sum();
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
