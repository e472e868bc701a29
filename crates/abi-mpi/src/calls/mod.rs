//! The functions of the ABI (MPI 5.0, chapter 20), each under its lower-case name without `MPI_`; the large-count form is the same
//! function.
//!
//! | file | what it holds | MPI 5.0 |
//! |---|---|---|
//! | `environment` | initialization and termination, versions, time, memory, names | chapters 9 and 11 |
//! | `error`, `errhandler` | error codes; error handlers | sections 9.3 to 9.5 |
//! | `integers` | handles as integers | section 20.4.5 |
//! | `info`, `group`, `comm`, `attribute` | info objects, groups, communicators, attributes | chapters 10 and 7 |
//! | `types` | datatypes: constructors, queries, packing; operators | chapter 5, section 6.9 |
//! | `collective`, `topology` | collective operations; process topologies | chapters 6 and 8 |
//! | `p2p` | messages, requests and statuses | chapters 3 and 4 |
//! | `rma` | windows and one-sided operations | chapter 12 |
//! | `io` | files, reading and writing | chapter 14 |
//! | `session` | sessions and sets of processes | section 11.3 |
//! | `dynamic` | processes of other jobs | sections 11.8 to 11.10 |
//! | `tool` | the tool interface `MPI_T` | section 15.3 |
//! | `hardware` | hardware resources, and communicators by resource | sections 7.4.2 and 9.1.2 |
//! | `fortran` | Fortran's types and values | section 20.4.1 |
//!
//! A file cites its chapter or section of MPI 5.0; a function of another section, or of a section of that chapter, cites its own.

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
