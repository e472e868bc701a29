//! [`Firmware`]: programs that a NIC runs itself, on messages as they arrive and on commands of the host.
//!
//! Matching a message with its receive takes a processor: the host's, which must be notified first, or the NIC's own. A
//! program for the latter is an object; [`Device::load`](crate::Device::load) passes it to a NIC. It has no queue pairs
//! and no connections: it gets commands of the host and messages of other NICs' programs, one call at a time, and acts
//! through the [`NicCtx`] that each call passes to it. So the same object also runs on the host, where a library
//! provides the context, and in a test, such as this:
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
//!         let deposited = nic.deposit(0, Sge { length: len as u32, ..place });
//!         // The host sees the event only after the payload.
//!         deposited.and_then(|()| nic.event(self.events, &number.to_le_bytes())).expect("the host registered both");
//!         nic.interrupt();
//!     }
//! }
//!
//! /// A NIC that only records its calls.
//! #[derive(Default)]
//! struct Paper(Vec<String>, Span);
//!
//! impl NicCtx for Paper {
//!     fn charge(&mut self, span: Span) {
//!         self.1 += span;
//!     }
//!     fn request_turn(&mut self) {}
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
//! let calls = ["deposit 64 from 0 at 8192", "event [9, 0, 0, 0, 0, 0, 0, 0]", "interrupt"];
//! assert_eq!(nic.0, calls, "what does not fit is cut");
//! assert_eq!(nic.1, Span::from_ns(2 * 40 + 30), "two commands, and one entry that did not match");
//! ```

use std::net::SocketAddr;

use host::{Span, Step};

use crate::error::Result;
use crate::wr::Sge;

/// Limits of a NIC's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareCap {
    /// Maximum number of bytes of a command.
    pub max_command: u32,
    /// Maximum number of bytes of a message's header, which the receiving program sees.
    pub max_header: u32,
    /// Maximum number of bytes of a message's payload, which only the NIC moves.
    pub max_payload: u64,
    /// Number of messages that wait at a program before its senders get an error.
    pub max_waiting: u32,
}

/// A message as it arrives at a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The program that sent it.
    pub from: SocketAddr,
    /// The header, for the receiving program.
    pub header: &'a [u8],
    /// Bytes of payload, which the NIC holds until the call returns ([`NicCtx::deposit`]).
    pub payload_len: u64,
}

/// A program that a NIC runs. Calls come one at a time, in the order of the commands, and for messages of one sender in
/// the order in which they were sent. A call must not wait, and uses no object of the device API, only the context. The
/// fields of the object keep their values between calls.
pub trait Firmware: Send {
    /// Handles a command of the host.
    fn on_command(&mut self, nic: &mut dyn NicCtx, command: &[u8]);
    /// Handles an arrived message. Payload that is not deposited when this returns is dropped.
    fn on_message(&mut self, nic: &mut dyn NicCtx, message: &Message<'_>);
    /// Handles the turn that was requested by [`NicCtx::request_turn`].
    fn on_turn(&mut self, nic: &mut dyn NicCtx) {
        let _ = nic;
    }
}

/// Operations of the NIC that a program may request, passed to it for one call. Everything takes effect in the order of
/// the requests, also across calls: an event that follows a deposit is seen after its bytes; an event that follows a
/// send is seen after the payload was read, so the payload's memory may be used again. Memory must be registered in the
/// domain that the program was loaded with; it is host memory or the NIC's.
pub trait NicCtx {
    /// Spends `span` of the NIC's processor, which does nothing else meanwhile: nothing in real time, where running
    /// takes the time itself.
    fn charge(&mut self, span: Span);

    /// Spends the time of `n` steps of a library on the NIC's processor, which defines their costs: nothing in real
    /// time.
    fn charge_step(&mut self, _step: Step, _n: u64) {}

    /// Requests one call of [`Firmware::on_turn`], after the commands and messages that wait now; further requests
    /// before that call have no effect. For work that is too long for one call, or must be retried.
    fn request_turn(&mut self);

    /// Sends a message to the program at `to`, which may be the sender itself: `header`, and the bytes of `payload`,
    /// gathered in order; reading them requires registration but no access right. Messages of one program to another
    /// arrive once and in order. A message to an address without a loaded program is silently lost: acknowledgements
    /// are up to the programs.
    ///
    /// # Errors
    /// Nothing is sent on any of these: [`Error::Limit`](crate::Error::Limit) beyond [`FirmwareCap`];
    /// [`Error::Invalid`](crate::Error::Invalid) for an element that is not registered;
    /// [`Error::QueueFull`](crate::Error::QueueFull) if too many messages wait there; retry in a later turn.
    fn send(&mut self, to: SocketAddr, header: &[u8], payload: &[Sge]) -> Result<()>;

    /// Copies payload bytes of the message of this call into registered memory: as many as `to` has room for, from
    /// `offset` of the payload on. Any part may be deposited in any place, several times, or not at all.
    ///
    /// # Errors
    /// Nothing is written on any of these: [`Error::Limit`](crate::Error::Limit) for bytes beyond the payload, and so
    /// always in a call without a message; [`Error::Invalid`](crate::Error::Invalid) for memory that is not registered,
    /// or without [`LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    fn deposit(&mut self, offset: u64, to: Sge) -> Result<()>;

    /// Writes a record into the host's memory at the beginning of `to`: its size and its address are multiples of
    /// eight. The last eight bytes are written last and atomically, so that a processor that polls them
    /// ([`Buf::word`](crate::Buf::word)) then sees the whole record, and the effects of all earlier requests.
    ///
    /// # Errors
    /// Nothing is written on any of these: [`Error::Limit`](crate::Error::Limit) for more bytes than `to` has;
    /// [`Error::Invalid`](crate::Error::Invalid) for memory that is not registered, without
    /// [`LOCAL_WRITE`](crate::Access::LOCAL_WRITE) or that no processor can load from, and for another size or
    /// alignment.
    fn event(&mut self, to: Sge, record: &[u8]) -> Result<()>;

    /// Wakes the waiter on the [`Program`](crate::Program).
    fn interrupt(&mut self);
}
