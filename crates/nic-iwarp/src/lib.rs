//! The iWARP NIC: MPA, DDP and RDMAP on TCP, between any two hosts.
//!
//! All of a device is in its process. A connection is a TCP socket with the protocol machines of the crate `iwarp`, worked on
//! by one thread at a time: by whoever posts, by whoever polls, and by the device's thread when nobody does. Payload goes
//! from the socket into the memory that it is meant for, and from there into the socket, without a copy in between.
//!
//! Files use each other one way (`cargo xtask tidy` checks that they form no circle).
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | how a device is set up |
//! | `tcp` | TCP sockets, where their ends are, peers that fall silent; bytes that came early, or wait to go |
//! | `memory` | who may use which bytes; NIC memory; system calls and copies on user memory |
//! | `wake` | what the thread sleeps on; which of many connections something has come for |
//! | `shared` | what all objects of a device share |
//! | `queues` | rings of requests, of completions, of events and reports; a queue pair without its connection |
//! | `send` | the sending half of a connection |
//! | `receive` | the receiving half |
//! | `connection` | a connection: its socket, the protocol's machine and the two halves; who polls it, how it ends |
//! | `qp` | a queue pair: its queues, and its connection under a combining lock |
//! | `inner` | the device: its queue pairs by number |
//! | `connect` | connection management: connections in the making, listeners, held addresses, requests, the program's calls |
//! | `api` | the other objects that programs hold |
//! | `nic` | the device's thread |
//! | `device` | opening a device |
//! | `fuzzing` | a hostile peer of a queue pair, for the fuzzer (test builds only) |

mod api;
mod config;
mod connect;
mod connection;
mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod inner;
mod memory;
mod nic;
mod qp;
mod queues;
mod receive;
mod send;
mod shared;
mod tcp;
mod wake;

pub use config::{Completion, FpduSize, IwarpConfig, Mpa};
pub use device::open;
