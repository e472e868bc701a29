//! [`Connection`]: the [endpoint](transport::Endpoint) to another process, with what Portals adds: its payloads, and
//! messages that wait where they arrived.
//!
//! A request may wait at the target, and its initiator may wait for an answer from there. So each virtual
//! channel has its own credits, and its messages are read whatever waits on the other.

use std::borrow::Cow;
use std::collections::VecDeque;

use transport::{Arrived, Endpoint, EndpointOptions, Held, Malformed, Message as _, Nic};
use verbs::{Buf, Result, SendFlags};

use crate::link::memory;
use crate::link::nic::{INLINE, SLOT_BYTES};
use crate::link::wire::{HEAD_MAX, Message, VirtualChannel};
use crate::objects::process::Process;
use crate::objects::region::Region;

/// Maximum bytes of inline data; longer data are transferred by RDMA.
pub const EAGER_MAX: u64 = (SLOT_BYTES - HEAD_MAX) as u64;

/// The data of a message.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes of this library, or none.
    Bytes(Cow<'a, [u8]>),
    /// User memory: region, offset and length.
    User {
        /// The memory.
        region: Cow<'a, Region>,
        /// Offset of the data.
        offset: u64,
        /// Length in bytes.
        len: usize,
        /// The memory stays unchanged until the message has left, not only until the call returns.
        stays: bool,
    },
}

impl Payload<'_> {
    /// A payload without data.
    pub(crate) const NONE: Self = Self::Bytes(Cow::Borrowed(&[]));

    /// A payload that can be queued after the call returns.
    fn kept(self) -> Payload<'static> {
        match self {
            Self::User { region, offset, len, stays: true } => {
                Payload::User { region: Cow::Owned(region.into_owned()), offset, len, stays: true }
            }
            Self::User { len, .. } => {
                let mut bytes = vec![0; len];
                transport::Payload::load(&self, &mut bytes);
                Payload::Bytes(bytes.into())
            }
            Self::Bytes(bytes) => Payload::Bytes(Cow::Owned(bytes.into_owned())),
        }
    }
}

impl transport::Payload for Payload<'_> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::User { len, .. } => *len,
        }
    }

    #[inline]
    fn load(&self, into: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => into.copy_from_slice(bytes),
            Self::User { region, offset, .. } => memory::load(region, *offset, into),
        }
    }

    #[inline]
    fn copy_to(&self, buf: &Buf, at: usize) -> Result<()> {
        match self {
            Self::Bytes(bytes) => buf.write(at, bytes),
            Self::User { region, offset, len, .. } => memory::load_to(region, *offset, *len, (buf, at)),
        }
    }
}

/// Portals as a user of endpoints.
pub(crate) enum Portals {}

impl transport::User for Portals {
    type Message = Message;
    type Payload = Payload<'static>;
    /// Interface and operation.
    type Sent = (u8, u64);
    type Key = u64;
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The process at the other end.
    pub(crate) peer: Process,
    /// Whether this process sent the connect request.
    pub(crate) is_active: bool,
    /// The peer's own attempt wins; the outcome of this one does not matter.
    pub(crate) is_given_up: bool,
    /// Nothing is sent any more; messages that have arrived can still be read.
    pub(crate) is_lost: bool,
    /// It is in the list of links with messages of [`Connections`](super::connections::Connections).
    pub(crate) is_readable: bool,
    /// The peer has violated the protocol: no more messages are read.
    ignores_messages: bool,
    /// The queue pair, rings and flow control.
    pub(crate) endpoint: Endpoint<Portals, 2, INLINE>,
    /// For each virtual channel: slots with messages that were not released, and the bytes in each.
    arrived: [VecDeque<(u32, u32)>; 2],
}

impl Connection {
    /// A queue pair with its receives posted. `number` identifies it in completions.
    pub(crate) fn new(nic: &mut Nic, number: u32, peer: Process, is_active: bool) -> Result<Self> {
        let options = EndpointOptions {
            is_initiator: is_active,
            send_sges: 1,
            is_first: is_active,
            record_bytes: SLOT_BYTES,
            send_flags: SendFlags::empty(),
            write_flags: SendFlags::empty(),
        };
        Ok(Self {
            peer,
            is_active,
            is_given_up: false,
            is_lost: false,
            is_readable: false,
            ignores_messages: false,
            endpoint: Endpoint::new(nic, number, None, options)?,
            arrived: Default::default(),
        })
    }

