//! The shared-memory NIC: between processes of one user on one host, and within a process.
//!
//! The initiator's processor is the DMA engine. Protection tables, queue pairs and rings of a device lie in a
//! segment that its peers map, so a post places the data, consumes the peer's receive and writes its completion
//! without the peer's processor. A peer that is killed at any instruction has either published or not.
//!
//! The way of a message: `qp` (post) → `engine` → `mr` (both protection tables) → `place` (the copy) →
//! `engine` (completion in the peer's ring) → `cq` (poll, bell, channel).
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | the device and its objects by number |
//! | `layout`, `segment`, `heap` | what lies where in shared memory, mapping it, which parts are taken |
//! | `table` | the protection tables, a peer's and one's own |
//! | `qp`, `cq`, `srq`, `mr` | the objects |
//! | `express`, `engine`, `atomic`, `turn`, `tlb` | carrying out requests, at the initiator |
//! | `place`, `service` | copying, asking the owner to copy |
//! | `visits` | waiting for whoever is inside |
//! | `arrival` | what the receiver does |
//! | `everything`, `window` | regions of all memory; load and store on a peer's NIC memory |
//! | `peer` | the other end |
//! | `cm`, `conns` | listening and connecting, connections and their state machine |
//! | `wire`, `socket`, `nic` | the connection protocol's messages, sockets, and the thread that serves it |
//! | `fuzzing` | what the fuzz targets call (test builds only) |
//! | `doorbell` | waking a thread of another process that sleeps in poll(2) |
//! | `lab` | what the siege lies with (feature `lab` only) |
//! | `copy_path` | which way into private memory, and why |

mod arrival;
mod atomic;
mod cm;
mod conns;
mod copy_path;
mod cq;
mod device;
mod doorbell;
mod engine;
mod everything;
mod express;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(missing_docs, reason = "for the fuzz targets only")]
pub mod fuzzing;
mod heap;
#[cfg(any(test, feature = "lab"))]
pub mod lab;
mod layout;
#[cfg(test)]
mod lies;
mod mr;
mod nic;
mod peer;
mod place;
mod qp;
mod segment;
mod service;
mod socket;
mod srq;
mod table;
mod tlb;
mod turn;
mod visits;
mod window;
mod wire;

pub use copy_path::{CopyPath, copy_path};
pub use device::{ShmConfig, open};
