//! MPI over the device API: processes, point-to-point communication, communicators.
//!
//! A [`Process`] owns all state of one process of a job: there are no statics, nothing reads the environment, and all waits go
//! through its [`host::Host`], so that the same code runs on real devices and, with thousands of processes in one program, on
//! modelled cards in virtual time. A [`Bootstrap`] describes the other processes. Numbers of ranks, tags and error classes are
//! those of the standard ABI; handles, C pointers and calls of error handlers are left to the interface above.
//!
//! | module | purpose |
//! |---|---|
//! | `process` | [`Process`]: start and end |
//! | `comm` | [`Comm`], and the creation of communicators |
//! | `p2p` | messages between two processes |
//! | `req` | [`Request`] |
//! | `coll` | collective operations |
//! | `rma` | [`Window`]: one-sided communication |
//! | `io` | [`File`]: files that processes open together |
//! | `topo` | topologies |
//! | `dpm` | intercommunicators with other jobs |
//! | `tool` | counters, limits and profiles of a process |
//! | `info`, `attribute`, `errhandler`, `status`, `error` | MPI's smaller objects |
//! | `bootstrap` | [`Bootstrap`], and [`LocalKvs`] for ranks of one program |
//! | `core` | the state behind its lock, and how threads wait |
//! | `peers` | connections to other processes |
//! | `memory` | the program's memory: the only file that copies from it and into it |

mod attribute;
mod bootstrap;
mod coll;
mod comm;
mod core;
mod dpm;
mod errhandler;
mod error;
mod info;
mod io;
mod memory;
mod p2p;
mod peers;
mod process;
mod req;
mod rma;
mod status;
mod tool;
mod topo;

pub use attribute::{Attributes, CopyFn, DeleteFn, Keyval};
pub use bootstrap::{Bootstrap, LocalBootstrap, LocalKvs};
pub use coll::collective::Collective;
pub use coll::shm::{SmallCollective, shared_bytes};
pub use coll::tuning::Tuning;
pub use collectives::{CollKind, Costs};
pub use comm::communicator::{Comm, NAME_MAX};
pub use comm::create::SplitType;
pub use comm::group::{Comparison, Group};
pub use dpm::connect::Bridge;
pub use errhandler::Errhandler;
pub use error::{Class, Error, Result};
pub use info::{Info, KEY_MAX, VALUE_MAX};
pub use io::{Conversion, File, FileMode, Position, Representation, View, Whence};
pub use memory::{ADDRESS_MIN, Buffer, Piece};
pub use p2p::bsend::Session;
pub use p2p::bsend_space::{BSEND_OVERHEAD, BsendSpace};
pub use p2p::calls::{Message, PeerTag};
pub use p2p::engine::Mode;
pub use p2p::proto::{Cost, Proto, Protocol, cost, protocols};
pub use peers::nic::Port;
pub use peers::trust::PROTOCOL;
pub use portals::Matcher;
pub use process::{Config, Connect, MatchEngine, Process};
pub use req::request::{Request, RequestHandle, RequestId, Requests, TestAny};
pub use req::special::Generalized;
pub use rma::one_sided::OneSided;
pub use rma::{Assert, Flavor, IntegerOp, LockKind, SharedPart, TargetRange, Window};
pub use status::{ANY_SOURCE, ANY_TAG, CompletedRequest, PROC_NULL, ROOT, Status, TAG_MAX, UNDEFINED};
pub use tool::{Gauge, Limits, MessageTotals, ToolEvent, ToolEvents, Traffic};
pub use topo::topology::{DistGraph, Graph, Grid, Topology, fill_dims};
