//! The iWARP NIC: MPA, DDP and RDMAP on TCP, between any two hosts.
//!
//! All of a device is in its process. A connection is a TCP socket with the protocol machines of the crate `iwarp`, worked on
//! by one thread at a time: by whoever posts, by whoever polls, and by the device's thread when nobody does. Payload goes
//! from the socket into the memory that it is meant for, and from there into the socket, without a copy in between.
//!
//! Modules in rows; each uses those above it only (`cargo xtask tidy` checks that they form no circle).
//!
//! | modules | what they hold |
//! |---|---|
//! | `config`, `socket`, `ends`, `patrol` | how a device is set up; TCP sockets, and where their ends are; peers that fall silent |
//! | `regions`, `memory` | who may use which bytes; NIC memory |
//! | `place`, `ahead`, `outbox` | system calls and copies on user memory; bytes that came early, or wait to go |
//! | `queue`, `outcome`, `messages` | rings of requests; what they are to the protocol, and what their completions say |
//! | `reactor`, `ready`, `linger`, `shared` | what the thread sleeps on; which of many have news; what all objects share |
//! | `reports`, `receives`, `completions`, `events` | rings between a connection and who polls |
//! | `queues` | a queue pair without its connection |
//! | `questions`, `sending` | the sending half of a connection |
//! | `lookup`, `receiving` | the receiving half |
//! | `attention`, `link`, `end`, `stream` | the connection: who looks at it, what it lends its halves, how it ends |
//! | `qp` | a queue pair: its queues, and its connection on a stage |
//! | `active`, `hearing`, `listener`, `port`, `registry` | connections in the making; addresses that are held |
//! | `inner` | the device: its queue pairs by number |
//! | `cq`, `channel`, `srq`, `mr`, `handle`, `cm`, `request` | what programs hold |
//! | `handshake`, `nic` | the device's thread |
//! | `device` | opening a device |
//! | `fuzzing` | a hostile peer of a queue pair, for the fuzzer (test builds only) |

mod active;
mod ahead;
mod attention;
mod channel;
mod cm;
mod completions;
mod config;
mod cq;
mod device;
mod end;
mod ends;
mod events;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handle;
mod handshake;
mod hearing;
mod inner;
mod lent;
mod linger;
mod link;
mod listener;
mod lookup;
mod memory;
mod messages;
mod mr;
mod nic;
mod outbox;
mod outcome;
mod patrol;
mod place;
mod port;
mod qp;
mod questions;
mod queue;
mod queues;
mod reactor;
mod ready;
mod receives;
mod receiving;
mod regions;
mod registry;
mod reports;
mod request;
mod sending;
mod shared;
mod socket;
mod srq;
mod stream;

pub use config::{Completion, FpduSize, IwarpConfig, Mpa};
pub use device::open;
