//! The shared-memory NIC: connects processes of one user on one host, and queue pairs within a process.
//!
//! The initiator's processor is the DMA engine. A device keeps its protection tables, queue pairs and rings
//! in a segment that its peers map. So a post places the data, consumes the peer's receive and writes its
//! completion without the peer's processor. A peer that is killed at any instruction has either published a
//! message or not.
//!
//! Path of a message: `send::send_half` (post) → `send::engine` → `memory::table` (of both sides) →
//! `send::transfer`, `copy::place` (the copy) → `send::delivery` (completion in the peer's ring) → `polled_cq`,
//! `receive::recv_half`, `receive::arrival` (poll).
//!
//! Each row of the table uses only rows above it; there are no cycles between files (`cargo xtask tidy`
//! checks that).
//!
//! | module | contents |
//! |---|---|
//! | `copy` | copies and atomics on user memory; how private memory of another process is reached |
//! | `wake` | wake sockets, and the descriptors that the NIC thread sleeps on |
//! | `memory` | layout and mapping of shared memory, allocation of its parts and numbers; protection tables, translation cache, lock for atomics |
//! | `protocol` | the messages of the connection protocol, their sockets and socket names; random numbers |
//! | `peer` | the other side: its device, its queue pair, notifying its waiters |
//! | `shared` | state that all objects of a device share |
//! | `queues` | channels, completion queues and shared receive queues, as far as queue pairs use them |
//! | `connection` | state that both halves of a queue pair need |
//! | `send` | the sending half |
//! | `receive` | the receiving half; copies that the owner makes for a peer that may not copy |
//! | `qp` | a queue pair: a connection and its halves |
//! | `polled_cq` | polling a completion queue, and the queue pairs that it polls |
//! | `objects`, `grace_periods`, `device_inner` | the device: its objects by number, grace periods for memory accesses |
//! | `connect` | connection management: connections by number and their state machine, addresses, requests, API calls |
//! | `api` | the other API objects |
//! | `nic` | the NIC thread |
//! | `device` | opening a device |
//! | `fuzzing` | entry points of the fuzz targets (test builds only) |
//! | `lab`, `protocol::hello_fault` | fault injection for the siege (feature `lab` only) |

mod api;
mod connect;
mod connection;
mod copy;
mod device;
mod device_inner;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(missing_docs, reason = "for the fuzz targets only")]
pub mod fuzzing;
mod grace_periods;
#[cfg(test)]
mod hostile_peer;
#[cfg(any(test, feature = "lab"))]
pub mod lab;
mod memory;
mod nic;
mod objects;
mod peer;
mod polled_cq;
mod protocol;
mod qp;
mod queues;
mod receive;
mod send;
mod shared;
mod wake;

pub use copy::copy_path::{CopyPath, copy_path};
pub use device::{ShmConfig, open};
