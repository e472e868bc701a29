//! Collective algorithms as schedules: for one rank, rounds of steps that send, receive, reduce and copy.
//!
//! There is no I/O here, no memory and no datatype: a schedule names spans of buffers, and who runs it moves the bytes. So an
//! algorithm is proven without a network, and the same one serves a call that blocks, one that does not, and one that is started
//! over and over.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Task`] | what a rank is asked to do: who it is, where its blocks are |
//! | [`Schedule`] | what it does: rounds of [`Step`]s on [`Span`]s |
//! | [`Algorithm`] | one file each, with its cost; [`choose()`] takes the cheapest and [`explain`] says why |
//! | [`table`](fn@table) | the choice for all collectives and sizes, to be read |
//! | [`plan_inter`] | the collectives of an intercommunicator |
//! | [`plan_neighbours`] | neighbour collectives |
//!
//! # What holds for all
//!
//! - Messages between two ranks match in the order of their steps; a receive takes exactly the bytes that were sent. A message of no
//!   bytes is not sent, but for those of barriers.
//! - A span is elements of one of the call's datatypes, plain bytes, or a window of the packed form of either. What is only moved is
//!   cut by bytes, so that ranks whose types differ cut alike; what is reduced is cut between elements.
//! - `MPI_IN_PLACE` is an input that lies in the output. It is another assignment of buffers and no other algorithm.
//! - The order of reductions depends on the number of ranks, the root and the algorithm alone: the same call with the same costs
//!   gives the same bits. An operator that is not
//!   commutative gets its operands in the order of ranks. Every rank of an allreduce has the same bits.
//! - All ranks must choose alike: by the same costs and, where sizes differ between ranks, by no size.

#![forbid(unsafe_code)]

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod choose;
mod cost;
mod fold;
mod gather;
mod halving;
mod inter;
mod neighbour;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod schedule;
mod shared;
mod table;
mod task;
mod tree;
mod vector;

pub use choose::{Algorithm, Choice, Unfit, choose, explain};
pub use cost::{Case, Cost, Costs};
pub use inter::plan as plan_inter;
pub use neighbour::{Neighbours, plan as plan_neighbours};
pub use schedule::{Buffer, Operands, Peer, Schedule, Scratch, Span, Step, Type};
pub use table::{Stretch, stretches, table};
pub use task::{Blocks, Kind, Root, Task};
