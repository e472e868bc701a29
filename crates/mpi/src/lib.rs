//! MPI over the device API: processes, point-to-point communication, communicators.
//!
//! A [`Process`] owns all state of one process of a job: there are no statics, nothing reads the environment, and all waits are
//! those of its [`host::Host`], so that the same code runs on real devices and, thousands of processes in one, on modelled cards in
//! virtual time. Who the others are it learns from a [`Bootstrap`]. Numbers of ranks, tags and error classes are those of the
//! standard ABI; handles, C pointers and calls of error handlers are the business of a face above.
//!
//! | file | what it holds |
//! |---|---|
//! | `process` | [`Process`]: start and end |
//! | `comm`, `point`, `request` | [`Comm`]; what it does between two processes; [`Request`] |
//! | `making`, `duplicate` | how communicators are made of others; without waiting |
//! | `joining`, `strangers`, `members` | intercommunicators with other jobs, by a [`Bridge`]; processes of other jobs; groups as bytes |
//! | `special`, `partitioned` | requests that are more than an operation; messages in parts |
//! | `topology`, `arranged`, `placement` | who is whose neighbour; communicators that know it; who takes which place |
//! | `collective`, `call` | [`Collective`]: collective operations, and what is wrong with their arguments |
//! | `places`, `run`, `tuning` | schedules with memory in the place of spans; carrying them out; choosing them |
//! | `doubt` | how members find out that they have not called alike |
//! | `exchange` | collective operations without messages, where members map the same memory and read each other's |
//! | `remote` | bytes between a buffer and places in a peer's memory |
//! | `window`, `one_sided` | [`Window`]: one-sided communication; what of it goes as messages |
//! | `file` | [`File`]: files that processes open together |
//! | `group`, `info`, `attribute`, `errhandler`, `status`, `error` | MPI's smaller objects |
//! | `bootstrap` | [`Bootstrap`], and [`Board`] for ranks of one program |
//! | `core` | the state behind its lock, and how threads wait |
//! | `talk`, `context` | what members agree on when a communicator is made; its name |
//! | `engine`, `operation`, `matching` | sends and receives: who gets what; short messages and long ones |
//! | `over_portals` | sends and receives as calls of Portals, where its interface matches |
//! | `buffered`, `space` | buffered sends: calls about their space, and how much of it is taken |
//! | `transport`, `links`, `connection`, `nic`, `address` | ordered messages between two processes over any device |
//! | `trust` | keys that processes share, and the check of connect requests |
//! | `fast_path` | messages by RDMA writes that the receiver looks for, where it cannot be mapped |
//! | `share` | long messages that both processes copy, where they can |
//! | `wire` | what processes say to each other: all that looks at a peer's bytes |
//! | `protocol` | [`protocols`]: which messages go how, for people |
//! | `memory` | the program's memory: who copies from it and into it |

mod address;
mod arranged;
mod at_once;
mod attribute;
mod bootstrap;
mod buffered;
mod call;
mod collective;
mod comm;
mod connection;
mod context;
mod core;
mod doubt;
mod duplicate;
mod engine;
mod errhandler;
mod error;
mod exchange;
mod fast_path;
mod file;
mod group;
mod info;
#[cfg(test)]
mod intruders;
mod joining;
#[cfg(test)]
mod lies;
mod links;
mod making;
mod matching;
mod members;
mod memory;
mod nic;
mod one_sided;
mod operation;
mod over_portals;
mod partitioned;
mod parts;
mod placement;
mod places;
mod point;
mod process;
mod protocol;
mod remote;
mod request;
mod run;
mod share;
mod space;
mod special;
mod status;
mod strangers;
mod talk;
mod tool;
mod topology;
mod transport;
mod trust;
mod tuning;
mod window;
mod wire;

pub use attribute::{Attributes, CopyFn, DeleteFn, Keyval};
pub use bootstrap::{Board, Bootstrap, Seat};
pub use buffered::Session;
pub use collective::Collective;
pub use collectives::{Costs, Kind};
pub use comm::{Comm, NAME_MAX};
pub use engine::Mode;
pub use errhandler::Errhandler;
pub use error::{Class, Error, Result};
pub use exchange::{PlainCall, shared_bytes};
pub use file::{Conversion, File, FileMode, Position, Representation, View, Whence};
pub use group::{Comparison, Group};
pub use info::{Info, KEY_MAX, VALUE_MAX};
pub use joining::Bridge;
pub use making::SplitType;
pub use memory::{ADDRESS_MIN, Buffer, Piece};
pub use nic::Port;
pub use one_sided::OneSided;
pub use point::{Message, With};
pub use portals::Matcher;
pub use process::{Config, Connect, Lane, Process};
pub use protocol::{Protocol, protocols};
pub use request::{Any, Remote, Request, RequestId, Requests};
pub use space::{BSEND_OVERHEAD, BsendSpace};
pub use special::Generalized;
pub use status::{ANY_SOURCE, ANY_TAG, Ended, PROC_NULL, ROOT, Status, TAG_MAX, UNDEFINED};
pub use tool::{Called, Carried, Carrier, Gauge, Happened, Happening, Limits, Profile, Traffic};
pub use topology::{Distributed, Graph, Grid, Topology, fill_dims};
pub use trust::PROTOCOL;
pub use tuning::Tuning;
pub use window::{Assert, At, Change, Flavor, LockKind, Shared, Window};
