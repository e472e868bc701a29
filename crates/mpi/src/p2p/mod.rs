//! Messages between two processes: how they travel, which receive gets them, and the calls of a communicator for them.
//!
//! | file | what it holds |
//! |---|---|
//! | `calls` | what a [`Comm`](crate::Comm) does between two of its processes |
//! | `short` | short messages that are sent or received within the call |
//! | `engine`, `operation` | sends and receives under way |
//! | `matching` | which receive gets which message |
//! | `wire` | what processes send each other: the only file that reads a peer's bytes |
//! | `proto` | [`protocols`](crate::protocols): which messages go by which protocol |
//! | `fragments` | fragments of messages that are sent in several |
//! | `shm_copy` | long messages that both processes copy, where they can |
//! | `rdma` | bytes between a buffer and places in a peer's memory |
//! | `over_portals` | sends and receives as calls of Portals, where its interface matches |
//! | `bsend`, `bsend_space` | buffered sends: calls about their space, and how much of it is taken |

pub(crate) mod bsend;
pub(crate) mod bsend_space;
pub(crate) mod calls;
pub(crate) mod engine;
pub(crate) mod fragments;
#[cfg(test)]
pub(crate) mod lies;
pub(crate) mod matching;
pub(crate) mod operation;
pub(crate) mod over_portals;
pub(crate) mod proto;
pub(crate) mod rdma;
pub(crate) mod shm_copy;
pub(crate) mod short;
pub(crate) mod wire;
