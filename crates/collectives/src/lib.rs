//! Collective algorithms as schedules: for one rank, rounds of steps that send, receive, reduce and copy.
//!
//! There is no I/O here, no memory and no datatype: a schedule names spans of buffers, and its executor moves the bytes. An
//! algorithm can therefore be tested without a network, and serves blocking, nonblocking and persistent calls.
//!
//! | module | contents |
//! |---|---|
//! | [`Task`] | a rank's call: its rank, and the spans of its blocks |
//! | [`Schedule`] | a rank's actions: rounds of [`Step`]s on [`Span`]s |
//! | [`Algorithm`] | one file each, with its cost; [`choose()`] selects the cheapest and [`explain`] gives the reason |
//! | [`table`](fn@table) | the choice for all collectives and sizes, as text |
//! | [`plan_inter`] | the collectives of an intercommunicator |
//! | [`plan_neighbours`] | neighbour collectives |
//!
//! # Common rules
//!
//! - Messages between two ranks match in the order of their steps; a receive takes exactly the bytes that were sent. Empty messages
//!   are sent only for barriers.
//! - A span is elements of one of the call's datatypes, plain bytes, or a window of the packed form of either. Data that are only
//!   moved are divided by bytes, so that ranks with different types divide them alike; data to reduce are divided between elements.
//! - `MPI_IN_PLACE` is an input whose spans are in the output. It changes the assignment of buffers, not the algorithm.
//! - The order of reductions depends only on the number of ranks, their hosts, the root and the algorithm: the same call with the
//!   same costs gives the same bits. An operator that is not commutative gets its operands in rank order. All ranks of an allreduce get the
//!   same bits.
//! - All ranks must choose alike: they use the same costs and, where sizes differ between ranks, no size.

#![forbid(unsafe_code)]

mod accumulator;
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
mod hosts;
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

pub use choose::{Algorithm, AlgorithmError, Choice, choose, explain};
pub use cost::{Case, Cost, Costs, SharedCores};
pub use inter::plan as plan_inter;
pub use neighbour::{Neighbours, plan as plan_neighbours};
pub use schedule::{ElementType, Operands, Peer, Schedule, Scratch, Span, SpanBuffer, Step};
pub use table::{SizeRange, size_ranges, table};
pub use task::{Blocks, CollKind, Root, Task};
