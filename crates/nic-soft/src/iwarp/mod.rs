//! The iWARP NIC: MPA, DDP and RDMAP on TCP, between any two hosts.
//!
//! All of a device is in its process. A connection is a TCP socket with the protocol machines of the crate `iwarp`, worked on
//! by one thread at a time: by whoever posts, by whoever polls, and by the device's thread when nobody does. Payload goes
//! from the socket into the memory that it is meant for, and from there into the socket, without a copy in between.
//!
//! The way of a message: `qp` (post) → `queue` (send queue) → `transmit` (FPDUs, gathered) → TCP → `receive` (what the bytes
//! are for) → `mr` (may they go there) → `place` (the copy, or the read into place) → `cq` (completion, bell, channel).
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | how a device is set up |
//! | `device`, `memory` | the device and its objects; NIC memory |
//! | `mr` | memory regions: who may use which bytes |
//! | `qp`, `srq`, `queue`, `cq`, `channel` | the objects, and the rings of requests |
//! | `stream` | one connection: what is done when its turn comes, and how it ends |
//! | `transmit`, `messages`, `short`, `outbox` | sending |
//! | `receive`, `lookup`, `ahead` | receiving |
//! | `ready` | which of many connections have news |
//! | `place` | system calls and copies on user memory |
//! | `outcome` | which request a Terminate is about, and what its completion says |
//! | `cm`, `handshake`, `active`, `passive`, `socket` | connections in the making |
//! | `nic`, `patrol` | the device's thread; peers that fall silent |
//! | `fuzzing` | a hostile peer of a queue pair, for the fuzzer (test builds only) |

mod active;
mod ahead;
mod channel;
mod cm;
mod config;
mod cq;
mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod lookup;
mod memory;
mod messages;
mod mr;
mod nic;
mod outbox;
mod outcome;
mod passive;
mod patrol;
mod place;
mod qp;
mod queue;
mod ready;
mod receive;
mod short;
mod socket;
mod srq;
mod stream;
mod transmit;

pub use config::{Completion, FpduSize, IwarpConfig, Mpa};
pub use device::open;
