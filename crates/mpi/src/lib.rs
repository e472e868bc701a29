//! MPI over the device API, with the rules of MPI 5.0: messages, collectives, windows, files and dynamic processes.
//!
//! A [`Process`] owns all state of one process of a job: there are no statics, nothing reads the environment, and all waits go
//! through its [`host::Host`], so that the same code runs on real devices and, with thousands of processes in one program, on
//! modelled cards in virtual time. A [`Bootstrap`] describes the other processes. Numbers of ranks, tags and error classes are
//! those of the standard ABI; handles, C pointers and calls of error handlers are left to the interface above, `abi-mpi`.
//!
//! | part | for |
//! |---|---|
//! | [`Process`], [`Config`] | the start and the end of a process, and the devices that it uses |
//! | [`Bootstrap`], [`LocalKvs`] | the other processes of the job: the launcher's, or ranks of one program |
//! | [`Comm`], [`Group`] | communicators and groups; their calls send, receive, probe and create others |
//! | [`Request`], [`Requests`], [`Status`] | operations in progress, and how they ended |
//! | [`Buffer`] | elements of a datatype in the program's memory |
//! | [`Collective`] | collective operations, with their arguments |
//! | [`Window`] | memory that other processes read and change |
//! | [`File`], [`View`] | files that processes open together |
//! | [`Topology`] | grids and graphs of processes |
//! | [`Bridge`] | connections with processes of another job |
//! | [`Protocol`], [`protocols`] | which protocol carries a message of which size, as `nicety explain mpi` prints it |
//! | [`Gauge`], [`Limits`], [`ToolEvent`] | measurements, settings and events for tools |
//! | [`LongWaits`] | which calls wait for long, for a launcher |
//!
//! A message takes this way: `Comm` checks the arguments, the engine chooses the protocol and matches messages with receives, and
//! a connection of [`transport`] carries the bytes. With [`MatchEngine::Portals`] the crate [`portals`] does the last two.
//!
//! # Example
//!
//! Two ranks of one program exchange a word, and add up their ranks.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::sync::Arc;
//! use datatypes::{Basic, Datatype, Operator};
//! use mpi::{Buffer, Collective, Config, LocalKvs, PeerTag, Port, Process, Result};
//! use verbs::{Buf, host};
//!
//! fn run(host: &host::Host, kvs: &Arc<LocalKvs>, rank: u32) -> Result<()> {
//!     let device = fabric::open("shm", host)?;
//!     let ports = vec![Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: "shm".into() }];
//!     let config = Config { ports, node: "here".into(), ..Config::default() };
//!     let process = Process::start(host, &config, kvs.bootstrap(rank, host))?;
//!     let (world, other) = (process.world(), 1 - rank);
//!
//!     let memory = Buf::alloc(16)?;
//!     let word = |at| Buffer::of(&memory, at, 1, &Datatype::from(Basic::Uint64));
//!     memory.write(0, &u64::from(rank).to_ne_bytes())?;
//!     let other_rank = PeerTag { rank: other as i32, tag: 1 };
//!     world.sendrecv(&word(0)?, other_rank, word(8)?, other_rank)?;
//!     assert_eq!(memory.to_vec(8..16)?, u64::from(other).to_ne_bytes());
//!
//!     // Without an input, as with MPI_IN_PLACE, the output holds this rank's operand.
//!     let sum = Collective::Allreduce { input: None, output: word(0)?, op: Operator::Sum.into() };
//!     world.collective(&sum)?;
//!     assert_eq!(memory.to_vec(0..8)?, 1_u64.to_ne_bytes());
//!     process.finalize()
//! }
//!
//! # fn main() -> Result<()> {
//! let (host, kvs) = (host::real::host(), LocalKvs::new(2));
//! let ranks = [0, 1].map(|rank| {
//!     let (host, kvs) = (host.clone(), kvs.clone());
//!     std::thread::spawn(move || run(&host, &kvs, rank))
//! });
//! for rank in ranks {
//!     rank.join().expect("a rank that does not panic")?;
//! }
//! # Ok(())
//! # }
//! ```

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

pub use self::core::{LongWaitNotes, LongWaits};
pub use attribute::{Attributes, CopyFn, DeleteFn, Keyval};
pub use bootstrap::{Bootstrap, LocalBootstrap, LocalKvs};
pub use coll::collective::Collective;
pub use coll::shm::{SmallCollective, shared_bytes};
pub use coll::tuning::Tuning;
pub use collectives::{CollKind, Costs, SharedCores};
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
