//! Byte streams over RDMA with the semantics of TCP sockets, on any device of [`verbs`]: what librdmacm's functions from `rsocket` to
//! `riowrite` need.
//!
//! The protocol is rdma-core's, so the peer may be a program with rdma-core's librdmacm on a card. A [`Service`] makes the connections
//! of a device; a [`Socket`] is what a program has: it listens, or it connects and then has a [`Stream`].
//!
//! | file | contents; a file uses only those above it |
//! |---|---|
//! | `error`, `config` | errors; sizes |
//! | `wire` | the protocol's bytes, without I/O |
//! | `sleepers` | threads that sleep on the descriptors of a socket |
//! | `memory` | the registered memory of a connection |
//! | `link`, `mapping` | the queue pair of a connection; an I/O mapping |
//! | `progress`, `sender` | completions, and grants to the peer; sending |
//! | `stream`, `iomap` | a connection; its I/O mappings |
//! | `socket` | the states of a socket |
//! | `service` | connection set-up |
#![forbid(unsafe_code)]

mod config;
mod error;
mod iomap;
mod link;
mod mapping;
mod memory;
mod progress;
mod sender;
mod service;
mod sleepers;
mod socket;
mod stream;
mod wire;

pub use config::{Carrier, Config};
pub use error::{Error, Result};
pub use service::{Port, Service};
pub use sleepers::Sleep;
pub use socket::{Phase, Socket};
pub use stream::Stream;
pub use wire::{ConnData, RemoteBuf};
