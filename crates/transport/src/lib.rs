//! Messages between processes over any device of [`verbs`]: the layer that MPI and Portals share below their protocols.
//!
//! A user gives the transport a [`Header`] and a payload for each message, and gets both back at the other end, in order. Headers
//! are the user's own types: the functions that move them are generic, so that no header is copied to an intermediate form.
//!
//! `examples/keyvalue.rs` is a small user of all this: a key-value store.
//!
//! | file | purpose |
//! |---|---|
//! | `header` | [`Header`], [`Payload`]: what a user sends |
//! | `ring` | [`Inbox`], [`Outbox`]: messages by stores into the receiver's NIC memory, where the sender can map it |
//! | `nic` | [`Nic`]: a device and the resources that its connections share; [`Slots`]: memory for messages that are sent |
//! | `registration` | [`Registration`], [`Registrations`]: registered memory for a NIC or a peer, with a registration cache |
//! | `queue` | [`MessageQueue`]: messages that are sent by a queue pair, with credits |
//! | `write_ring` | [`WriteRing`]: messages by RDMA writes, where the receiver polls its memory |
//! | `wireup` | [`answer`], [`Attempts`], [`Admission`]: crossing connect requests, and proofs of identity |
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
pub use wireup::{Admission, Answer, Attempts, ConnStage, ConnectTarget, Peers, Rejection, answer};
pub use write_ring::WriteRing;
