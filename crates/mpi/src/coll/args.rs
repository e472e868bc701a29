//! [`Call`]: converts the arguments of a collective operation to the blocks of data that schedules use, and checks them (MPI 5.0,
//! chapter 6).

use collectives::{Blocks, Buffer as Side, Kind, Neighbours, Root, Span, Type};
use datatypes::Op;

use crate::coll::collective::Collective;
use crate::coll::places::Places;
use crate::comm::communicator::Comm;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::status::{PROC_NULL, ROOT};

/// The ranks between which a call moves data.
pub(crate) enum Which {
    All(Kind),
    Neighbours(Neighbours),
}

/// A call in the form that schedules use.
pub(crate) struct Call {
    pub(crate) kind: Which,
    pub(crate) root: Root,
    pub(crate) input: Blocks,
    pub(crate) output: Blocks,
    pub(crate) places: Places,
    pub(crate) op: Option<Op>,
    /// Whether all blocks have one size, known at all members.
    pub(crate) even: bool,
    /// The size in bytes from which all members choose the same algorithm.
    pub(crate) bytes: u64,
}

/// The input or the output: its blocks and their buffers.
struct Data {
    blocks: Blocks,
    buffers: Vec<Buffer>,
}

impl Data {
    fn none() -> Self {
        Self { blocks: Blocks::none(), buffers: Vec::new() }
    }

    /// One block with all elements.
    fn one(side: Side, buffer: &Buffer) -> Self {
        Self { blocks: Blocks::one(span(side, 0, buffer, buffer.count())), buffers: vec![buffer.clone()] }
    }

    /// Consecutive blocks of one size.
    fn row(side: Side, buffer: &Buffer, count: usize) -> Result<Self> {
        let each = buffer.count() / count.max(1) as i64;
        if each * count as i64 != buffer.count() {
            let text = format!("{} elements are no {count} blocks of one size", buffer.count());
            return Err(Error::new(Class::COUNT, text));
        }
        let first = span(side, 0, buffer, each);
        Ok(Self { blocks: Blocks::Even { first, count }, buffers: vec![buffer.clone()] })
    }

    /// Blocks at any addresses, each with its own buffer.
    fn list(side: Side, buffers: &[Buffer], count: usize) -> Result<Self> {
        if buffers.len() != count {
            let text = format!("there are {} blocks, where {count} belong", buffers.len());
            return Err(Error::new(Class::COUNT, text));
        }
        let spans = buffers.iter().enumerate().map(|(at, buffer)| span(side, at, buffer, buffer.count()));
        Ok(Self { blocks: Blocks::Anywhere(spans.collect()), buffers: buffers.to_vec() })
    }

    /// One block, used `count` times.
    fn same(buffer: &Buffer, count: usize) -> Self {
        let block = span(Side::Input, 0, buffer, buffer.count());
        Self { blocks: Blocks::Anywhere(vec![block; count].into()), buffers: vec![buffer.clone()] }
    }

    /// One of the blocks, used in place by the other side.
    fn block(&self, rank: i32) -> Self {
        Self { blocks: Blocks::one(self.blocks.of(rank as usize)), buffers: Vec::new() }
    }

    fn bytes(&self) -> u64 {
        (0..self.blocks.count()).map(|at| self.blocks.of(at).bytes).sum()
    }
}

fn span(side: Side, at: usize, buffer: &Buffer, count: i64) -> Span {
    let datatype = if side == Side::Input { Type::Send(at) } else { Type::Receive(at) };
    let (extent, size) = (buffer.datatype().extent(), buffer.datatype().size() as u64);
    Span::new(side, datatype, 0, count, extent, size)
}

/// The role of a process in a call with a root.
struct Part {
    root: Root,
    /// This process is the root.
    is_root: bool,
    /// This process sends to the root or receives from it.
    is_member: bool,
}

impl Part {
    fn of(comm: &Comm, root: i32) -> Result<Self> {
        let of = |root, is_root, is_member| Ok(Self { root, is_root, is_member });
        match (root, comm.is_inter()) {
            (ROOT, true) => of(Root::Me, true, false),
            (PROC_NULL, true) => of(Root::Other, false, false),
            (rank, is_inter) if (0..comm.peers().size()).contains(&rank) => {
                of(Root::Rank(rank as usize), !is_inter && rank == comm.rank(), true)
            }
            _ => {
                let text = format!("root {root} is not a rank of a communicator of {}", comm.peers().size());
                Err(Error::new(Class::ROOT, text))
            }
        }
    }
}

