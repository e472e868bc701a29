//! [`CollArgs`]: converts the arguments of a collective operation to the blocks of data that schedules use, and checks them (MPI 5.0,
//! chapter 6).

use collectives::{Blocks, CollKind, ElementType, Neighbours, Root, Span, SpanBuffer};
use datatypes::Op;

use crate::coll::buffers::CallBuffers;
use crate::coll::collective::Collective;
use crate::comm::communicator::Comm;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::status::{PROC_NULL, ROOT};

/// The ranks between which a call moves data.
pub(crate) enum Participants {
    All(CollKind),
    Neighbours(Neighbours),
}

/// A call in the form that schedules use.
pub(crate) struct CollArgs {
    pub(crate) kind: Participants,
    pub(crate) root: Root,
    pub(crate) input: Blocks,
    pub(crate) output: Blocks,
    pub(crate) call_buffers: CallBuffers,
    pub(crate) op: Option<Op>,
    /// Whether all blocks have one size, known at all members.
    pub(crate) equal_blocks: bool,
    /// The size in bytes from which all members choose the same algorithm.
    pub(crate) bytes: u64,
}

/// The input or the output: its blocks and their buffers.
struct BlockBuffers {
    blocks: Blocks,
    buffers: Vec<Buffer>,
}

impl BlockBuffers {
    fn none() -> Self {
        Self { blocks: Blocks::none(), buffers: Vec::new() }
    }

    /// One block with all elements.
    fn single(span_buffer: SpanBuffer, buffer: &Buffer) -> Self {
        Self {
            blocks: Blocks::single(span(span_buffer, 0, buffer, buffer.count())),
            buffers: vec![buffer.clone()],
        }
    }

    /// Consecutive blocks of one size.
    fn equal(span_buffer: SpanBuffer, buffer: &Buffer, count: usize) -> Result<Self> {
        let each = buffer.count() / count.max(1) as i64;
        if each * count as i64 != buffer.count() {
            let text =
                format!("{} elements cannot be divided into {count} blocks of one size", buffer.count());
            return Err(Error::new(Class::COUNT, text));
        }
        let first = span(span_buffer, 0, buffer, each);
        Ok(Self { blocks: Blocks::Equal { first, count }, buffers: vec![buffer.clone()] })
    }

    /// Blocks at any addresses, each with its own buffer.
    fn separate(span_buffer: SpanBuffer, buffers: &[Buffer], count: usize) -> Result<Self> {
        if buffers.len() != count {
            let text = format!("there are {} blocks, but {count} are needed", buffers.len());
            return Err(Error::new(Class::COUNT, text));
        }
        let spans =
            buffers.iter().enumerate().map(|(at, buffer)| span(span_buffer, at, buffer, buffer.count()));
        Ok(Self { blocks: Blocks::Separate(spans.collect()), buffers: buffers.to_vec() })
    }

    /// One block, used `count` times.
    fn repeated(buffer: &Buffer, count: usize) -> Self {
        let block = span(SpanBuffer::Input, 0, buffer, buffer.count());
        Self { blocks: Blocks::Separate(vec![block; count].into()), buffers: vec![buffer.clone()] }
    }

    /// One of the blocks, used in place by the other side.
    fn block_in_place(&self, rank: i32) -> Self {
        Self { blocks: Blocks::single(self.blocks.block(rank as usize)), buffers: Vec::new() }
    }

    fn bytes(&self) -> u64 {
        (0..self.blocks.count()).map(|at| self.blocks.block(at).bytes).sum()
    }
}

fn span(span_buffer: SpanBuffer, at: usize, buffer: &Buffer, count: i64) -> Span {
    let datatype =
        if span_buffer == SpanBuffer::Input { ElementType::Send(at) } else { ElementType::Receive(at) };
    let (extent, size) = (buffer.datatype().extent(), buffer.datatype().size() as u64);
    Span::new(span_buffer, datatype, 0, count, extent, size)
}

/// The role of a process in a call with a root.
struct RootRole {
    root: Root,
    /// This process is the root.
    is_root: bool,
    /// This process sends to the root or receives from it.
    is_member: bool,
}

