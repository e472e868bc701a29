//! [`Task`]: one rank's call of a collective, with its rank and data.

use crate::schedule::Span;
use std::sync::Arc;

/// A collective operation; the forms with counts, displacements or types for each rank are the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CollKind {
    /// No rank leaves before all have entered.
    Barrier,
    /// `output`, one block, from the root to all ranks.
    Bcast,
    /// One block of each rank to the root.
    Gather,
    /// One of the root's blocks to each rank.
    Scatter,
    /// One block of each rank to all ranks.
    Allgather,
    /// Block `i` of rank `j` to block `j` of rank `i`.
    Alltoall,
    /// Vectors reduced to the root.
    Reduce,
    /// Vectors reduced to all ranks.
    Allreduce,
    /// Vectors reduced, and block `i` sent to rank `i`; also with blocks of one length.
    ReduceScatter,
    /// The vectors of this rank and all before it, reduced.
    Scan,
    /// The vectors of all ranks before this one, reduced; rank 0's output is unchanged.
    Exscan,
}

impl CollKind {
    /// The lower-case name of MPI's function, without `MPI_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// Whether it reduces vectors, so that the operator's commutativity matters.
    pub fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter | Self::Scan | Self::Exscan)
    }

    /// Whether each rank has a block, so that equal block sizes matter.
    pub fn has_blocks(self) -> bool {
        matches!(self, Self::Gather | Self::Scatter | Self::Allgather | Self::Alltoall)
    }

    /// All kinds of collectives.
    pub const ALL: [Self; 11] = [
        Self::Barrier,
        Self::Bcast,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];
}

/// The root as one process specifies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// A rank of the local group or, for the group without the root in an intercommunicator, of the remote group.
    Rank(usize),
    /// This process, in the root's group of an intercommunicator: `MPI_ROOT`.
    Me,
    /// Another process of this group; this one does not take part: `MPI_PROC_NULL`.
    Other,
}

/// A list of blocks in a buffer.
#[derive(Clone, Debug)]
pub enum Blocks {
    /// Consecutive blocks with the same number of elements.
    Equal {
        /// The first block.
        first: Span,
        /// Number of blocks.
        count: usize,
    },
    /// A vector divided into blocks at the same elements on every rank.
    Split {
        /// The whole vector.
        whole: Span,
        /// The start of each block, and finally the end of the last one, in elements.
        cuts: Arc<[i64]>,
    },
    /// At any addresses.
    Separate(Arc<[Span]>),
}

impl Blocks {
    /// A single block.
    pub fn single(span: Span) -> Self {
        Self::Equal { first: span, count: 1 }
    }

    /// No block, for a rank that sends or receives nothing.
    pub fn none() -> Self {
        Self::single(Span::EMPTY)
    }

    /// The block of a rank.
    pub fn block(&self, rank: usize) -> Span {
        match self {
            Self::Equal { first, .. } => {
                first.elements(first.count * rank as i64, first.count * (rank as i64 + 1))
            }
            Self::Split { whole, cuts } => whole.elements(cuts[rank], cuts[rank + 1]),
            Self::Separate(spans) => spans[rank],
        }
    }

    /// The blocks of the ranks `first..end`, in the same number of spans on every rank: one, or one for each block.
    pub fn range(&self, first: usize, end: usize) -> Vec<Span> {
        match self {
            Self::Equal { first: span, .. } => {
                vec![span.elements(span.count * first as i64, span.count * end as i64)]
            }
            Self::Split { whole, cuts } => vec![whole.elements(cuts[first], cuts[end])],
            Self::Separate(spans) => spans[first..end].to_vec(),
        }
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        match self {
            Self::Equal { count, .. } => *count,
            Self::Split { cuts, .. } => cuts.len() - 1,
            Self::Separate(spans) => spans.len(),
        }
    }

    /// Whether all blocks are known to have the same size on every rank.
    pub fn have_equal_sizes(&self) -> bool {
        matches!(self, Self::Equal { .. })
    }
}

/// A collective as one rank sees it. Lists of blocks are indexed by rank, of the other group for an intercommunicator.
///
/// With `MPI_IN_PLACE` the input consists of spans of [`SpanBuffer::Output`](crate::SpanBuffer::Output).
#[derive(Clone, Debug)]
pub struct Task {
    /// This rank in its group.
    pub rank: usize,
    /// Number of ranks in its group.
    pub size: usize,
    /// Number of ranks in the other group of an intercommunicator; 0 without one.
    pub remote_size: usize,
    /// The root, for collectives that have one.
    pub root: Root,
    /// The data that this rank sends.
    pub input: Blocks,
    /// The data that it receives.
    pub output: Blocks,
    /// Whether operands may be swapped; the same on all ranks.
    pub commutative: bool,
    /// Segment size of a pipeline, in bytes; the same on all ranks.
    pub segment: u64,
    /// The host of each rank, as numbers from 0 on; empty if all are on one host, or that is not known. The same on all ranks.
    pub hosts: Arc<[usize]>,
}

impl Task {
    /// The root's rank in the local group.
    pub(crate) fn root_rank(&self) -> usize {
        match self.root {
            Root::Rank(rank) => rank,
            Root::Me | Root::Other => self.rank,
        }
    }

    /// All other ranks, starting with the next one: no two ranks start with the same one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// This rank's distance from the root, modulo the number of ranks.
    pub(crate) fn relative_rank(&self) -> usize {
        (self.rank + self.size - self.root_rank()) % self.size
    }

    /// The rank at a distance from the root.
    pub(crate) fn rank_of(&self, relative_rank: usize) -> usize {
        (self.root_rank() + relative_rank) % self.size
    }
}
