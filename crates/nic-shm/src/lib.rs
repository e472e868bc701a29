//! The shared-memory NIC: between processes of one user on one host, and within a process.
//!
//! The initiator's processor is the DMA engine. Protection tables, queue pairs and rings of a device lie in a
//! segment that its peers map, so a post places the data, consumes the peer's receive and writes its completion
//! without the peer's processor. A peer that is killed at any instruction has either published or not.
//!
//! A message takes this way: `send::sending` (post) → `send::engine` → `memory::table` (of both sides) → `send::transfer`,
//! `copy::place` (the copy) → `send::delivery` (completion in the peer's ring) → `polling`, `receive::receiving`,
//! `receive::arrival` (poll).
//!
//! Each row uses those above it; files form no circle (`cargo xtask tidy` checks that).
//!
//! | module | what it holds |
//! |---|---|
//! | `copy` | copies and atomics on user memory; which way into private memory, and why |
//! | `wake` | doorbells, and what the NIC thread sleeps on |
//! | `memory` | what lies where in shared memory, mapping it, which parts and numbers are taken; the protection tables, the region used last, turns at atomics |
//! | `protocol` | the messages of the connection protocol, their sockets, and the names of those; random numbers |
//! | `peer` | the other side: its device, its queue pair, who waits there |
//! | `shared` | what all objects of a device share |
//! | `queues` | channels, completion queues and shared receive queues, as queue pairs know them |
//! | `connection` | what both halves of a queue pair need |
//! | `send` | the sending half |
//! | `receive` | the receiving half; what the owner does for a peer that may not copy |
//! | `qp` | a queue pair: a connection and its halves |
//! | `polling` | who polls a completion queue, and which queue pairs for |
//! | `objects`, `visits`, `inner` | the device: its objects by number, waiting for whoever is inside |
//! | `connect` | connection management: connections by number and their state machine, addresses, requests, the program's calls |
//! | `api` | the other objects that programs hold |
//! | `nic` | the NIC thread |
//! | `device` | opening a device |
//! | `fuzzing` | what the fuzz targets call (test builds only) |
//! | `lab`, `protocol::twist` | what the siege lies with (feature `lab` only) |

mod api;
mod connect;
mod connection;
mod copy;
mod device;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(missing_docs, reason = "for the fuzz targets only")]
pub mod fuzzing;
mod inner;
#[cfg(any(test, feature = "lab"))]
pub mod lab;
#[cfg(test)]
mod lies;
mod memory;
mod nic;
mod objects;
mod peer;
mod polling;
mod protocol;
mod qp;
mod queues;
mod receive;
mod send;
mod shared;
mod visits;
mod wake;

pub use copy::copy_path::{CopyPath, copy_path};
pub use device::{ShmConfig, open};
