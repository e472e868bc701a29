//! The rows of the paper on MPI over iWARP: for each how it is computed from our MPI on the modelled cards, or why not.
//!
//! | file | contents |
//! |---|---|
//! | `constants` | the machine, the versions, how connections are made |
//! | `messages` | 4.1: Figure 4 |
//! | `sided` | 4.2 and 4.3: Figures 5 and 6 |
//! | `parallel` | 4.4 and 4.5: Figures 7 and 8 |
//! | `figures` | all figures |
//! | `setups` | the measured quantities |
//!
//! Criteria that the paper leaves open, the same for all rows:
//!
//! - A small message has 4 bytes.
//! - A peak is the largest bandwidth from 16 KiB to 1 MiB, with a window of 64 messages.
//! - MPICH2 is our MPI on the machine of sockets, with the costs of MPICH2's library.
//! - Puts and gets are begun and ended as OMB's programs of that time do it: start and complete, post and wait. Both libraries send
//!   them as messages when the epoch is completed; MVAPICH2-1SC only puts up to 2 KiB and gets up to 192 KiB, which are
//!   the defaults of MVAPICH2 0.9 on Xeons of 64 bits, and the others are writes and reads of the card.
//! - Consecutive processes share a node. Processes of MVAPICH2 communicate by their node's memory, processes of
//!   MPICH2 by their kernel's TCP.
//! - Collective operations are called back to back, as IMB does. Kernels are of class A, and computing time is
//!   charged by operation.

mod constants;
pub(crate) mod figures;
mod messages;
mod parallel;
mod setups;
mod sided;

use crate::claims::claim::ClaimTable;
pub(crate) use setups::*;

/// Adds all rows of the paper.
pub(crate) fn table(table: &mut ClaimTable) {
    constants::table(table);
    messages::table(table);
    sided::table(table);
    parallel::table(table);
}
