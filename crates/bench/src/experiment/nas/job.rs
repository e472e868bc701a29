//! [`Job`]: what the kernels need of MPI and of the host: exchanges, sums, and time charged for computing.

use bytemuck::Pod;
use datatypes::{Basic, Datatype, Op, Operator};
use mpi::{Buffer, Collective, Comm, PeerTag, Process};
use verbs::Buf;
use verbs::host::{Host, Span, Time};

use super::super::Fault;

const TAG: i32 = 1;

/// Maximum numbers of 4 bytes summed or exchanged per call.
const NUMBERS_MAX: usize = 2048;

/// One rank of a kernel.
pub(super) struct Job {
    comm: Comm,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    host: Host,
    /// Operations in a second that virtual time is charged for.
    rate: f64,
    input: Buf,
    output: Buf,
    /// Last field, so that it outlives pending operations.
    process: Process,
}

impl Job {
    /// The rank that this process of MPI is.
    pub(super) fn new(process: Process, rate: f64) -> Result<Self, Fault> {
        let comm = process.world().clone();
        let bytes = NUMBERS_MAX * size_of::<u32>();
        Ok(Self {
            rank: comm.rank() as usize,
            ranks: comm.size() as usize,
            comm,
            host: process.host().clone(),
            rate,
            input: Buf::alloc(bytes)?,
            output: Buf::alloc(bytes)?,
            process,
        })
    }

    /// The process of MPI.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Charges virtual time for `operations` computed operations.
    pub(super) fn computed(&self, operations: f64) {
        self.host.charge(Span::from_ps((operations / self.rate * 1e12) as u64));
    }

    /// Sends `out` to another rank, and gets as many bytes from it as `into` has.
    pub(super) fn exchange(&self, with: usize, out: &Buffer, into: Buffer) -> Result<(), Fault> {
        let with = PeerTag { rank: with as i32, tag: TAG };
        Ok(self.comm.sendrecv(out, with, into, with)?.ok().map(drop)?)
    }

    /// Sends each rank a piece of memory, and receives one from each.
    pub(super) fn alltoallv(&self, input: Vec<Buffer>, output: Vec<Buffer>) -> Result<(), Fault> {
        Ok(self.comm.collective(&Collective::Alltoallw { input: Some(input), output })?)
    }

    /// A barrier; returns the time after it.
    pub(super) fn begin(&self) -> Result<Time, Fault> {
        self.comm.collective(&Collective::Barrier)?;
        Ok(self.host.now())
    }

    /// The time of the slowest rank since it began.
    pub(super) fn slowest(&self, began: Time) -> Result<Span, Fault> {
        let mut spent = [(self.host.now() - began).as_ps()];
        self.allreduce(&mut spent, Basic::Uint64, Operator::Max)?;
        Ok(Span::from_ps(spent[0]))
    }

    /// The sums of all ranks' numbers.
    pub(super) fn sum(&self, numbers: &mut [u32]) -> Result<(), Fault> {
        self.allreduce(numbers, Basic::Uint32, Operator::Sum)
    }

    /// Sends each rank a number; returns the numbers from each rank.
    pub(super) fn alltoall(&self, numbers: &[u32]) -> Result<Vec<u32>, Fault> {
        let mut got = vec![0; numbers.len()];
        let (count, datatype) = (numbers.len() as i64, Datatype::from(Basic::Uint32));
        self.input.write(0, bytemuck::cast_slice(numbers))?;
        self.comm.collective(&Collective::Alltoall {
            input: Some(Buffer::of(&self.input, 0, count, &datatype)?),
            output: Buffer::of(&self.output, 0, count, &datatype)?,
        })?;
        self.output.read(0, bytemuck::cast_slice_mut(&mut got))?;
        Ok(got)
    }

    fn allreduce<T: Pod>(&self, numbers: &mut [T], basic: Basic, by: Operator) -> Result<(), Fault> {
        let (count, datatype) = (numbers.len() as i64, Datatype::from(basic));
        self.input.write(0, bytemuck::cast_slice(numbers))?;
        self.comm.collective(&Collective::Allreduce {
            input: Some(Buffer::of(&self.input, 0, count, &datatype)?),
            output: Buffer::of(&self.output, 0, count, &datatype)?,
            op: Op::from(by),
        })?;
        Ok(self.output.read(0, bytemuck::cast_slice_mut(numbers))?)
    }

    /// The largest number of the ranks before this one; 0 at the first.
    pub(super) fn largest_before(&self, number: u64) -> Result<u64, Fault> {
        let (datatype, mut found) = (Datatype::from(Basic::Uint64), [0]);
        self.input.write(0, bytemuck::bytes_of(&number))?;
        self.output.write(0, bytemuck::bytes_of(&found))?;
        self.comm.collective(&Collective::Exscan {
            input: Some(Buffer::of(&self.input, 0, 1, &datatype)?),
            output: Buffer::of(&self.output, 0, 1, &datatype)?,
            op: Op::from(Operator::Max),
        })?;
        self.output.read(0, bytemuck::cast_slice_mut(&mut found))?;
        Ok(found[0])
    }
}
