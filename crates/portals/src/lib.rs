//! Portals 4: the interface of Sandia's reference, on any device.
//!
//! A process opens its memory to others by list entries under the indices of a portal table; others put into it, get from it and
//! combine with it, and an entry is chosen by who asks and by bits. Messages that no entry waits for go to overflow entries, and their
//! headers are kept for entries that come later. What happens is told by events and counted by counters, and counters set off
//! further operations.
//!
//! [`Engine`] is all of that but for carrying: it decides what goes where, and looks at no memory. So one and the same object matches
//! in the calling process, in a NIC's thread, or on a modelled NIC's processor. A [`Node`] is a process on a device, with up to four
//! interfaces ([`Ni`]): it carries what engines say, and moves the data.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | [`Node`], [`Ni`]: an interface to call, to wait at, and who makes progress |
//! | `exchange` | between engines and the carrier: requests go out, what comes is delivered, data are moved |
//! | `carrier`, `connection`, `nic` | messages, reads and writes between processes over the rings of [`transport`]; one connection; the device |
//! | `wire`, `memory` | all that looks at bytes of peers; all that looks at the user's memory, and all unsafe code |
//! | `offload` | [`Offload`]: an interface whose engine a program of the NIC is |
//! | `engine` | [`Engine`]: one network interface |
//! | `target` | its targeted half: the portal table, and what is done with messages that come |
//! | `matchlist`, `unexpected` | entries that wait for messages; headers that wait for entries |
//! | `initiator` | its initiating half: memory descriptors and operations under way |
//! | `completions`, `queue` | event queues and counters, and what counters set off |
//! | `message`, `command` | what goes over the wire; what may be asked for, now or later |
//! | `entry`, `region`, `process`, `options`, `limits` | what the user gives |
//! | `event`, `error`, `atomic` | what the user is told; atomic operations |
//! | `buckets`, `chain`, `handles` | chains by key; places in an order; handles and the tables that they are keys of |
//!
//! # What the standard leaves open
//!
//! - An event that finds its queue full takes the place of the oldest. A portal table entry with flow control lets no message in
//!   whose events have no slots; for other events of the same queue it is the user who has to leave room.
//! - `AUTO_UNLINK` is told when no message uses the entry any more, not when the entry leaves its list.
//! - A header whose data are on the way can be taken by an entry already; the entry is told when they are there. A search that takes
//!   nothing out tells of it at once.
//! - A message that cannot be delivered is told once by an event, as `SEND` if that was not told, else as `ACK`; both are counted.
//! - An atomic operation that is truncated works on whole elements.

mod atomic;
mod buckets;
mod carrier;
mod chain;
mod command;
mod completions;
mod connection;
mod engine;
mod entry;
mod error;
mod event;
mod exchange;
mod handles;
mod initiator;
mod limits;
mod matchlist;
mod memory;
mod message;
mod nic;
mod node;
mod offload;
mod options;
mod process;
mod queue;
mod region;
mod target;
mod trust;
mod unexpected;
mod wire;

pub use auth::{Key, Seed};

pub use atomic::{Datatype, ELEMENT_MAX, Op, Operand};
pub use command::{Count, Local, Transfer};
pub use connection::EAGER_MAX;
pub use engine::{Engine, ListId};
pub use entry::Entry;
pub use error::{Error, Result};
pub use event::{Event, EventKind, Fail, List};
pub use exchange::Taken;
pub use handles::{CtHandle, EntryHandle, EqHandle, MdHandle};
pub use initiator::{MemoryDescriptor, Outgoing};
pub use limits::Limits;
pub use message::{AckReq, Action, Answer, Request};
pub use node::{Kind, Matcher, Ni, Node};
pub use offload::Offload;
pub use offload::v3::Draft;
pub use options::{EntryOptions, MdOptions, PtOptions};
pub use process::{Process, Source};
pub use region::{Piece, Region};
pub use target::{Arrival, Delivery, Search, Status};
pub use trust::{PROTOCOL, no_offers};