impl RootRole {
    fn new(comm: &Comm, root: i32) -> Result<Self> {
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

impl CollArgs {
    /// The call of a collective operation on a communicator.
    pub(crate) fn new(comm: &Comm, call: &Collective) -> Result<Self> {
        use Collective as C;
        let (ranks, equal, separate) =
            (comm.peers().size() as usize, BlockBuffers::equal, BlockBuffers::separate);
        match call {
            C::Barrier => {
                Ok(Self::from_blocks(CollKind::Barrier, BlockBuffers::none(), BlockBuffers::none(), 0))
            }
            C::Bcast { buffer, root } => Self::bcast(comm, buffer, *root),
            C::Gather { input, output, root } => {
                Self::gather(comm, call, (input, *root), true, || equal(SpanBuffer::Output, output, ranks))
            }
            C::Gatherv { input, output, root } => Self::gather(comm, call, (input, *root), false, || {
                separate(SpanBuffer::Output, output, ranks)
            }),
            C::Scatter { input, output, root } => {
                Self::scatter(comm, call, (output, *root), true, || equal(SpanBuffer::Input, input, ranks))
            }
            C::Scatterv { input, output, root } => Self::scatter(comm, call, (output, *root), false, || {
                separate(SpanBuffer::Input, input, ranks)
            }),
            C::Allgather { input, output } => {
                Self::allgather(comm, call, input, equal(SpanBuffer::Output, output, ranks)?)
            }
            C::Allgatherv { input, output } => {
                Self::allgather(comm, call, input, separate(SpanBuffer::Output, output, ranks)?)
            }
            C::Alltoall { input, output } => {
                let from = input.as_ref().map(|input| equal(SpanBuffer::Input, input, ranks)).transpose()?;
                Self::alltoall(comm, call, from, equal(SpanBuffer::Output, output, ranks)?)
            }
            C::Alltoallw { input, output } => {
                let from =
                    input.as_ref().map(|input| separate(SpanBuffer::Input, input, ranks)).transpose()?;
                Self::alltoall(comm, call, from, separate(SpanBuffer::Output, output, ranks)?)
            }
            C::Reduce { input, output, op, root } => Self::reduce(comm, call, (input, output, op), *root),
            C::Allreduce { input, output, op } => {
                Self::vector(comm, call, CollKind::Allreduce, (input, output, op))
            }
            C::Scan { input, output, op } => Self::vector(comm, call, CollKind::Scan, (input, output, op)),
            C::Exscan { input, output, op } => {
                Self::vector(comm, call, CollKind::Exscan, (input, output, op))
            }
            C::ReduceScatter { input, output, counts, op } => {
                Self::reduce_scatter(comm, call, (input, output, op), counts)
            }
            C::NeighborAllgather { input, output } => Self::among_neighbours(
                comm,
                |out| Ok(BlockBuffers::repeated(input, out)),
                |n| equal(SpanBuffer::Output, output, n),
            ),
            C::NeighborAllgatherv { input, output } => Self::among_neighbours(
                comm,
                |out| Ok(BlockBuffers::repeated(input, out)),
                |n| separate(SpanBuffer::Output, output, n),
            ),
            C::NeighborAlltoall { input, output } => Self::among_neighbours(
                comm,
                |n| equal(SpanBuffer::Input, input, n),
                |n| equal(SpanBuffer::Output, output, n),
            ),
            C::NeighborAlltoallw { input, output } => Self::among_neighbours(
                comm,
                |n| separate(SpanBuffer::Input, input, n),
                |n| separate(SpanBuffer::Output, output, n),
            ),
        }
    }

    fn from_blocks(kind: CollKind, input: BlockBuffers, output: BlockBuffers, bytes: u64) -> Self {
        let equal_blocks = input.blocks.have_equal_sizes() && output.blocks.have_equal_sizes();
        let call_buffers = CallBuffers::new(input.buffers, output.buffers);
        let (input, output) = (input.blocks, output.blocks);
        Self {
            kind: Participants::All(kind),
            root: Root::Rank(0),
            input,
            output,
            call_buffers,
            op: None,
            equal_blocks,
            bytes,
        }
    }

    fn bcast(comm: &Comm, buffer: &Buffer, root: i32) -> Result<Self> {
        let role = RootRole::new(comm, root)?;
        let takes_part = role.is_root || role.is_member;
        let data =
            if takes_part { BlockBuffers::single(SpanBuffer::Output, buffer) } else { BlockBuffers::none() };
        Ok(Self {
            root: role.root,
            ..Self::from_blocks(CollKind::Bcast, BlockBuffers::none(), data, buffer.len())
        })
    }

    /// With `equal_blocks`, all blocks have one size, which all members know.
    fn gather(
        comm: &Comm,
        call: &Collective,
        (input, root): (&Option<Buffer>, i32),
        equal_blocks: bool,
        output: impl FnOnce() -> Result<BlockBuffers>,
    ) -> Result<Self> {
        let role = RootRole::new(comm, root)?;
        let into = if role.is_root { output()? } else { BlockBuffers::none() };
        let from = match input {
            Some(input) if role.is_member => BlockBuffers::single(SpanBuffer::Input, input),
            None if role.is_root && role.is_member => into.block_in_place(comm.rank()),
            None if role.is_member => return Err(not_in_place(call)),
            _ => BlockBuffers::none(),
        };
        let bytes = if !equal_blocks {
            0
        } else if role.is_root {
            into.blocks.block(0).bytes
        } else {
            from.bytes()
        };
        Ok(Self { root: role.root, equal_blocks, ..Self::from_blocks(CollKind::Gather, from, into, bytes) })
    }

    /// With `equal_blocks`, all blocks have one size, which all members know.
    fn scatter(
        comm: &Comm,
        call: &Collective,
        (output, root): (&Option<Buffer>, i32),
        equal_blocks: bool,
        input: impl FnOnce() -> Result<BlockBuffers>,
    ) -> Result<Self> {
        let role = RootRole::new(comm, root)?;
        let from = if role.is_root { input()? } else { BlockBuffers::none() };
        let into = match output {
            Some(output) if role.is_member => BlockBuffers::single(SpanBuffer::Output, output),
            None if role.is_root && role.is_member => from.block_in_place(comm.rank()),
            None if role.is_member => return Err(not_in_place(call)),
            _ => BlockBuffers::none(),
        };
        let bytes = if !equal_blocks {
            0
        } else if role.is_root {
            from.blocks.block(0).bytes
        } else {
            into.bytes()
        };
        Ok(Self { root: role.root, equal_blocks, ..Self::from_blocks(CollKind::Scatter, from, into, bytes) })
    }

    fn allgather(comm: &Comm, call: &Collective, input: &Option<Buffer>, into: BlockBuffers) -> Result<Self> {
        let from = match input {
            Some(input) => BlockBuffers::single(SpanBuffer::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => into.block_in_place(comm.rank()),
        };
        let bytes = into.bytes() / into.blocks.count().max(1) as u64;
        Ok(Self::from_blocks(CollKind::Allgather, from, into, bytes))
    }

    fn alltoall(
        comm: &Comm,
        call: &Collective,
        input: Option<BlockBuffers>,
        into: BlockBuffers,
    ) -> Result<Self> {
        let from = match input {
            Some(input) => input,
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => BlockBuffers { blocks: into.blocks.clone(), buffers: Vec::new() },
        };
        // Only the two ranks that exchange a block of variable size know its size.
        let bytes = if into.blocks.have_equal_sizes() { into.blocks.block(0).bytes } else { 0 };
        Ok(Self::from_blocks(CollKind::Alltoall, from, into, bytes))
    }

    fn reduce(
        comm: &Comm,
        call: &Collective,
        (input, output, op): (&Option<Buffer>, &Buffer, &Op),
        root: i32,
    ) -> Result<Self> {
        let role = RootRole::new(comm, root)?;
        let into = if role.is_root {
            BlockBuffers::single(SpanBuffer::Output, output)
        } else {
            BlockBuffers::none()
        };
        let from = match input {
            Some(input) if role.is_member => BlockBuffers::single(SpanBuffer::Input, input),
            None if role.is_root && role.is_member => into.block_in_place(0),
            None if role.is_member => return Err(not_in_place(call)),
            _ => BlockBuffers::none(),
        };
        let significant = if role.is_root { Some(output) } else { input.as_ref().filter(|_| role.is_member) };
        if let Some(buffer) = significant {
            buffer.check_reduced_by(op)?;
        }
        let bytes = if role.is_root { into.bytes() } else { from.bytes() };
        let op = Some(op.clone());
        Ok(Self { root: role.root, op, ..Self::from_blocks(CollKind::Reduce, from, into, bytes) })
    }

    /// A reduction of one vector to another.
    fn vector(
        comm: &Comm,
        call: &Collective,
        kind: CollKind,
        (input, output, op): (&Option<Buffer>, &Buffer, &Op),
    ) -> Result<Self> {
        output.check_reduced_by(op)?;
        let into = BlockBuffers::single(SpanBuffer::Output, output);
        let from = match input {
            Some(input) => BlockBuffers::single(SpanBuffer::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => into.block_in_place(0),
        };
        Ok(Self { op: Some(op.clone()), ..Self::from_blocks(kind, from, into, output.len()) })
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
        let (span_buffer, vector) = match input {
            Some(input) => (SpanBuffer::Input, input),
            None if comm.is_inter() => return Err(not_in_place(call)),
            None => (SpanBuffer::Output, output),
        };
        if vector.count() != total || output.count() < mine {
            return Err(wrong("the buffers' counts are not those of the blocks"));
        }
        let whole = span(span_buffer, 0, vector, total);
        let blocks = if counts.iter().all(|count| *count == mine) {
            Blocks::Equal { first: span(span_buffer, 0, vector, mine), count: counts.len() }
        } else {
            Blocks::Split { whole, cuts: cuts.into() }
        };
        let from = BlockBuffers { blocks, buffers: input.iter().cloned().collect() };
        let into = BlockBuffers {
            blocks: Blocks::single(span(SpanBuffer::Output, 0, output, mine)),
            buffers: vec![output.clone()],
        };
        Ok(Self {
            op: Some(op.clone()),
            ..Self::from_blocks(CollKind::ReduceScatter, from, into, whole.bytes)
        })
    }

    fn among_neighbours(
        comm: &Comm,
        input: impl FnOnce(usize) -> Result<BlockBuffers>,
        output: impl FnOnce(usize) -> Result<BlockBuffers>,
    ) -> Result<Self> {
        let none =
            || Error::new(Class::TOPOLOGY, "the communicator has no topology, so no rank has neighbours");
        let neighbours = comm.topology().ok_or_else(none)?.neighbours(comm.rank());
        let (from, into) = (input(neighbours.destinations.len())?, output(neighbours.sources.len())?);
        Ok(Self {
            kind: Participants::Neighbours(neighbours),
            ..Self::from_blocks(CollKind::Alltoall, from, into, 0)
        })
    }
}

fn not_in_place(call: &Collective) -> Error {
    Error::new(Class::BUFFER, format_args!("MPI_IN_PLACE has no meaning here in {}", call.name()))
}
