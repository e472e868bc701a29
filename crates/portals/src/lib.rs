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
//! | `engine/` | [`Engine`]: matching, the portal table, operations under way, events and counters |
//! | `offload/` | [`Offload`]: an interface whose engine a program of the NIC is |
//! | `link/` | messages, reads and writes between processes; the only code that reads bytes of peers or touches the user's memory |
//! | `objects/` | the values of the interface: entries, regions, options, limits, events, errors, handles |
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
pub use exchange::Taken;
pub use link::connection::EAGER_MAX;
pub use link::trust::{PROTOCOL, no_offers};
pub use node::{Kind, Matcher, Ni, Node};
pub use objects::atomic::{Datatype, ELEMENT_MAX, Op, Operand};
pub use objects::command::{Count, Local, Transfer};
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
