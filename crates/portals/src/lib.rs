//! Portals 4 on any device, with the interface of Sandia's reference implementation.
//!
//! A process exposes memory through list entries, which it appends under an index of its portal table. Other
//! processes put into that memory, get from it and combine with it. The initiator and the match bits select
//! the entry. A message that matches no priority entry goes to an overflow entry, and its header is kept for
//! entries appended later. Events report what happened, counters count it, and a counter can trigger further
//! operations.
//!
//! [`Engine`] implements all of this except the transfer of data: it decides where data go and accesses no
//! memory. The same object can therefore match in the calling process, in a NIC's thread, or on the processor
//! of a modelled NIC. A [`Node`] is a process on a device, with up to four interfaces ([`Ni`]); it transports
//! the engines' messages and moves the data.
//!
//! | file | contents |
//! |---|---|
//! | `node` | [`Node`], [`Ni`]: the interface that programs call and wait on, and which thread makes progress |
//! | `exchange` | between engines and connections: sends requests, delivers messages, moves data |
//! | `engine/` | [`Engine`]: matching, the portal table, operations in flight, events and counters |
//! | `offload/` | [`Offload`]: an interface whose engine runs as a program on the NIC |
//! | `link/` | messages, reads and writes between processes; the only code that reads a peer's bytes or accesses user memory |
//! | `objects/` | the values of the interface: entries, regions, options, limits, events, errors, handles |
//!
//! # Where the standard leaves a choice
//!
//! - An event that finds its queue full overwrites the oldest event. A portal table entry with flow control
//!   accepts no message whose events have no slots; the user has to leave room for the other events of the
//!   same queue.
//! - `AUTO_UNLINK` is reported when no message uses the entry any more, not when the entry leaves its list.
//! - An entry can match a header whose data are still in flight; its event follows when the data have
//!   arrived. A search that does not remove the header reports it immediately.
//! - An undeliverable message is reported by one event: `SEND` if that was not yet reported, else `ACK`. Both
//!   are counted.
//! - A truncated atomic operation applies to whole elements.

mod engine;
mod exchange;
mod link;
mod node;
mod objects;
mod offload;

pub use auth::{Key, Seed};

pub use engine::initiator::{MemoryDescriptor, Outgoing};
pub use engine::target::{Arrival, Delivery, Search, Status};
pub use engine::{Engine, ListId};
pub use exchange::TryRecv;
pub use link::connection::EAGER_MAX;
pub use link::trust::{PROTOCOL, no_offers};
pub use node::{Matcher, Ni, NiKind, Node};
pub use objects::atomic::{Datatype, ELEMENT_MAX, Op, Operand};
pub use objects::command::{CtEvent, MdAddr, Transfer};
pub use objects::entry::Entry;
pub use objects::error::{Error, Result};
pub use objects::event::{Event, EventKind, Fail, List};
pub use objects::handles::{CtHandle, EntryHandle, EqHandle, MdHandle};
pub use objects::limits::Limits;
pub use objects::message::{AckReq, Action, Answer, Request};
pub use objects::options::{EntryOptions, MdOptions, PtOptions};
pub use objects::process::{Process, Source};
pub use objects::region::{Piece, Region};
pub use offload::Offload;
pub use offload::v3::Draft;
