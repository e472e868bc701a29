//! Messages between processes over any device of [`verbs`]: what MPI and Portals share below their protocols.
//!
//! A user gives the transport a [`Header`] and a payload for each message, and gets both back at the other end, in order. Headers are
//! the user's own types: the functions that move them are generic, so that no header is copied to an intermediate form on the way.
//!
//! `examples/keyvalue.rs` is a small user of all this: a key-value store.
//!
//! | file | what it holds |
//! |---|---|
//! | `header` | [`Header`], [`Payload`]: what a user sends |
//! | `ring` | [`Inbox`], [`Outbox`]: messages by stores into the receiver's NIC memory, where the sender can map it |
//! | `nic` | [`Nic`]: a device with what all its connections share; [`Slots`]: memory for messages that are sent |
//! | `registration` | [`Registration`], [`Registrations`]: memory that a NIC or a peer can reach, with a cache of regions |
//! | `queue` | [`MessageQueue`]: messages that are sent by a queue pair, with credits |
//! | `write_ring` | [`WriteRing`]: messages by RDMA writes, where the receiver polls its memory |
//! | `wireup` | [`answer`], [`Attempts`], [`Admission`]: connects that cross, and proofs of identity |
//! | `line` | [`DuplexLine`]: a cache line that both sides write in turn, for short messages that answer each other |

#![forbid(unsafe_code)]

mod header;
mod line;
mod nic;
mod queue;
mod registration;
mod ring;
mod wireup;
mod write_ring;

pub use header::{HEADER_MAX, Header, HeaderBytes, LINE_WORDS, Payload};
pub use line::{DuplexLine, LineMessage};
pub use nic::{Nic, NicConfig, QueueSizes, Slots};
pub use queue::{MessageQueue, Signal, of_completion};
pub use registration::{Registration, Registrations};
pub use ring::{CONTROL_LINES, Found, Inbox, Malformed, Offer, Outbox, Record, SHARED_LINE, USER_LINE};
pub use wireup::{Admission, Answer, Attempts, Peers, Rejection, Stage, Target, answer};
pub use write_ring::WriteRing;
