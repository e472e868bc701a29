//! [`Collective`]: collective operations with their arguments (MPI 5.0, chapter 6).

use datatypes::Op;

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;

/// A collective operation, as one process calls it.
///
/// Where a buffer holds a block for each rank, or for each neighbour, it is one [`Buffer`] with all blocks in sequence: its count
/// is a block's count times the number of blocks. Where blocks have separate addresses, each has its own buffer. `None` is
/// `MPI_IN_PLACE`: the input is read from the output buffer, or for scatters the other way round. Arguments that MPI calls not
/// significant at a process are ignored, and may be [`Buffer::empty`]. In an intercommunicator, blocks are indexed by ranks of
/// the other group, and `root` is [`crate::ROOT`] or [`crate::PROC_NULL`] in the root's group.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields of all variants are described at the enum")]
pub enum Collective {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast { buffer: Buffer, root: i32 },
    /// `MPI_Gather`. `input` is one block, `output` holds all blocks.
    Gather { input: Option<Buffer>, output: Buffer, root: i32 },
    /// `MPI_Gatherv`.
    Gatherv { input: Option<Buffer>, output: Vec<Buffer>, root: i32 },
    /// `MPI_Scatter`. `input` holds all blocks, `output` is one.
    Scatter { input: Buffer, output: Option<Buffer>, root: i32 },
    /// `MPI_Scatterv`.
    Scatterv { input: Vec<Buffer>, output: Option<Buffer>, root: i32 },
    /// `MPI_Allgather`.
    Allgather { input: Option<Buffer>, output: Buffer },
    /// `MPI_Allgatherv`.
    Allgatherv { input: Option<Buffer>, output: Vec<Buffer> },
    /// `MPI_Alltoall`. Both hold all blocks.
    Alltoall { input: Option<Buffer>, output: Buffer },
    /// `MPI_Alltoallv` and `MPI_Alltoallw`.
    Alltoallw { input: Option<Vec<Buffer>>, output: Vec<Buffer> },
    /// `MPI_Reduce`.
    Reduce { input: Option<Buffer>, output: Buffer, op: Op, root: i32 },
    /// `MPI_Allreduce`.
    Allreduce { input: Option<Buffer>, output: Buffer, op: Op },
    /// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`. `counts` are the elements of each block, by ranks of the local group.
    /// In place, `output` holds all blocks, otherwise one.
    ReduceScatter { input: Option<Buffer>, output: Buffer, counts: Vec<i64>, op: Op },
    /// `MPI_Scan`.
    Scan { input: Option<Buffer>, output: Buffer, op: Op },
    /// `MPI_Exscan`.
    Exscan { input: Option<Buffer>, output: Buffer, op: Op },
    /// `MPI_Neighbor_allgather`. `input` is one block, `output` has a block for each source.
    NeighborAllgather { input: Buffer, output: Buffer },
    /// `MPI_Neighbor_allgatherv`.
    NeighborAllgatherv { input: Buffer, output: Vec<Buffer> },
    /// `MPI_Neighbor_alltoall`. `input` has a block for each destination, `output` one for each source.
    NeighborAlltoall { input: Buffer, output: Buffer },
    /// `MPI_Neighbor_alltoallv` and `MPI_Neighbor_alltoallw`.
    NeighborAlltoallw { input: Vec<Buffer>, output: Vec<Buffer> },
}

impl Collective {
    /// The name of the call, for errors and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Barrier => "MPI_Barrier",
            Self::Bcast { .. } => "MPI_Bcast",
            Self::Gather { .. } => "MPI_Gather",
            Self::Gatherv { .. } => "MPI_Gatherv",
            Self::Scatter { .. } => "MPI_Scatter",
            Self::Scatterv { .. } => "MPI_Scatterv",
            Self::Allgather { .. } => "MPI_Allgather",
            Self::Allgatherv { .. } => "MPI_Allgatherv",
            Self::Alltoall { .. } => "MPI_Alltoall",
            Self::Alltoallw { .. } => "MPI_Alltoallw",
            Self::Reduce { .. } => "MPI_Reduce",
            Self::Allreduce { .. } => "MPI_Allreduce",
            Self::ReduceScatter { .. } => "MPI_Reduce_scatter",
            Self::Scan { .. } => "MPI_Scan",
            Self::Exscan { .. } => "MPI_Exscan",
            Self::NeighborAllgather { .. } => "MPI_Neighbor_allgather",
            Self::NeighborAllgatherv { .. } => "MPI_Neighbor_allgatherv",
            Self::NeighborAlltoall { .. } => "MPI_Neighbor_alltoall",
            Self::NeighborAlltoallw { .. } => "MPI_Neighbor_alltoallw",
        }
    }

    /// Checks that no send block overlaps a receive block, as MPI requires. Of vectors, only blocks with the same index are
    /// compared.
    ///
    /// # Errors
    /// [`Class::BUFFER`] if two overlap.
    #[inline]
    pub fn check_apart(&self) -> Result<()> {
        let shares = match self {
            Self::Barrier | Self::Bcast { .. } => false,
            Self::Gather { input: Some(input), output, .. }
            | Self::Scatter { input, output: Some(output), .. }
            | Self::Allgather { input: Some(input), output }
            | Self::Alltoall { input: Some(input), output }
            | Self::Reduce { input: Some(input), output, .. }
            | Self::Allreduce { input: Some(input), output, .. }
            | Self::ReduceScatter { input: Some(input), output, .. }
            | Self::Scan { input: Some(input), output, .. }
            | Self::Exscan { input: Some(input), output, .. }
            | Self::NeighborAllgather { input, output }
            | Self::NeighborAlltoall { input, output } => input.overlaps(output),
            Self::Gatherv { input: Some(one), output: all, .. }
            | Self::Allgatherv { input: Some(one), output: all }
            | Self::NeighborAllgatherv { input: one, output: all }
            | Self::Scatterv { input: all, output: Some(one), .. } => {
                all.iter().any(|block| one.overlaps(block))
            }
            Self::Alltoallw { input: Some(input), output } | Self::NeighborAlltoallw { input, output } => {
                input.iter().zip(output).any(|(input, output)| input.overlaps(output))
            }
            _ => false, // in place
        };
        if shares { Err(shared_memory()) } else { Ok(()) }
    }
}

#[cold]
fn shared_memory() -> Error {
    Error::new(
        Class::BUFFER,
        "sendbuf and recvbuf have bytes in common; MPI_IN_PLACE is for that, where there is it",
    )
}
