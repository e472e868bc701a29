//! The functions of the ABI, each under its lower-case name without `MPI_`; the large-count form is the same function.
//!
//! | file | what it holds |
//! |---|---|
//! | `environment` | initialization and termination, versions, time, memory, names |
//! | `error`, `errhandler` | error codes; error handlers |
//! | `integers` | handles as integers |
//! | `info`, `group`, `comm`, `attribute` | info objects, groups, communicators, attributes |
//! | `types` | datatypes: constructors, queries, packing; operators |
//! | `collective`, `topology` | collective operations; process topologies |
//! | `p2p` | messages, requests and statuses |
//! | `rma` | windows and one-sided operations |
//! | `io` | files, reading and writing |
//! | `session` | sessions and sets of processes |
//! | `dynamic` | processes of other jobs |
//! | `tool` | the tool interface `MPI_T` |
//! | `hardware` | hardware resources, and communicators by resource |
//! | `fortran` | Fortran's types and values |

mod attribute;
mod collective;
mod comm;
mod dynamic;
mod environment;
mod errhandler;
mod error;
mod fortran;
mod group;
mod hardware;
mod info;
mod integers;
mod io;
mod p2p;
mod rma;
mod session;
mod tool;
mod topology;
mod types;

pub(crate) use attribute::*;
pub(crate) use collective::*;
pub(crate) use comm::*;
pub(crate) use dynamic::*;
pub(crate) use environment::*;
pub(crate) use errhandler::*;
pub(crate) use error::*;
pub(crate) use fortran::*;
pub(crate) use group::*;
pub(crate) use hardware::*;
pub(crate) use info::*;
pub(crate) use integers::*;
pub(crate) use io::*;
pub(crate) use p2p::*;
pub(crate) use rma::*;
pub(crate) use session::*;
pub(crate) use tool::*;
pub(crate) use topology::*;
pub(crate) use types::*;
