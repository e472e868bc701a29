//! The shared-memory NIC: between processes of one user on one host, and within a process.
//!
//! The initiator's processor is the DMA engine. Protection tables, queue pairs and rings of a device lie in a
//! segment that its peers map, so a post places the data, consumes the peer's receive and writes its completion
//! without the peer's processor. A peer that is killed at any instruction has either published or not.
//!
//! The way of a message: `sending` (post) → `engine` → `table` (both sides') → `transfer`, `place` (the copy) → `delivery`
//! (completion in the peer's ring) → `polling`, `receiving`, `arrival` (poll).
//!
//! Modules in rows; each uses those above it only (`cargo xtask tidy` checks that they form no circle).
//!
//! | modules | what they hold |
//! |---|---|
//! | `layout`, `segment`, `heap`, `memory`, `numbers` | what lies where in shared memory, mapping it, which parts and numbers are taken |
//! | `table`, `tlb`, `turn` | the protection tables, a peer's and one's own; the region used last; turns at atomics |
//! | `token`, `wire`, `socket`, `names`, `doorbell`, `reactor` | what processes tell each other, and what their threads sleep on |
//! | `place`, `atomic`, `copy_path` | copies and atomics on user memory; which way into private memory, and why |
//! | `peer`, `peer_qp`, `announce` | the other end: a device, a queue pair of it, who waits there |
//! | `shared` | what all objects of a device share |
//! | `channel`, `completions`, `receives` | a channel, a completion queue, a shared receive queue, as queue pairs know them |
//! | `connection` | what both halves of a queue pair are lent |
//! | `service`, `transfer`, `delivery`, `engine`, `fast_path`, `sending` | the sending half |
//! | `arrival`, `receiving` | the receiving half |
//! | `serving` | what the owner does for a peer that may not copy |
//! | `qp` | a queue pair: a connection and its halves |
//! | `polling` | who polls a completion queue, and which queue pairs for |
//! | `registry`, `greeting` | connections by number; what their two sides tell each other |
//! | `objects`, `visits`, `inner` | the device: its objects by number, waiting for whoever is inside |
//! | `cq`, `srq`, `mr`, `window`, `handle`, `port`, `cm`, `request` | what programs hold |
//! | `conns`, `nic` | the NIC thread |
//! | `device` | opening a device |
//! | `fuzzing` | what the fuzz targets call (test builds only) |
//! | `lab`, `twist` | what the siege lies with (feature `lab` only) |

mod announce;
mod arrival;
mod atomic;
mod channel;
mod cm;
mod completions;
mod connection;
mod conns;
mod copy_path;
mod cq;
mod delivery;
mod device;
mod doorbell;
mod engine;
mod fast_path;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(missing_docs, reason = "for the fuzz targets only")]
pub mod fuzzing;
mod greeting;
mod handle;
mod heap;
mod inner;
#[cfg(any(test, feature = "lab"))]
pub mod lab;
mod layout;
#[cfg(test)]
mod lies;
mod memory;
mod mr;
mod names;
mod nic;
mod numbers;
mod objects;
mod peer;
mod peer_qp;
mod place;
mod polling;
mod port;
mod qp;
mod reactor;
mod receives;
mod receiving;
mod registry;
mod request;
mod reserve;
mod segment;
mod sending;
mod service;
mod serving;
mod shared;
mod socket;
mod srq;
mod table;
mod tlb;
mod token;
mod transfer;
mod turn;
#[cfg(any(test, feature = "lab"))]
mod twist;
mod visits;
mod window;
mod wire;

pub use copy_path::{CopyPath, copy_path};
pub use device::{ShmConfig, open};
