//! Messages, reads and writes between processes, over the rings of [`transport`].
//!
//! | file | contents |
//! |---|---|
//! | `connections` | ordered messages, reads and writes between this process and all others |
//! | `connection` | one queue pair and its flow control |
//! | `trust` | proofs of identity before a connection is made |
//! | `wire` | the encoding of messages: the only file that parses a peer's bytes |
//! | `nic` | configuration of the device |
//! | `memory` | copies to and from the user's memory, and its registration |

pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod memory;
pub(crate) mod nic;
pub(crate) mod trust;
pub(crate) mod wire;
