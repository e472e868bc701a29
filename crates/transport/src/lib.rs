//! Messages between processes over any device of [`verbs`]: the layer that MPI and Portals share below their protocols.
//!
//! A user gives an [`Endpoint`] a [`Header`] and a payload for each message, and gets both back at the other end, in order. Headers
//! are the user's own types: the functions that move them are generic, so that no header is copied to an intermediate form. The
//! user polls and waits; it has a [`Nic`] for each device, the endpoints in [`Links`], and a [`Wireup`].
//!
//! | part | for |
//! |---|---|
//! | [`Nic`] | a device, and the resources that its connections share: queues, a listener, registered memory |
//! | [`Endpoint`] | one end of a connection: the parts below, with its queued work and its flow control |
//! | [`Links`] | the connections of a process by their numbers in completions |
//! | [`Wireup`], [`Admission`], [`answer`] | connect requests: proofs of identity, and two requests that cross |
//! | [`Registrations`] | registered memory for a NIC or a peer, with a registration cache |
//!
//! An endpoint consists of:
//!
//! | part | for |
//! |---|---|
//! | [`Inbox`], [`Outbox`] | messages by stores into the receiver's NIC memory, where the sender can map it: no system call, no completion |
//! | [`DuplexLine`] | a cache line that both sides write in turn, for short messages that answer each other |
//! | [`MessageQueue`] | messages by a queue pair, with credits, where memory cannot be mapped |
//! | [`WriteRing`] | messages by RDMA writes, where the receiver polls its memory |
//!
//! # Example
//!
//! Two processes connect, and one sends the other a message. `examples/keyvalue.rs` is a larger user: a key-value store on any device.
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::Arc;
//!
//! use auth::{Identity, Key, Protocol, Proved, Seed};
//! use transport::{
//!     ConnEvent, ConnectTarget, Endpoint, EndpointOptions, Header, HeaderBytes, LINE_WORDS, LineMessage, Links, Message, Nic,
//!     NicConfig, Outcome, Path, Payload, Peers, QueueSizes, User, Wireup,
//! };
//! use verbs::{CmEvent, ConnParam, Result, Screen, SendFlags, host};
//!
//! /// The header of this user's messages: the kind, 1 for a request and 2 for credits, and the number of the request.
//! #[derive(Clone, Copy)]
//! struct Request([u64; 2]);
//!
//! impl Header for Request {
//!     type Short = [u64; 2];
//!
//!     // Of the first word, bits 0 to 7 are neither 0 nor 255, and bits 16 to 31 are the transport's.
//!     fn encode_short(&self) -> Option<[u64; 2]> {
//!         Some(self.0)
//!     }
//!
//!     fn encode(&self) -> HeaderBytes {
//!         HeaderBytes::from_words(self.0)
//!     }
//!
//!     fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
//!         self.0 = [line[0] & 0xff, line[1]];
//!         (total >= 16).then_some(16)
//!     }
//!
//!     fn decode(&mut self, bytes: &[u8], _total: usize) -> Option<usize> {
//!         let words: &[[u8; 8]; 2] = bytes.as_chunks().0.first_chunk()?;
//!         let [first, number] = words.map(u64::from_le_bytes);
//!         self.0 = [first & 0xff, number];
//!         Some(16)
//!     }
//! }
//!
//! /// All messages use one channel, and none the line.
//! impl Message for Request {
//!     const CREDIT: Self = Self([2, 0]);
//!     const LINE_PAYLOAD: usize = 0;
//!
//!     fn channel(&self) -> usize {
//!         0
//!     }
//!
//!     fn channel_of(first: u8) -> Option<usize> {
//!         (first == 1).then_some(0)
//!     }
//!
//!     fn header_max(&self) -> usize {
//!         16
//!     }
//!
//!     fn fits_line(&self, _payload: usize) -> bool {
//!         false
//!     }
//!
//!     fn encode_line(&self, _payload: &impl Payload, _records: u16) -> Option<LineMessage> {
//!         None
//!     }
//!
//!     fn decode_line(&mut self, _line: &LineMessage) -> Option<usize> {
//!         None
//!     }
//! }
//!
//! enum Example {}
//!
//! impl User for Example {
//!     type Message = Request;
//!     type Payload = &'static [u8]; // of messages that wait for room
//!     type Sent = ();
//!     type Key = ();
//! }
//!
//! /// The processes that may connect: all that have the key.
//! struct Members(Key);
//!
//! impl Peers for Members {
//!     fn key_of(&self, _from: Identity) -> Option<Key> {
//!         Some(self.0.clone())
//!     }
//! }
//!
//! const PROTOCOL: Protocol = Protocol { name: "example", magic: *b"ex\x00\x01" };
//! const SIZES: QueueSizes = QueueSizes { slots: 16, spare: 3, accesses: 0, slot_bytes: 4096, ring_bytes: 64 << 10 };
//!
//! struct Process {
//!     nic: Nic,
//!     wireup: Wireup<Members>,
//!     links: Links<Endpoint<Example, 1, 0>>,
//! }
//!
//! impl Process {
//!     fn new(me: Identity, seed: Seed, key: &Key) -> Result<Self> {
//!         let wireup = Wireup::new(PROTOCOL, key.derive("nonces", &[&me.0]));
//!         wireup.admission().open(me, seed, Members(key.clone()));
//!         let screen: Arc<dyn Screen> = wireup.admission().clone();
//!         let config = NicConfig {
//!             sizes: SIZES,
//!             inline: 0,
//!             cqe: SIZES.completions(),
//!             slab_connections: 1,
//!             listen_at: (&[IpAddr::V4(Ipv4Addr::LOCALHOST)], 0),
//!             backlog: 1,
//!             register_all: |_| Ok(None),
//!             caches: false,
//!             split_receives: false,
//!         };
//!         let nic = Nic::open(&fabric::open("shm", &host::real::host())?, &config, &screen)?;
//!         Ok(Self { nic, wireup, links: Links::default() })
//!     }
//!
//!     /// Creates an endpoint; returns its place among the links.
//!     fn add_endpoint(&mut self, is_initiator: bool) -> Result<usize> {
//!         let options = EndpointOptions {
//!             is_initiator,
//!             send_sges: 1,
//!             is_first: is_initiator,
//!             record_bytes: SIZES.slot_bytes,
//!             send_flags: SendFlags::empty(),
//!             write_flags: SendFlags::empty(),
//!         };
//!         let number = self.links.vacancy().expect("a place");
//!         Ok(self.links.insert(Endpoint::new(&mut self.nic, number, None, options)?))
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! // Two processes; usually each has its own address space.
//! let (key, seed) = (Key::from_bytes([7; 16]), Seed::from_key(Key::from_bytes([8; 16])));
//! let [from, to] = [1, 2].map(|number| Identity([number; auth::IDENTITY]));
//! let mut a = Process::new(from, seed.clone(), &key)?;
//! let mut b = Process::new(to, seed.clone(), &key)?;
//! let (link_a, link_b) = (a.add_endpoint(true)?, b.add_endpoint(false)?);
//!
//! // Both ends prove that they have the key, and offer memory for messages.
//! let target = ConnectTarget { key, from, to, challenge: seed.challenge(PROTOCOL, from, 0) };
//! a.wireup.connect(&a.nic, (link_a, &a.links[link_a]), (b.nic.addr(), target), ConnParam::default())?;
//! let CmEvent::ConnectRequest(mut request) = b.nic.cm.get_event(None)? else { panic!("no request") };
//! let proved = request.take_screened::<Proved>().expect("a request that passed");
//! b.wireup.accept(&b.nic, (request, &proved), &mut b.links[link_b])?;
//! for (process, link) in [(&mut a, link_a), (&mut b, link_b)] {
//!     let Ok((_, event)) = ConnEvent::of(process.nic.cm.get_event(None)?) else { panic!("a request") };
//!     let outcome = process.wireup.outcome(link, &mut process.links[link], event);
//!     assert_eq!(outcome, Outcome::Established);
//!     process.links[link].open()?;
//! }
//!
//! let path = a.links[link_a].try_send(&Request([1, 7]), &b"hello".as_slice(), |_| ())?;
//! assert_eq!(path, Some(Path::Ring)); // into memory of `b`
//!
//! let (endpoint, mut request) = (&mut b.links[link_b], Request::CREDIT);
//! let arrived = endpoint.peek(0, &mut request)?.expect("a message");
//! assert_eq!(request.0, [1, 7]);
//! let memory = endpoint.memory(arrived.channel, arrived.held);
//! assert_eq!(memory.to_vec(arrived.at..arrived.at + arrived.len)?, b"hello");
//! endpoint.consume(&arrived)?;
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
mod store_meter;
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
pub use store_meter::{StoreMeter, Stores};
pub use wireup::{
    Admission, Answer, CROSSED, ConnEvent, ConnectTarget, NOT_YET, Outcome, Peers, Wireup, answer,
};
pub use write_ring::WriteRing;