    /// Whether messages can arrive, and ring space become free, without a completion.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        self.endpoint.is_mapped() || self.endpoint.outboxes[0].is_some()
    }

    /// Ends all sending. Messages that have arrived are dropped, unless `keep_received`.
    pub(crate) fn end(&mut self, keep_received: bool) {
        (self.is_lost, self.ignores_messages) = (true, !keep_received);
        self.endpoint.close();
    }

    /// Sends a message, or queues it until there is room; returns whether it has left.
    #[inline]
    pub(crate) fn send(
        &mut self,
        message: Message,
        payload: Payload<'_>,
        report: Option<(u8, u64)>,
    ) -> Result<bool> {
        if self.try_send(&message, &payload)? {
            return Ok(true);
        }
        self.endpoint.queue_message(message, payload.kept(), None, report);
        Ok(false)
    }

    /// Sends a message if there is room now; returns whether it has left.
    #[inline]
    pub(crate) fn try_send(&mut self, message: &Message, payload: &Payload<'_>) -> Result<bool> {
        self.endpoint.try_send(message, payload, |_| ()).map(|path| path.is_some())
    }

    /// Sends queued work as far as there is room; appends the reportable operations that have left to `left`.
    pub(crate) fn pump(&mut self, left: &mut Vec<(u8, u64)>) -> Result<()> {
        VirtualChannel::ALL.into_iter().try_for_each(|channel| {
            self.endpoint.pump(channel as usize, |_| (), |_, _, _, sent| left.extend(sent)).map(drop)
        })
    }

    /// A message has arrived in a slot.
    ///
    /// # Errors
    /// [`Malformed`], for credits that the peer did not have.
    pub(crate) fn received(&mut self, slot: u32, len: u32) -> Result<()> {
        match self.endpoint.arrived(slot, len)? {
            Some(channel) => self.arrived[channel].push_back((slot, len)),
            None if self.is_lost => {}
            None => self.endpoint.queue.post_receive(slot)?,
        }
        Ok(())
    }

    /// Whether there is more to do than to read requests: an answer has arrived, or work is queued.
    #[inline]
    pub(crate) fn has_more_than_requests(&self) -> bool {
        let answers = VirtualChannel::Answer as usize;
        self.endpoint.has_record(answers) || !self.arrived[answers].is_empty() || self.endpoint.has_backlog()
    }

    /// Whether a request has arrived.
    #[inline]
    pub(crate) fn has_request(&self) -> bool {
        self.has_record() || !self.arrived[VirtualChannel::Request as usize].is_empty()
    }

    /// Whether a request may have been stored in this process's memory.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        self.endpoint.has_record(VirtualChannel::Request as usize)
    }

    /// The memory that holds a message.
    #[inline]
    pub(crate) fn memory(&self, arrived: &Arrived) -> &Buf {
        self.endpoint.memory(arrived.channel, arrived.held)
    }

    /// Decodes the next message of one virtual channel into `message`; it stays the next one until
    /// [`Connection::release`].
    ///
    /// # Errors
    /// [`Malformed`], for a message that violates the protocol.
    #[inline]
    pub(crate) fn peek(&mut self, channel: VirtualChannel, message: &mut Message) -> Result<Option<Arrived>> {
        let channel = channel as usize;
        if self.ignores_messages {
            return Ok(None);
        }
        if let Some(arrived) = self.endpoint.peek(channel, message)? {
            return if message.channel() == channel { Ok(Some(arrived)) } else { Err(Malformed.into()) };
        }
        match self.arrived[channel].front() {
            Some(slot) => self.endpoint.decode(channel, *slot, message).map(Some),
            None => Ok(None),
        }
    }

    /// Releases the message that [`Connection::peek`] returned.
    #[inline]
    pub(crate) fn release(&mut self, arrived: &Arrived) -> Result<()> {
        if let Held::Slot(_) = arrived.held {
            self.arrived[arrived.channel].pop_front();
            if self.is_lost {
                return Ok(());
            }
        }
        self.endpoint.consume(arrived)
    }
}
