//! The iWARP NIC: MPA, DDP and RDMAP on TCP, between any two hosts.
//!
//! A device lives entirely in its process. A connection is a TCP socket with the protocol state machines of the crate
//! `iwarp`. One thread at a time works on it: the poster, the poller, or the NIC thread if no thread polls. Payload
//! goes from the socket straight into its destination, and from its source into the socket, without an intermediate
//! copy.
//!
//! Modules depend on each other one way (`cargo xtask tidy` checks that there are no cycles).
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | configuration of a device |
//! | `tcp` | TCP sockets, addresses of connections, silent peers; bytes read ahead or waiting to be sent |
//! | `memory` | access rights to memory; NIC memory; system calls and copies on user memory |
//! | `wake` | how the NIC thread sleeps; which of many connections have events |
//! | `shared` | the state that all objects of a device share |
//! | `queues` | rings of requests, completions and events; a queue pair without its connection |
//! | `send` | the sending half of a connection |
//! | `receive` | the receiving half |
//! | `connection` | a connection: its socket, the protocol's state machine and the two halves; which thread polls it, how it ends |
//! | `qp` | a queue pair: its queues, and its connection under a combining lock |
//! | `device_inner` | the device: its queue pairs by number |
//! | `connect` | connection management: connection establishment, listeners, bound ports, requests, the program's calls |
//! | `api` | the other objects of the API |
//! | `nic` | the NIC thread |
//! | `device` | opening a device |
//! | `fuzzing` | a hostile peer of a queue pair, for the fuzzer (test builds only) |

mod api;
mod config;
mod connect;
mod connection;
mod device;
mod device_inner;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod memory;
mod nic;
mod qp;
mod queues;
mod receive;
mod send;
mod shared;
mod tcp;
mod wake;

pub use config::{Completion, FpduSize, IwarpConfig, Mpa, WireFaults};
pub use device::open;
