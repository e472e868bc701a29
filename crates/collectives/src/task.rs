//! What a rank is asked to do: who it is, and where its data is.

use crate::schedule::Span;
use std::sync::Arc;

/// A collective operation; the forms with counts, displacements or types for each rank are the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Nobody leaves before all have come.
    Barrier,
    /// `output`, one block, from the root to all.
    Bcast,
    /// One block of each rank to the root's blocks.
    Gather,
    /// The root's blocks to one block of each rank.
    Scatter,
    /// One block of each rank to the blocks of all.
    Allgather,
    /// Block `i` of rank `j` to block `j` of rank `i`.
    Alltoall,
    /// Vectors reduced to the root's.
    Reduce,
    /// Vectors reduced to those of all.
    Allreduce,
    /// Vectors reduced, and block `i` to rank `i`; also with blocks of one length.
    ReduceScatter,
    /// The vectors of this rank and all before it.
    Scan,
    /// The vectors of all before this rank; rank 0's output stays as it is.
    Exscan,
}

impl Kind {
    /// As MPI's function has it, behind `MPI_`, in small letters.
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

    /// Whether it reduces vectors, so that it matters whether an operator is commutative.
    pub fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter | Self::Scan | Self::Exscan)
    }

    /// Whether each rank has a block, so that it matters whether those are of one size.
    pub fn has_blocks(self) -> bool {
        matches!(self, Self::Gather | Self::Scatter | Self::Allgather | Self::Alltoall)
    }

    /// All of them.
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

/// Which rank is the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// This one: of the own group, or, seen from an intercommunicator's other group, of the other one.
    Rank(usize),
    /// This process, in the root's group of an intercommunicator: `MPI_ROOT`.
    Me,
    /// Another of this group, which takes no part: `MPI_PROC_NULL`.
    Other,
}

/// A list of blocks in a buffer.
#[derive(Clone, Debug)]
pub enum Blocks {
    /// As many elements each, one block behind the other.
    Even {
        /// The first one.
        first: Span,
        /// How many there are.
        count: usize,
    },
    /// A vector cut into blocks at the same elements on every rank.
    Cut {
        /// All of it.
        whole: Span,
        /// Where each block begins, and behind them where the last one ends, in elements.
        cuts: Arc<[i64]>,
    },
    /// Anywhere.
    Anywhere(Arc<[Span]>),
}

impl Blocks {
    /// A single block.
    pub fn one(span: Span) -> Self {
        Self::Even { first: span, count: 1 }
    }

    /// No block: of a rank from which or to which nothing goes.
    pub fn none() -> Self {
        Self::one(Span::EMPTY)
    }

    /// The block of a rank.
    pub fn of(&self, rank: usize) -> Span {
        match self {
            Self::Even { first, .. } => {
                first.elements(first.count * rank as i64, first.count * (rank as i64 + 1))
            }
            Self::Cut { whole, cuts } => whole.elements(cuts[rank], cuts[rank + 1]),
            Self::Anywhere(spans) => spans[rank],
        }
    }

    /// The blocks of ranks from `first` to before `end`, in as few spans as every rank has: one, or one for each block.
    pub fn range(&self, first: usize, end: usize) -> Vec<Span> {
        match self {
            Self::Even { first: span, .. } => {
                vec![span.elements(span.count * first as i64, span.count * end as i64)]
            }
            Self::Cut { whole, cuts } => vec![whole.elements(cuts[first], cuts[end])],
            Self::Anywhere(spans) => spans[first..end].to_vec(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count,
            Self::Cut { cuts, .. } => cuts.len() - 1,
            Self::Anywhere(spans) => spans.len(),
        }
    }

    /// Whether all are known to have the same size on every rank.
    pub fn is_even(&self) -> bool {
        matches!(self, Self::Even { .. })
    }
}

/// A collective as one rank sees it. Lists of blocks go by rank, those of the other group with an intercommunicator.
///
/// `MPI_IN_PLACE` is an input that is spans of [`Buffer::Output`](crate::Buffer::Output).
#[derive(Clone, Debug)]
pub struct Task {
    /// This rank in its group.
    pub rank: usize,
    /// Ranks in its group.
    pub size: usize,
    /// Ranks in the other group of an intercommunicator; 0 without one.
    pub remote: usize,
    /// The root, of those collectives that have one.
    pub root: Root,
    /// What this rank gives.
    pub input: Blocks,
    /// What it gets.
    pub output: Blocks,
    /// Whether operands may change places; the same on all ranks.
    pub commutative: bool,
    /// Bytes in which a pipeline passes on its data; the same on all ranks.
    pub segment: u64,
}

impl Task {
    /// The root's rank in the own group.
    pub(crate) fn root_rank(&self) -> usize {
        match self.root {
            Root::Rank(rank) => rank,
            Root::Me | Root::Other => self.rank,
        }
    }

    /// All other ranks, from the next one around: no two ranks begin with the same one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// Ranks counted from the root on: the number of this one.
    pub(crate) fn number(&self) -> usize {
        (self.rank + self.size - self.root_rank()) % self.size
    }

    /// The rank that has a number, counted from the root on.
    pub(crate) fn at(&self, number: usize) -> usize {
        (self.root_rank() + number) % self.size
    }
}
