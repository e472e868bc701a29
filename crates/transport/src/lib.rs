//! Messages between processes over any device of [`verbs`]: the layer that MPI and Portals share below their protocols.
//!
//! A user gives the transport a [`Header`] and a payload for each message, and gets both back at the other end, in order. Headers
//! are the user's own types: the functions that move them are generic, so that no header is copied to an intermediate form. The
//! user has its own connections, queues and waits; the transport has the parts that these consist of:
//!
//! | part | for |
//! |---|---|
//! | [`Endpoint`] | one end of a connection: the parts below, with its queued work and its flow control |
//! | [`Nic`] | a device, and the resources that its connections share: queues, a listener, registered memory |
//! | [`Inbox`], [`Outbox`] | messages by stores into the receiver's NIC memory, where the sender can map it: no system call, no completion |
//! | [`DuplexLine`] | a cache line that both sides write in turn, for short messages that answer each other |
//! | [`MessageQueue`] | messages by a queue pair, with credits, where memory cannot be mapped |
//! | [`WriteRing`] | messages by RDMA writes, where the receiver polls its memory |
//! | [`Registrations`] | registered memory for a NIC or a peer, with a registration cache |
//! | [`Links`] | the connections of a process by their numbers in completions |
//! | [`answer`], [`Wireup`], [`Admission`] | connect requests: two that cross, and proofs of identity |
//!
//! # Example
//!
//! A message from one NIC to another. `examples/keyvalue.rs` is a larger user: a key-value store on any device.
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::Arc;
//! use transport::{Header, HeaderBytes, LINE_WORDS, MessageQueue, Nic, NicConfig, Outbox, QueueSizes};
//! use verbs::{CmEvent, ConnParam, Result, Screen, ScreenRequest, Verdict, host};
//!
//! /// The header of this user's messages: the number of a request.
//! #[derive(Default)]
//! struct Number(u64);
//!
//! impl Header for Number {
//!     type Short = [u64; 2];
//!
//!     // Of the first word, bits 0 to 7 are not 0, and bits 16 to 31 are the transport's.
//!     fn encode_short(&self) -> Option<[u64; 2]> {
//!         Some([1, self.0])
//!     }
//!
//!     fn encode(&self) -> HeaderBytes {
//!         HeaderBytes::from_words([1, self.0])
//!     }
//!
//!     fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
//!         self.0 = line[1];
//!         (total >= 16).then_some(16)
//!     }
//!
//!     fn decode(&mut self, bytes: &[u8], _total: usize) -> Option<usize> {
//!         self.0 = u64::from_le_bytes(*bytes.get(8..16)?.first_chunk()?);
//!         Some(16)
//!     }
//! }
//!
//! /// Admits all connect requests. MPI and Portals have an `Admission`, which demands a proof of identity.
//! struct Everybody;
//!
//! impl Screen for Everybody {
//!     fn screen(&self, _request: &ScreenRequest<'_>) -> Verdict {
//!         Verdict::Pass(Box::new(()))
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let device = fabric::open("shm", &host::real::host())?;
//! let sizes = QueueSizes { slots: 16, spare: 2, accesses: 0, slot_bytes: 4096, ring_bytes: 64 << 10 };
//! let config = NicConfig {
//!     sizes,
//!     inline: 0,
//!     cqe: sizes.completions(),
//!     slab_connections: 1,
//!     listen_at: (&[IpAddr::V4(Ipv4Addr::LOCALHOST)], 0),
//!     backlog: 1,
//!     register_all: |_| Ok(None),
//!     caches: false,
//! };
//! let screen: Arc<dyn Screen> = Arc::new(Everybody);
//! let (mut a, mut b) = (Nic::open(&device, &config, &screen)?, Nic::open(&device, &config, &screen)?);
//! let from = MessageQueue::<(), 1, 0>::new(&mut a, 0, 1)?;
//! let to = MessageQueue::<(), 1, 0>::new(&mut b, 0, 1)?;
//!
//! a.cm.connect(from.qp(), b.addr(), &ConnParam::default())?;
//! let CmEvent::ConnectRequest(request) = b.cm.get_event(None)? else { panic!("no request") };
//! b.cm.accept(request, to.qp(), &ConnParam::default())?;
//! let CmEvent::Established { .. } = a.cm.get_event(None)? else { panic!("no connection") };
//!
//! // Two processes exchange the offer with their connect requests.
//! let mut inbox = b.inbox().expect("a peer can map memory of shm");
//! let mut outbox = Outbox::new(from.qp(), inbox.offer(), sizes.slot_bytes).expect("a ring");
//! assert!(outbox.has_room(16 + 5));
//! outbox.put(&Number(7), &b"hello".as_slice())?;
//! from.qp().notify()?; // wakes the receiver, if it sleeps
//!
//! let mut header = Number::default();
//! let record = inbox.poll(&mut header)?.expect("a message");
//! assert_eq!(header.0, 7);
//! assert_eq!(inbox.buf().to_vec(record.at..record.at + record.len)?, b"hello");
//! inbox.consume(record.upto);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod endpoint;
mod header;
mod line;
mod links;
mod nic;
mod queue;
mod registration;
mod ring;
mod wireup;
mod write_ring;

pub use endpoint::{Arrived, ConnStage, Endpoint, EndpointOptions, Held, Message, Path, User};
pub use header::{HEADER_MAX, Header, HeaderBytes, LINE_WORDS, Payload};
pub use line::{DuplexLine, LineMessage};
pub use links::Links;
pub use nic::{Nic, NicConfig, QueueSizes, Slots};
pub use queue::{MessageQueue, Signal, of_completion};
pub use registration::{Registration, Registrations};
pub use ring::{CONTROL_LINES, Found, Inbox, Malformed, Offer, Outbox, Record, SHARED_LINE, USER_LINE};
pub use wireup::{
    Admission, Answer, CROSSED, ConnEvent, ConnectTarget, NOT_YET, Outcome, Peers, Wireup, answer,
};
pub use write_ring::WriteRing;