impl Call {
    /// The call of a collective operation on a communicator.
    pub(crate) fn of(comm: &Comm, call: &Collective) -> Result<Self> {
        use Collective as C;
        let (ranks, row, list) = (comm.peers().size() as usize, Data::row, Data::list);
        match call {
            C::Barrier => Ok(Self::new(Kind::Barrier, Data::none(), Data::none(), 0)),
            C::Bcast { buffer, root } => Self::bcast(comm, buffer, *root),
            C::Gather { input, output, root } => {
                Self::gather(comm, call, (input, *root), true, || row(Side::Output, output, ranks))
            }
            C::Gatherv { input, output, root } => {
                Self::gather(comm, call, (input, *root), false, || list(Side::Output, output, ranks))
            }
            C::Scatter { input, output, root } => {
                Self::scatter(comm, call, (output, *root), true, || row(Side::Input, input, ranks))
            }
            C::Scatterv { input, output, root } => {
                Self::scatter(comm, call, (output, *root), false, || list(Side::Input, input, ranks))
            }
            C::Allgather { input, output } => {
                Self::allgather(comm, call, input, row(Side::Output, output, ranks)?)
            }
            C::Allgatherv { input, output } => {
                Self::allgather(comm, call, input, list(Side::Output, output, ranks)?)
            }
            C::Alltoall { input, output } => {
                let from = input.as_ref().map(|input| row(Side::Input, input, ranks)).transpose()?;
                Self::alltoall(comm, call, from, row(Side::Output, output, ranks)?)
            }
            C::Alltoallw { input, output } => {
                let from = input.as_ref().map(|input| list(Side::Input, input, ranks)).transpose()?;
                Self::alltoall(comm, call, from, list(Side::Output, output, ranks)?)
            }
            C::Reduce { input, output, op, root } => Self::reduce(comm, call, (input, output, op), *root),
            C::Allreduce { input, output, op } => {
                Self::vector(comm, call, Kind::Allreduce, (input, output, op))
            }
            C::Scan { input, output, op } => Self::vector(comm, call, Kind::Scan, (input, output, op)),
            C::Exscan { input, output, op } => Self::vector(comm, call, Kind::Exscan, (input, output, op)),
            C::ReduceScatter { input, output, counts, op } => {
                Self::reduce_scatter(comm, call, (input, output, op), counts)
            }
            C::NeighborAllgather { input, output } => Self::among_neighbours(
                comm,
                |out| Ok(Data::same(input, out)),
                |n| row(Side::Output, output, n),
            ),
            C::NeighborAllgatherv { input, output } => Self::among_neighbours(
                comm,
                |out| Ok(Data::same(input, out)),
                |n| list(Side::Output, output, n),
            ),
            C::NeighborAlltoall { input, output } => {
                Self::among_neighbours(comm, |n| row(Side::Input, input, n), |n| row(Side::Output, output, n))
            }
            C::NeighborAlltoallw { input, output } => Self::among_neighbours(
                comm,
                |n| list(Side::Input, input, n),
                |n| list(Side::Output, output, n),
            ),
        }
    }

    fn new(kind: Kind, input: Data, output: Data, bytes: u64) -> Self {
        let even = input.blocks.is_even() && output.blocks.is_even();
        let places = Places::new(input.buffers, output.buffers);
        let (input, output) = (input.blocks, output.blocks);
        Self { kind: Which::All(kind), root: Root::Rank(0), input, output, places, op: None, even, bytes }
    }

    fn bcast(comm: &Comm, buffer: &Buffer, root: i32) -> Result<Self> {
        let part = Part::of(comm, root)?;
        let takes_part = part.is_root || part.is_member;
        let data = if takes_part { Data::one(Side::Output, buffer) } else { Data::none() };
        Ok(Self { root: part.root, ..Self::new(Kind::Bcast, Data::none(), data, buffer.len()) })
    }

    /// With `even`, all blocks have one size, which all members know.
    fn gather(
        comm: &Comm,
        call: &Collective,
        (input, root): (&Option<Buffer>, i32),
        even: bool,
        output: impl FnOnce() -> Result<Data>,
    ) -> Result<Self> {
        let part = Part::of(comm, root)?;
        let into = if part.is_root { output()? } else { Data::none() };
        let from = match input {
            Some(input) if part.is_member => Data::one(Side::Input, input),
            None if part.is_root && part.is_member => into.block(comm.rank()),
            None if part.is_member => return Err(not_in_place(call)),
            _ => Data::none(),
        };
        let bytes = if !even {
            0
        } else if part.is_root {
            into.blocks.of(0).bytes
        } else {
            from.bytes()
        };
        Ok(Self { root: part.root, even, ..Self::new(Kind::Gather, from, into, bytes) })
    }

    /// With `even`, all blocks have one size, which all members know.
    fn scatter(
        comm: &Comm,
        call: &Collective,
        (output, root): (&Option<Buffer>, i32),
        even: bool,
        input: impl FnOnce() -> Result<Data>,
    ) -> Result<Self> {
        let part = Part::of(comm, root)?;
        let from = if part.is_root { input()? } else { Data::none() };
        let into = match output {
            Some(output) if part.is_member => Data::one(Side::Output, output),
            None if part.is_root && part.is_member => from.block(comm.rank()),
            None if part.is_member => return Err(not_in_place(call)),
            _ => Data::none(),
        };
        let bytes = if !even {
            0
        } else if part.is_root {
            from.blocks.of(0).bytes
        } else {
            into.bytes()
        };
        Ok(Self { root: part.root, even, ..Self::new(Kind::Scatter, from, into, bytes) })
    }

