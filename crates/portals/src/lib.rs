//! Portals 4 on any device, with the interface of Sandia's reference implementation (Portals 4.3).
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
//! | part | for |
//! |---|---|
//! | [`Node`], [`Ni`], [`Matcher`] | a process, its interfaces, and the thread that matches its messages |
//! | [`Engine`] | the calls of an interface, and what a driver without a [`Node`] does with its messages |
//! | [`Entry`], [`EntryOptions`], [`ListId`] | what a process exposes, and in which list |
//! | [`MemoryDescriptor`], [`Region`], [`Transfer`] | memory of the initiator, and operations: puts, gets, atomics |
//! | [`Event`], [`CtEvent`], [`Fail`] | what event queues and counters report |
//! | [`Limits`] | the capacities of an interface |
//! | [`Offload`], [`Draft`] | an interface whose engine runs as a program on the NIC; receives as in Portals 3.3 |
//!
//! # Example
//!
//! One node puts eight bytes into memory of another.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use portals::{
//!     AckReq, Action, Entry, EntryOptions, Error, EventKind, Key, NiKind, Limits, List, ListId, MdAddr,
//!     Matcher, MdOptions, MemoryDescriptor, Node, PtOptions, Region, Transfer,
//! };
//! use verbs::host;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (source, target) = (AtomicU64::new(42), AtomicU64::new(0));
//! let region = |word: &AtomicU64| Region::new(std::ptr::from_ref(word).expose_provenance() as u64, 8);
//!
//! let host = host::real::host();
//! let device = fabric::open("shm", &host)?;
//! let key = Key::from_bytes([7; 16]);
//! let interface = || {
//!     let (address, matcher) = (Ipv4Addr::LOCALHOST, Matcher::Caller);
//!     // SAFETY: both words live until the interfaces are closed, and are used as atomics only.
//!     let node = unsafe { Node::open(&host, &device, address, None, 0, matcher, &key) }?;
//!     let kind = NiKind { is_matching: true, is_logical: false };
//!     Ok::<_, verbs::Error>(node.interface(kind, Limits::default()))
//! };
//! let (a, b) = (interface()?, interface()?);
//!
//! // The target exposes its word to messages with match bits 5, and asks for their events.
//! let options = EntryOptions::OP_PUT | EntryOptions::EVENT_LINK_DISABLE;
//! let entry = Entry { match_bits: 5, ignore_bits: 0, ..Entry::taking_all(region(&target), options) };
//! let opened = b.with_engine(|engine| {
//!     let eq = engine.eq_alloc(8)?;
//!     let pt_index = engine.pt_alloc(PtOptions::empty(), Some(eq), None)?;
//!     engine.append(ListId { pt_index, list: List::Priority }, entry, 0)?;
//!     Ok::<_, Error>((eq, pt_index))
//! });
//! let (eq, pt_index) = opened.expect("an open interface")?;
//!
//! // The initiator puts, and asks for no acknowledgement.
//! let options = MdOptions::empty();
//! let md = MemoryDescriptor { region: region(&source), options, eq: None, counter: None };
//! let md = a.with_engine(|engine| engine.md_bind(md)).expect("an open interface")?;
//! let put = Transfer {
//!     action: Action::Put,
//!     put: Some(MdAddr { md, offset: 0 }),
//!     get: None,
//!     length: 8,
//!     ack: AckReq::None,
//!     target: b.node().me(),
//!     pt_index,
//!     match_bits: 5,
//!     remote_offset: 0,
//!     user_ptr: 0,
//!     hdr_data: 1,
//! };
//! a.transfer(&put).expect("an open interface")?;
//!
//! let found = b.wait("example", None, |engine| engine.eq_get(eq).expect("a queue"));
//! let (event, _) = found.expect("an open interface");
//! assert_eq!((event.kind, event.mlength, event.hdr_data), (EventKind::Put, 8, 1));
//! assert_eq!(target.load(Ordering::Acquire), 42);
//! a.close();
//! b.close();
//! # Ok(())
//! # }
//! ```
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
pub use link::trust::PROTOCOL;
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
