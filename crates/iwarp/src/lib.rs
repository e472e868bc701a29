//! iWARP as state machines: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306).
//!
//! Bytes in, bytes out. There is no socket, no clock, no thread and no unsafe code here; time is an argument, counted from
//! any epoch that the caller keeps to, and everything that a peer can make these machines hold is bounded. What drives them
//! over TCP, in virtual time or in a test moves the bytes and owns the memory.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mpa`] | the handshake of either side: [`mpa::Initiator`], [`mpa::Responder`] |
//! | [`rx`] | what the next bytes of the stream are for; what has been delivered: [`rx::Receiver`], [`rx::Lookup`] |
//! | [`tx`] | from operations to FPDUs: [`tx::Sender`], [`tx::Fpdu`] |
//! | [`outcome`] | which request a Terminate is about, and what has arrived |
//! | [`Connection`] | both directions, and what they must tell each other |
//! | [`ddp`], [`rdmap`], [`terminate`] | headers and messages |
//! | [`crc`], [`wire`] | CRC32c; bytes |
//! | `testing`, `fuzzing` | two ends in one process (feature `testing`); what the fuzz targets call: neither ships |
//!
//! # Receiving without a copy
//!
//! [`Connection::poll_receive`] says what is next. Headers and trailers are collected in the machine; payload goes where it
//! says, without CRCs straight from the socket if the driver likes. With CRCs an FPDU is shown as a whole first, because nothing
//! of it is used before its CRC was compared; [`rx`] says more.
//!
//! ```
//! # use iwarp::{Connection, rx::{Lookup, Receive, Piece}, tx::Transmit};
//! # trait Memory: Lookup { fn place(&mut self, piece: &Piece, bytes: &[u8]); }
//! fn receive(connection: &mut Connection, memory: &mut impl Memory, mut bytes: &[u8]) -> Result<(), iwarp::rx::Failure> {
//!     loop {
//!         match connection.poll_receive(memory)? {
//!             Receive::Event(_) => {} // Tell the program.
//!             Receive::Closed => return Ok(()),
//!             Receive::Check(wanted) if bytes.len() < wanted => {
//!                 connection.check(bytes);
//!                 return Ok(()); // Come back with the same bytes, and more.
//!             }
//!             Receive::Check(_) => connection.check(bytes),
//!             _ if bytes.is_empty() => return Ok(()),
//!             Receive::Bytes(_) => {
//!                 let taken = connection.feed(bytes);
//!                 bytes = &bytes[taken..];
//!             }
//!             Receive::Place(piece) => {
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
//! [`Connection::poll_transmit`] yields one FPDU after the other. Gather [`tx::Fpdu::header`], the program's pieces that
//! [`tx::Fpdu::payload`] names, and the trailer of [`tx::Fpdu::seal`] into one write; or several FPDUs.
//!
//! # What is implemented
//!
//! | what | state | remark |
//! |---|---|---|
//! | MPA revision 1 and 2, both sides; private data; rejection; deadlines | done | initiator's fall-back to 1 needs an answer in 1 and a new connection, see [`mpa::Initiator::may_retry_as_v1`] |
//! | MPA revision 0 | never | a draft; refused |
//! | CRC32c, used if either side asks | done | checked before anything of an FPDU is used |
//! | Markers | never | not asked for; a peer that demands them is refused: a rejecting reply, or Terminate (Linux siw does the same) |
//! | Peer-to-peer connections; first message by Write, Read or Send | done | a responder takes any valid first message as the sign |
//! | IRD and ORD negotiated, and held | done | a responder that wants more reads than the initiator serves ends the connection (layer 2, code 6) |
//! | The initiator speaks first | done | enforced on this side's responders; of a peer it is not demanded |
//! | MULPDU from the size of TCP's segments, changeable | done | [`mpa::mulpdu_for`], [`Connection::set_mulpdu`]; up to 64768 bytes |
//! | DDP tagged and untagged, versions, all checks of RFC 5041 section 7.1 | done | untagged messages in order only, as TCP delivers them |
//! | Send, with Solicited Event, with Invalidate, both | done | |
//! | RDMA Write, RDMA Read | done | segments of a Write are checked one by one; a Read's answer only goes where it was asked to |
//! | Immediate Data, with Solicited Event | done | 8 bytes |
//! | Atomics: fetch and add, compare and swap, with masks | done | 64 bits; carried out in the order of their answers |
//! | Terminate, sent with the headers in question, received also in the layout of Linux siw | done | the length is given whenever the header is |
//! | Several DDP streams on one connection; SCTP (RFC 5043) | never | TCP has one stream |
//! | Allocating tags; waiting for buffers | above | iWARP has no receiver-not-ready: without a buffer the stream ends |
//!
//! Where no RFC has a code: a segment shorter than its header is a DDP catastrophic error; a control message that is too short
//! or in several segments, an unspecified RDMAP operation error; an answer that does not fit its request, a catastrophic
//! error of the stream.

#![forbid(unsafe_code)]

mod connection;
pub mod crc;
pub mod ddp;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod mpa;
pub mod outcome;
pub mod rdmap;
pub mod rnr_limit;
pub mod rx;
pub mod terminate;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod testing;
pub mod tx;
pub mod wire;

pub use connection::{Connection, Cut, Limits};
