//! iWARP as state machines: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306).
//!
//! The crate maps bytes to bytes. It has no socket, no clock, no thread and no unsafe code; time is an argument,
//! counted from any epoch that the caller keeps, and a peer can make these state machines hold only a bounded amount
//! of state. A driver, over TCP, in virtual time or in a test, moves the bytes and owns the memory.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mpa`] | the handshake of both sides: [`mpa::Initiator`], [`mpa::Responder`] |
//! | [`rx`] | what the next bytes of the stream are for, and what was delivered: [`rx::Receiver`], [`rx::Lookup`] |
//! | [`tx`] | from operations to FPDUs: [`tx::Sender`], [`tx::Fpdu`] |
//! | [`open_requests`] | which request a Terminate refers to, and which requests have arrived |
//! | [`Connection`] | both directions, and the state that they exchange |
//! | [`ddp`], [`rdmap`], [`terminate`] | headers and messages |
//! | [`crc`], [`wire`] | CRC32c; bytes on the wire |
//! | `testing`, `fuzzing` | two endpoints in one process (feature `testing`); entry points of the fuzz targets: neither ships |
//!
//! # Receiving without a copy
//!
//! [`Connection::poll_receive`] returns the next step. The state machine collects headers and trailers itself.
//! Payload goes straight to the place that it names; without CRCs the driver may read it there from the socket. With
//! CRCs the driver shows each FPDU as a whole first, because nothing of it is used before its CRC has been checked;
//! see [`rx`].
//!
//! ```
//! # use iwarp::{Connection, rx::{Lookup, ReceiverStep, Piece}, tx::Transmit};
//! # trait Memory: Lookup { fn place(&mut self, piece: &Piece, bytes: &[u8]); }
//! fn receive(connection: &mut Connection, memory: &mut impl Memory, mut bytes: &[u8]) -> Result<(), iwarp::rx::ProtocolViolation> {
//!     loop {
//!         match connection.poll_receive(memory)? {
//!             ReceiverStep::Event(_) => {} // Notify the program.
//!             ReceiverStep::Closed => return Ok(()),
//!             ReceiverStep::Check(wanted) if bytes.len() < wanted => {
//!                 connection.check(bytes);
//!                 return Ok(()); // Call again with the same bytes and more.
//!             }
//!             ReceiverStep::Check(_) => connection.check(bytes),
//!             _ if bytes.is_empty() => return Ok(()),
//!             ReceiverStep::Bytes(_) => {
//!                 let taken = connection.feed(bytes);
//!                 bytes = &bytes[taken..];
//!             }
//!             ReceiverStep::Place(piece) => {
//!                 let (now, rest) = bytes.split_at(piece.len.min(bytes.len()));
//!                 memory.place(&piece, now);
//!                 connection.placed(now.len());
//!                 bytes = rest;
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! # Sending without a copy
//!
//! [`Connection::poll_transmit`] yields one FPDU at a time. Gather [`tx::Fpdu::header`], the program's buffers that
//! [`tx::Fpdu::payload`] names, and the trailer of [`tx::Fpdu::trailer_builder`] into one write, or gather several
//! FPDUs.
//!
//! # What is implemented
//!
//! | what | state | remark |
//! |---|---|---|
//! | MPA revision 1 and 2, both sides; private data; rejection; deadlines | done | the initiator falls back to revision 1 only after a reply in revision 1, and with a new connection; see [`mpa::Initiator::may_retry_as_v1`] |
//! | MPA revision 0 | never | only a draft; refused |
//! | CRC32c, used if either side asks | done | checked before anything of an FPDU is used |
//! | Markers | never | never requested; a peer that demands them is refused with a rejecting reply or a Terminate (like Linux siw) |
//! | Peer-to-peer connections; first message by Write, Read or Send | done | a responder accepts any valid first message as the signal |
//! | IRD and ORD negotiated and enforced | done | a responder that needs more reads than the initiator serves ends the connection (layer 2, code 6) |
//! | The initiator speaks first | done | our responders wait for it; a peer's responder is not forced to |
//! | MULPDU from the size of TCP's segments, changeable | done | [`mpa::mulpdu_for`], [`Connection::set_mulpdu`]; up to 64768 bytes |
//! | DDP tagged and untagged, versions, all checks of RFC 5041 section 7.1 | done | untagged messages only in order, as TCP delivers them |
//! | Send, with Solicited Event, with Invalidate, both | done | |
//! | RDMA Write, RDMA Read | done | each segment of a Write is checked; a Read Response may only go to the sink of its request |
//! | Immediate Data, with Solicited Event | done | 8 bytes |
//! | Atomics: fetch and add, compare and swap, with masks | done | 64 bits; executed in the order of their responses |
//! | Terminate, sent with the headers of the offending segment; also received in the layout of Linux siw | done | the segment length is included whenever the header is |
//! | Several DDP streams on one connection; SCTP (RFC 5043) | never | TCP has one stream |
//! | Allocating tags; waiting for buffers | left to the driver | iWARP has no receiver-not-ready: without a buffer the stream ends |
//!
//! For errors to which no RFC assigns a code: a segment shorter than its header is a DDP catastrophic error; a
//! control message that is too short or has several segments is an unspecified RDMAP operation error; a response that
//! does not fit its request is a catastrophic error of the stream.

#![forbid(unsafe_code)]

mod connection;
pub mod crc;
pub mod ddp;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod mpa;
pub mod open_requests;
pub mod rdmap;
pub mod rnr_limit;
pub mod rx;
pub mod terminate;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod testing;
pub mod tx;
pub mod wire;

pub use connection::{Connection, Limits, UnexpectedEof};