    fn allgather(comm: &Comm, call: &Collective, input: &Option<Buffer>, into: Data) -> Result<Self> {
        let from = match input {
            Some(input) => Data::one(Side::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => into.block(comm.rank()),
        };
        let bytes = into.bytes() / into.blocks.count().max(1) as u64;
        Ok(Self::new(Kind::Allgather, from, into, bytes))
    }

    fn alltoall(comm: &Comm, call: &Collective, input: Option<Data>, into: Data) -> Result<Self> {
        let from = match input {
            Some(input) => input,
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => Data { blocks: into.blocks.clone(), buffers: Vec::new() },
        };
        // Only the two ranks that exchange a block of variable size know its size.
        let bytes = if into.blocks.is_even() { into.blocks.of(0).bytes } else { 0 };
        Ok(Self::new(Kind::Alltoall, from, into, bytes))
    }

    fn reduce(
        comm: &Comm,
        call: &Collective,
        (input, output, op): (&Option<Buffer>, &Buffer, &Op),
        root: i32,
    ) -> Result<Self> {
        let part = Part::of(comm, root)?;
        let into = if part.is_root { Data::one(Side::Output, output) } else { Data::none() };
        let from = match input {
            Some(input) if part.is_member => Data::one(Side::Input, input),
            None if part.is_root && part.is_member => into.block(0),
            None if part.is_member => return Err(not_in_place(call)),
            _ => Data::none(),
        };
        let significant = if part.is_root { Some(output) } else { input.as_ref().filter(|_| part.is_member) };
        if let Some(buffer) = significant {
            buffer.check_reduced_by(op)?;
        }
        let bytes = if part.is_root { into.bytes() } else { from.bytes() };
        let op = Some(op.clone());
        Ok(Self { root: part.root, op, ..Self::new(Kind::Reduce, from, into, bytes) })
    }

    /// A reduction of one vector to another.
    fn vector(
        comm: &Comm,
        call: &Collective,
        kind: Kind,
        (input, output, op): (&Option<Buffer>, &Buffer, &Op),
    ) -> Result<Self> {
        output.check_reduced_by(op)?;
        let into = Data::one(Side::Output, output);
        let from = match input {
            Some(input) => Data::one(Side::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => into.block(0),
        };
        Ok(Self { op: Some(op.clone()), ..Self::new(kind, from, into, output.len()) })
    }

    fn reduce_scatter(
        comm: &Comm,
        call: &Collective,
        (input, output, op): (&Option<Buffer>, &Buffer, &Op),
        counts: &[i64],
    ) -> Result<Self> {
        output.check_reduced_by(op)?;
        let wrong = |text: &str| Error::new(Class::COUNT, text);
        if counts.len() != comm.size() as usize {
            return Err(wrong("there must be a count for each rank"));
        }
        let mut cuts = vec![0_i64];
        for count in counts {
            let end = cuts.last().and_then(|end| end.checked_add(*count)).filter(|_| *count >= 0);
            cuts.push(end.ok_or_else(|| wrong("a count is negative, or their sum too large"))?);
        }
        let (total, mine) = (cuts[counts.len()], counts[comm.rank() as usize]);
        let (side, vector) = match input {
            Some(input) => (Side::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => (Side::Output, output),
        };
        if vector.count() != total || output.count() < mine {
            return Err(wrong("the buffers' counts are not those of the blocks"));
        }
        let whole = span(side, 0, vector, total);
        let blocks = if counts.iter().all(|count| *count == mine) {
            Blocks::Even { first: span(side, 0, vector, mine), count: counts.len() }
        } else {
            Blocks::Cut { whole, cuts: cuts.into() }
        };
        let from = Data { blocks, buffers: input.iter().cloned().collect() };
        let into =
            Data { blocks: Blocks::one(span(Side::Output, 0, output, mine)), buffers: vec![output.clone()] };
        Ok(Self { op: Some(op.clone()), ..Self::new(Kind::ReduceScatter, from, into, whole.bytes) })
    }

    fn among_neighbours(
        comm: &Comm,
        input: impl FnOnce(usize) -> Result<Data>,
        output: impl FnOnce(usize) -> Result<Data>,
    ) -> Result<Self> {
        let none =
            || Error::new(Class::TOPOLOGY, "the communicator has no topology, so nobody is a neighbour");
        let neighbours = comm.topology().ok_or_else(none)?.neighbours(comm.rank());
        let (from, into) = (input(neighbours.destinations.len())?, output(neighbours.sources.len())?);
        Ok(Self { kind: Which::Neighbours(neighbours), ..Self::new(Kind::Alltoall, from, into, 0) })
    }
}

fn not_in_place(call: &Collective) -> Error {
    Error::new(Class::BUFFER, format_args!("MPI_IN_PLACE has no meaning here in {}", call.name()))
}
