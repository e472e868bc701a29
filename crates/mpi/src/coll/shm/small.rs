//! Short operations on contiguous elements. Each does what [`ShmColl::run`] does, with the same slots and layout, so that
//! members may mix both paths; this one skips the general argument processing.

use collectives::CollKind;
use datatypes::{Basic, BasicKind, Operator};

use crate::coll::shm::slots::BCOPY_MAX;
use crate::coll::shm::state::ShmColl;
use crate::error::Result;
use crate::memory::Piece;

/// Longest vector that is reduced this way, in bytes.
const REDUCED_MAX: usize = 64;

/// A collective operation on contiguous bytes, as one process calls it. `None` is `MPI_IN_PLACE`.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "as the fields of `Collective`")]
pub enum SmallCollective {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast { piece: Piece, root: i32 },
    /// `MPI_Allgather`. `input` is one block, `output` holds all blocks.
    Allgather { input: Piece, output: Piece },
    /// `MPI_Alltoall`. Both hold all blocks.
    Alltoall { input: Piece, output: Piece },
    /// `MPI_Allreduce`.
    Allreduce { input: Option<Piece>, output: Piece, basic: Basic, operator: Operator },
}

impl SmallCollective {
    #[inline]
    pub(super) fn kind(&self) -> CollKind {
        match self {
            Self::Barrier => CollKind::Barrier,
            Self::Bcast { .. } => CollKind::Bcast,
            Self::Allgather { .. } => CollKind::Allgather,
            Self::Alltoall { .. } => CollKind::Alltoall,
            Self::Allreduce { .. } => CollKind::Allreduce,
        }
    }

    /// Whether the arguments are valid and short.
    #[inline]
    pub(super) fn is_possible(&self, shm: &ShmColl) -> bool {
        let members = shm.processes.len();
        match self {
            Self::Barrier => true,
            Self::Bcast { piece, root } => {
                usize::try_from(*root).is_ok_and(|root| root < members) && piece.len() <= BCOPY_MAX
            }
            Self::Allgather { input, output } => {
                input.len() <= BCOPY_MAX && output.len() == input.len() * members && !input.overlaps(*output)
            }
            Self::Alltoall { input, output } => {
                let is_even = input.len().is_multiple_of(members);
                is_even && input.len() <= BCOPY_MAX && output.len() == input.len() && !input.overlaps(*output)
            }
            Self::Allreduce { input, output, basic, operator } => {
                let is_apart =
                    input.is_none_or(|input| input.len() == output.len() && !input.overlaps(*output));
                let is_legal = basic.kind() != BasicKind::Pair && basic.is_reduced_by(*operator);
                is_apart && is_legal && output.len() <= REDUCED_MAX
            }
        }
    }
}

impl ShmColl {
    /// Carries out a call that [is possible](SmallCollective::is_possible).
    ///
    /// # Errors
    /// As [`ShmColl::run`].
    pub(super) fn run_small(&mut self, call: &SmallCollective) -> Result<()> {
        self.begin();
        let (done, name) = match *call {
            SmallCollective::Barrier => (self.barrier("MPI_Barrier"), "MPI_Barrier"),
            SmallCollective::Bcast { piece, root } => (self.bcast_small(piece, root as usize), "MPI_Bcast"),
            SmallCollective::Allgather { input, output } => {
                (self.allgather_small(input, output), "MPI_Allgather")
            }
            SmallCollective::Alltoall { input, output } => {
                (self.alltoall_small(input, output), "MPI_Alltoall")
            }
            SmallCollective::Allreduce { input, output, basic, operator } => {
                (self.allreduce_small(input.unwrap_or(output), output, (basic, operator)), "MPI_Allreduce")
            }
        };
        self.finish(done, name)
    }

    fn bcast_small(&mut self, piece: Piece, root: usize) -> Result<()> {
        if root == self.me {
            return self.publish_piece(piece, "MPI_Bcast");
        }
        self.read_piece(root, (0, piece.len()), piece, "MPI_Bcast")
    }

    fn allgather_small(&mut self, input: Piece, output: Piece) -> Result<()> {
        let len = input.len();
        self.publish_piece(input, "MPI_Allgather")?;
        output.part(self.me * len, len).copy_data_from(input);
        self.others().try_for_each(|member| {
            self.read_piece(member, (0, len), output.part(member * len, len), "MPI_Allgather")
        })
    }

    fn alltoall_small(&mut self, input: Piece, output: Piece) -> Result<()> {
        let (all, len) = (input.len(), input.len() / self.processes.len());
        let mine = self.me * len;
        self.publish_piece(input, "MPI_Alltoall")?;
        output.part(mine, len).copy_data_from(input.part(mine, len));
        self.others().try_for_each(|member| {
            self.read_piece(member, (mine, all), output.part(member * len, len), "MPI_Alltoall")
        })
    }

    /// Reduces from the last rank to the first, as the general path does, so that the bits are the same.
    fn allreduce_small(
        &mut self,
        input: Piece,
        output: Piece,
        (basic, operator): (Basic, Operator),
    ) -> Result<()> {
        let len = output.len();
        self.publish_piece(input, "MPI_Allreduce")?;
        let (mut sum, mut operand) = ([0; REDUCED_MAX], [0; REDUCED_MAX]);
        for member in (0..self.processes.len()).rev() {
            let is_first = member + 1 == self.processes.len();
            let into = if is_first { &mut sum } else { &mut operand };
            if member == self.me {
                input.load(into);
            } else {
                self.read_bytes(member, &mut into[..len], "MPI_Allreduce")?;
            }
            if !is_first {
                basic.reduce(operator, &operand[..len], &mut sum[..len]);
            }
        }
        output.store(&sum[..len]);
        Ok(())
    }
}
