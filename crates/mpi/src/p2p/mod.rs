//! Point-to-point messages: protocols, matching, and the communicator's calls for them (MPI 5.0, chapter 3).
//!
//! | file | purpose |
//! |---|---|
//! | `calls` | point-to-point calls of a [`Comm`](crate::Comm) |
//! | `short` | short messages that are sent or received within the call |
//! | `engine`, `operation` | sends and receives in progress |
//! | `matching` | matches messages with receives |
//! | `wire` | the wire format: the only file that parses a peer's bytes |
//! | `proto` | [`protocols`](crate::protocols): which protocol carries which message |
//! | `kept` | long messages that arrived before their receives |
//! | `shm_copy` | long messages that sender and receiver both copy, where the device allows it |
//! | `rdma` | RDMA between a local buffer and ranges of a peer's memory |
//! | `over_portals` | sends and receives as calls of Portals, where its interface does the matching |
//! | `bsend`, `bsend_space` | buffered sends: the calls for their space, and how much of it is in use |

pub(crate) mod bsend;
pub(crate) mod bsend_space;
pub(crate) mod calls;
pub(crate) mod engine;
#[cfg(test)]
pub(crate) mod false_messages;
pub(crate) mod kept;
pub(crate) mod matching;
pub(crate) mod operation;
pub(crate) mod over_portals;
pub(crate) mod proto;
pub(crate) mod rdma;
pub(crate) mod shm_copy;
pub(crate) mod short;
pub(crate) mod wire;
