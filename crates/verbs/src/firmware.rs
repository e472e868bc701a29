//! [`Firmware`]: programs that a NIC runs itself, on messages as they arrive and on commands of the host.
//!
//! Matching a message with the receive that it is meant for takes a processor: the host's, which must be told first, or the
//! NIC's own. A program for the latter is an object; [`Device::load`](crate::Device::load) hands it to a NIC. It has no queue pairs and no
//! connections: it gets commands of the host and messages of other NICs' programs, one call at a time, and acts through the
//! [`NicCtx`] that each call lends it. So the same object also runs on the host, where a library gives it a context of its own,
//! and in a test, as here:
//!
//! ```
//! use host::Span;
//! use std::net::SocketAddr;
//! use verbs::{Firmware, Message, NicCtx, Result, Sge};
//!
//! /// Receives in the order in which they were posted, each for a message with its number.
//! #[derive(Default)]
//! struct Matching {
//!     posted: Vec<(u64, Sge)>,
//!     events: Sge,
//! }
//!
//! impl Firmware for Matching {
//!     /// A receive: number, address, length, key.
//!     fn on_command(&mut self, nic: &mut dyn NicCtx, command: &[u8]) {
//!         nic.charge(Span::from_ns(40));
//!         let long = |at: usize| u64::from_le_bytes(command[at..at + 8].try_into().expect("eight"));
//!         let short = |at: usize| u32::from_le_bytes(command[at..at + 4].try_into().expect("four"));
//!         let place = Sge { addr: long(8), length: short(16), lkey: short(20) };
//!         self.posted.push((long(0), place));
//!     }
//!
//!     fn on_message(&mut self, nic: &mut dyn NicCtx, message: &Message<'_>) {
//!         let number = u64::from_le_bytes(message.header.try_into().expect("our programs send eight"));
//!         let found = self.posted.iter().position(|(wanted, _)| *wanted == number);
//!         nic.charge(Span::from_ns(30) * found.unwrap_or(self.posted.len()) as u64);
//!         let Some((_, place)) = found.map(|at| self.posted.remove(at)) else { return };
//!         let len = message.payload_len.min(place.length.into());
//!         let told = nic.deposit(0, Sge { length: len as u32, ..place });
//!         // The host sees the event only when the payload is there.
//!         told.and_then(|()| nic.event(self.events, &number.to_le_bytes())).expect("the host registered both");
//!         nic.interrupt();
//!     }
//! }
//!
//! /// A NIC that only remembers what it is told.
//! #[derive(Default)]
//! struct Paper(Vec<String>, Span);
//!
//! impl NicCtx for Paper {
//!     fn charge(&mut self, span: Span) {
//!         self.1 += span;
//!     }
//!     fn poll_turn(&mut self) {}
//!     fn send(&mut self, to: SocketAddr, _: &[u8], _: &[Sge]) -> Result<()> {
//!         Ok(self.0.push(format!("send to {to}")))
//!     }
//!     fn deposit(&mut self, offset: u64, to: Sge) -> Result<()> {
//!         Ok(self.0.push(format!("deposit {} from {offset} at {}", to.length, to.addr)))
//!     }
//!     fn event(&mut self, _: Sge, record: &[u8]) -> Result<()> {
//!         Ok(self.0.push(format!("event {record:?}")))
//!     }
//!     fn interrupt(&mut self) {
//!         self.0.push("interrupt".into());
//!     }
//! }
//!
//! let (mut program, mut nic) = (Matching::default(), Paper::default());
//! for (number, at) in [(7_u64, 0x1000_u64), (9, 0x2000)] {
//!     let mut command = Vec::new();
//!     command.extend(number.to_le_bytes());
//!     command.extend(at.to_le_bytes());
//!     command.extend([64, 0, 0, 0, 1, 0, 0, 0]);
//!     program.on_command(&mut nic, &command);
//! }
//! let from = "10.1.0.2:50000".parse().expect("an address");
//! program.on_message(&mut nic, &Message { from, header: &9_u64.to_le_bytes(), payload_len: 200 });
//! let told = ["deposit 64 from 0 at 8192", "event [9, 0, 0, 0, 0, 0, 0, 0]", "interrupt"];
//! assert_eq!(nic.0, told, "what does not fit is cut");
//! assert_eq!(nic.1, Span::from_ns(2 * 40 + 30), "two commands, and one entry that did not match");
//! ```

use std::net::SocketAddr;

use host::{Span, Step};

use crate::error::Result;
use crate::wr::Sge;

