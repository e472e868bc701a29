//! The functions of the ABI, each under its name without `MPI_` and in small letters; forms for large counts are the same function.
//!
//! | file | what it holds |
//! |---|---|
//! | `environment` | start and end, versions, time, memory, names |
//! | `error`, `errhandler` | error codes; error handlers |
//! | `integers` | handles as integers |
//! | `info`, `group`, `comm`, `attribute` | those objects |
//! | `datatype`, `layout`, `pack`, `op` | datatypes: made, asked, packed; operators |
//! | `collective`, `topology` | collective operations; who is whose neighbour |
//! | `p2p`, `probe`, `request`, `status`, `buffered` | messages |
//! | `window`, `onesided` | memory that others reach; operations on it |
//! | `partitioned`, `generalized` | messages whose parts become ready one by one; operations of the program's own |
//! | `file`, `fileio` | files; reading and writing them |
//! | `session` | sessions and sets of processes |
//! | `dynamic` | processes of other jobs |
//! | `tool` | the tool interface: variables that tools read and set |
//! | `fortran` | Fortran's types and values |

mod attribute;
mod buffered;
mod collective;
mod comm;
mod datatype;
mod dynamic;
mod environment;
mod errhandler;
mod error;
mod file;
mod fileio;
mod fortran;
mod generalized;
mod group;
mod hardware;
mod info;
mod integers;
mod layout;
mod onesided;
mod op;
mod p2p;
mod pack;
mod partitioned;
mod probe;
mod request;
mod session;
mod status;
mod tool;
mod topology;
mod window;

pub(crate) use attribute::*;
pub(crate) use buffered::*;
pub(crate) use collective::*;
pub(crate) use comm::*;
pub(crate) use datatype::*;
pub(crate) use dynamic::*;
pub(crate) use environment::*;
pub(crate) use errhandler::*;
pub(crate) use error::*;
pub(crate) use file::*;
pub(crate) use fileio::*;
pub(crate) use fortran::*;
pub(crate) use generalized::*;
pub(crate) use group::*;
pub(crate) use hardware::*;
pub(crate) use info::*;
pub(crate) use integers::*;
pub(crate) use layout::*;
pub(crate) use onesided::*;
pub(crate) use op::*;
pub(crate) use p2p::*;
pub(crate) use pack::*;
pub(crate) use partitioned::*;
pub(crate) use probe::*;
pub(crate) use request::*;
pub(crate) use session::*;
pub(crate) use status::*;
pub(crate) use tool::*;
pub(crate) use topology::*;
pub(crate) use window::*;