/// What a NIC's programs may say and be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareCap {
    /// Bytes of a command.
    pub max_command: u32,
    /// Bytes of a message's header, which the receiving program sees.
    pub max_header: u32,
    /// Bytes of a message's payload, which only the NIC moves.
    pub max_payload: u64,
    /// Messages that wait at a program before those that send to it are told so.
    pub max_waiting: u32,
}

/// A message as it arrives at a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The program that sent it.
    pub from: SocketAddr,
    /// What it said to this one.
    pub header: &'a [u8],
    /// Bytes of payload, which the NIC holds until the call returns ([`NicCtx::deposit`]).
    pub payload_len: u64,
}

/// A program that a NIC runs. Calls come one at a time, in the order in which commands were given, and messages of one sender in
/// the order in which they were sent. A call does what it can at once: it waits for nothing, and uses no object of the device
/// API, only the context. What it leaves in its own fields is there at the next call.
pub trait Firmware: Send {
    /// The host has given a command.
    fn on_command(&mut self, nic: &mut dyn NicCtx, command: &[u8]);
    /// A message has arrived. Payload that is not deposited when this returns is dropped.
    fn on_message(&mut self, nic: &mut dyn NicCtx, message: &Message<'_>);
    /// The turn that was asked for ([`NicCtx::poll_turn`]).
    fn on_turn(&mut self, nic: &mut dyn NicCtx) {
        let _ = nic;
    }
}

/// What a program may have its NIC do, lent to it for one call. Everything takes effect in the order in which it is told, also
/// from call to call: an event that follows a deposit is seen after its bytes, and one that follows a send after the payload was
/// read, so that it may be used again. Memory is what is registered in the domain that the program was loaded with, host
/// memory or the NIC's.
pub trait NicCtx {
    /// Spends `span` of the NIC's processor, which does nothing else meanwhile: nothing in real time, where running takes its time.
    fn charge(&mut self, span: Span);

    /// Spends what `n` steps of a library take on the NIC's processor, which knows: nothing in real time.
    fn charge_step(&mut self, _step: Step, _n: u64) {}

    /// Asks for one call of [`Firmware::on_turn`], after the commands and messages that wait now; asking twice before it comes is
    /// asking once. For what is too long for one call, or has to be tried again.
    fn poll_turn(&mut self);

    /// Sends a message to the program at `to`, perhaps this very one: `header`, and the bytes of `payload`, gathered in order, read
    /// with no right beyond registration. Messages of one program to another arrive once and in order. One to an address where no
    /// program is loaded when it arrives is lost without a word: an acknowledgement is the programs' own affair.
    ///
    /// # Errors
    /// Nothing is sent on any of these: [`Error::Limit`](crate::Error::Limit) beyond [`FirmwareCap`]; [`Error::Invalid`](crate::Error::Invalid) for a piece that is not
    /// registered; [`Error::QueueFull`](crate::Error::QueueFull) when too many messages wait there, to be tried again in a later turn.
    fn send(&mut self, to: SocketAddr, header: &[u8], payload: &[Sge]) -> Result<()>;

    /// Puts bytes of the payload of the message that this call is about into registered memory: as many as `to` has room for,
    /// from `offset` of the payload on. Any part may go anywhere, several times, or nowhere.
    ///
    /// # Errors
    /// Nothing is written on any of these: [`Error::Limit`](crate::Error::Limit) for bytes that the payload does not have, so always when the call is
    /// not about a message; [`Error::Invalid`](crate::Error::Invalid) for memory that is not registered, or without
    /// [`LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    fn deposit(&mut self, offset: u64, to: Sge) -> Result<()>;

    /// Writes a record into the host's memory at the beginning of `to`: the record has a multiple of eight bytes and lies at an
    /// address that is one. The last eight are written last and in one piece, so that a processor that polls for them
    /// ([`Buf::word`](crate::Buf::word)) then sees the whole record, and everything told before.
    ///
    /// # Errors
    /// Nothing is written on any of these: [`Error::Limit`](crate::Error::Limit) for more bytes than `to` has; [`Error::Invalid`](crate::Error::Invalid) for memory that is not
    /// registered, without [`LOCAL_WRITE`](crate::Access::LOCAL_WRITE) or that no processor can load from, and for another size or
    /// alignment.
    fn event(&mut self, to: Sge, record: &[u8]) -> Result<()>;

    /// Wakes who sleeps on the [`Program`](crate::Program).
    fn interrupt(&mut self);
}
