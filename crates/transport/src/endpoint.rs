//! [`Endpoint`]: one end of a connection: its queue pair, rings and line, a backlog of queued work, and flow control. Messages arrive
//! in order, and a sender never exceeds the room at its peer.
//!
//! Where the peer's NIC memory can be mapped, all messages to it are stored there ([`Outbox`], [`DuplexLine`]). Otherwise they are
//! sent, or if both sides enable it, written ([`WriteRing`]). Each direction uses one way for as long as the connection exists; the
//! two directions may differ. A message stays in the memory where it arrived until it is released.
//!
//! A message belongs to one of the endpoint's channels. Each channel has slots, a ring and a backlog of its own, so that its messages
//! do not wait for those of another channel. The line belongs to the first channel.

use std::collections::VecDeque;

use auth::OFFER;
use verbs::{Buf, Data, Qp, QpState, Result, SendFlags, SendOp, Sge};

use crate::header::{HEADER_MAX, Header, Payload};
use crate::line::{DuplexLine, LineMessage};
use crate::nic::Nic;
use crate::queue::{MessageQueue, Signal};
use crate::ring::{Inbox, Malformed, Offer, Outbox, Record, SHARED_LINE};
use crate::write_ring::WriteRing;

/// A message without its payload, as endpoints exchange it.
pub trait Message: Header {
    /// The message without content, which returns credits.
    const CREDIT: Self;
    /// The first word of a line's message that holds payload.
    const LINE_PAYLOAD: usize;

    /// The channel that carries it.
    fn channel(&self) -> usize;

    /// The channel of a message that was sent and begins with this byte; `None` if it only returns credits.
    fn channel_of(first: u8) -> Option<usize>;

    /// The most bytes that its header may have.
    fn header_max(&self) -> usize;

    /// Whether the [`DuplexLine`] can carry it with this many bytes of payload.
    fn fits_line(&self, payload: usize) -> bool;

    /// The line's message for a message that [fits](Message::fits_line), with its payload, after this many records of the ring.
    fn encode_line(&self, payload: &impl Payload, records: u16) -> Option<LineMessage>;

    /// Reads a line's message, and returns the length of its payload. `None` for a message that no user of this version puts.
    fn decode_line(&mut self, line: &LineMessage) -> Option<usize>;
}

/// What a user of endpoints sends.
pub trait User {
    /// The messages that its endpoints exchange, without payload.
    type Message: Message;
    /// The payload of a queued message.
    type Payload: Payload;
    /// Returned when a message has left the backlog.
    type Sent;
    /// Returned when an access, or a message sent without a copy, has completed.
    type Key;
}

/// The state of a connection between a process and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnStage {
    /// No connection, and no request.
    None,
    /// This process sends a connect request.
    Connecting,
    /// The peer sent a connect request, and this process accepts it.
    Accepting,
    /// Connected now or earlier.
    Connected,
}

/// How an endpoint is set up.
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions {
    /// Whether this process sends the connect request.
    pub is_initiator: bool,
    /// The most scatter/gather elements of a message.
    pub send_sges: u32,
    /// Whether this is the first of the two sides, whose memory holds the line.
    pub is_first: bool,
    /// Bytes of the longest message in a ring.
    pub record_bytes: usize,
    /// Flags of messages that are sent, and of writes with immediate data.
    pub send_flags: SendFlags,
    /// Flags of all other writes.
    pub write_flags: SendFlags,
}

/// How a message has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By the line that both sides write.
    Line,
    /// By the ring in the peer's memory.
    Ring,
    /// By an RDMA write.
    Written,
    /// By a send.
    Sent,
}

/// The memory that holds an arrived message until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A slot.
    Slot(u32),
    /// The lines of the ring before this one.
    Record(u64),
    /// The line that both sides write.
    Line,
}

/// An arrived message whose header has been read.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The offset of its payload in [`Endpoint::memory`].
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Its channel.
    pub channel: usize,
    /// The memory that holds it.
    pub held: Held,
}

/// Work queued for the connection, for credits, or for room.
enum Work<U: User> {
    Send { message: U::Message, payload: U::Payload, key: Option<U::Key>, sent: Option<U::Sent> },
    Access { op: SendOp, piece: Sge, key: U::Key },
}

/// The state of this side's last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Not sent.
    No,
    /// Sent by the request with this number, counted in the order of posting.
    Posted(u64),
    /// Stored in the peer's memory.
    Stored,
}

/// One end of a connection with `CHANNELS` channels: 1 or 2. At most `INLINE` bytes are sent inline.
pub struct Endpoint<U: User, const CHANNELS: usize, const INLINE: usize> {
    /// The queue pair, its slots and credits.
    pub queue: MessageQueue<U::Key, CHANNELS, INLINE>,
    /// The rings in this side's memory, one for each channel, if the peer can map them. Boxed, as are the next three: in jobs of
    /// thousands of processes most devices use none, and they are the larger part of an endpoint.
    pub inboxes: [Option<Box<Inbox>>; CHANNELS],
    /// The rings in the peer's memory, if this side maps them.
    pub outboxes: [Option<Box<Outbox>>; CHANNELS],
    /// The line that both sides write: present if the first inbox and the first outbox are, on an endpoint that was opened.
    pub line: Option<Box<DuplexLine>>,
    /// The rings in both directions where messages are written; on an open endpoint only if the peer has them, too.
    pub written: Option<Box<WriteRing>>,
    /// Whether messages may be sent.
    pub is_open: bool,
    stage: ConnStage,
    /// Its completions have reserved room in the device's completion queue.
    has_room: bool,
    backlog: [VecDeque<Work<U>>; CHANNELS],
    /// The memory that the peer offers.
    offered: Option<Offer>,
    options: EndpointOptions,
    leaving: Leaving,
}

impl<U: User, const CHANNELS: usize, const INLINE: usize> std::fmt::Debug for Endpoint<U, CHANNELS, INLINE> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint(queue pair {}, open: {})", self.qp().num(), self.is_open)
    }
}

/// Setting up and closing.
impl<U: User, const CHANNELS: usize, const INLINE: usize> Endpoint<U, CHANNELS, INLINE> {
    /// Creates a queue pair with its receives posted, for the caller to connect. `number` identifies it in completions. With
    /// `written` messages may be written.
    ///
    /// # Errors
    /// As [`MessageQueue::new`].
    pub fn new(
        nic: &mut Nic,
        number: u32,
        written: Option<WriteRing>,
        options: EndpointOptions,
    ) -> Result<Self> {
        let queue = MessageQueue::new(nic, number, options.send_sges)?;
        let inboxes = match nic.inboxes::<CHANNELS>() {
            Some(inboxes) => inboxes.map(|inbox| Some(Box::new(inbox))),
            None => std::array::from_fn(|_| None),
        };
        Ok(Self {
            queue,
            inboxes,
            outboxes: std::array::from_fn(|_| None),
            line: None,
            written: written.map(Box::new),
            is_open: false,
            stage: if options.is_initiator { ConnStage::Connecting } else { ConnStage::Accepting },
            has_room: true,
            backlog: std::array::from_fn(|_| VecDeque::new()),
            offered: None,
            options,
            leaving: Leaving::No,
        })
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &Qp {
        self.queue.qp()
    }

    /// The state of the connection: [`ConnStage::Connected`] from [`Endpoint::open`] on.
    #[inline]
    pub fn stage(&self) -> ConnStage {
        self.stage
    }

    /// Whether the queue pair has failed.
    pub fn has_failed(&self) -> bool {
        self.qp().state() == QpState::Error
    }

    /// The memory that this side offers to the peer for messages, encoded; zeros if it offers none.
    pub fn offer(&self) -> [u8; OFFER] {
        let written = || self.written.as_deref().map(WriteRing::offer);
        let offer = self.inboxes[0].as_deref().map(Inbox::offer).or_else(written);
        offer.map_or([0; OFFER], |offer| offer.bytes())
    }

    /// Records the memory that the peer offers.
    pub fn set_offer(&mut self, offer: &[u8; OFFER]) {
        self.offered = Offer::parse(offer);
    }

    /// Whether the peer may map this side's NIC memory, and store messages there.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.inboxes[0].is_some()
    }

    /// Whether plain stores to the peer's memory cost less than others, as [`StoreMeter::is_near`](crate::StoreMeter::is_near) says;
    /// false where it cannot be mapped.
    pub fn is_near(&mut self) -> bool {
        self.outboxes[0].as_deref_mut().is_some_and(Outbox::is_near)
    }

    /// Whether the peer may store messages in this side's memory, or write them.
    #[inline]
    pub fn is_stored_to(&self) -> bool {
        self.is_mapped() || self.written.is_some()
    }

    /// Opens the endpoint: messages may be sent from now on, by what both sides support. Credits for slots that were released before
    /// are sent.
    ///
    /// # Errors
    /// Those of posting, and of memory that cannot be polled.
    pub fn open(&mut self) -> Result<()> {
        (self.is_open, self.stage) = (true, ConnStage::Connected);
        let (offered, options) = (self.offered.take(), self.options);
        self.written = self.written.take().and_then(|mut ring| ring.open(offered?).then_some(ring));
        if let Some(outboxes) = offered.and_then(|offer| Outbox::new(self.qp(), offer, options.record_bytes))
        {
            self.outboxes = outboxes.map(|outbox| Some(Box::new(outbox)));
        }
        if let (Some(inbox), Some(outbox)) = (&self.inboxes[0], &self.outboxes[0]) {
            let memory = if options.is_first { inbox.buf() } else { outbox.buf() };
            self.line = Some(Box::new(DuplexLine::new(memory, SHARED_LINE, options.is_first)?));
        }
        self.grant()
    }

    /// Ends all sending, and drops queued work. Messages that have arrived can still be taken.
    pub fn close(&mut self) {
        self.is_open = false;
        self.drop_backlog();
        self.qp().to_error();
    }

    /// Sends the last message of this side, which has one line, as soon as there is room; returns whether it has arrived. Its request
    /// is signaled and has no flags, so its completion proves arrival, even where other requests complete earlier.
    ///
    /// # Errors
    /// Those of posting.
    pub fn leave(&mut self, last: &U::Message) -> Result<bool> {
        match self.leaving {
            Leaving::Stored => return Ok(true),
            Leaving::Posted(place) => return Ok(self.queue.has_completed(place)),
            Leaving::No if !(self.is_open && (self.outboxes[0].is_some() || self.queue.has_room_for(1))) => {
                return Ok(false);
            }
            Leaving::No => {}
        }
        // No message may follow it.
        self.is_open = false;
        if let Some(outbox) = &mut self.outboxes[0] {
            outbox.put(last, &[].as_slice())?;
            self.leaving = Leaving::Stored;
            return self.qp().notify().map(|()| true);
        }
        match &mut self.written {
            Some(ring) => {
                let options = (self.options.write_flags, Signal::Always);
                ring.send(&mut self.queue, (last, &[].as_slice()), options, |_| ())?;
            }
            None => self.queue.send_spare(last.encode(), (SendFlags::empty(), Signal::Always))?,
        }
        self.leaving = Leaving::Posted(self.queue.posted() - 1);
        Ok(false)
    }

    /// The peer has sent its last message and receives nothing more: queued work is dropped. The line is acknowledged, since the
    /// peer may keep its memory until then.
    pub fn left(&mut self) {
        (self.is_open, self.leaving) = (false, Leaving::No);
        self.drop_backlog();
        self.acknowledge_line();
    }

    fn acknowledge_line(&mut self) {
        self.line.as_deref_mut().into_iter().for_each(DuplexLine::acknowledge);
    }

    /// Whether this side has left, but its memory may hold a message that the peer has not read.
    pub fn holds_unread(&self) -> bool {
        self.leaving == Leaving::Stored
            && self.options.is_first
            && self.line.as_ref().is_some_and(|line| line.is_unacknowledged())
    }

    /// Requests a completion for when everything sent has arrived. Stored messages have arrived already.
    ///
    /// # Errors
    /// Those of posting.
    pub fn request_idle(&mut self) -> Result<()> {
        if self.is_open && self.queue.posted() > 0 {
            self.queue.send_spare(U::Message::CREDIT.encode(), (SendFlags::empty(), Signal::Always))?;
        }
        Ok(())
    }

    /// Returns its room in the device's completion queue, unless that was done.
    pub fn give_room_back(&mut self, nic: &mut Nic) {
        if std::mem::take(&mut self.has_room) {
            nic.give_room_back();
        }
    }

    /// Destroys the endpoint, and returns its room and its memory to the device. Inboxes are not reused if the peer `may_store`
    /// there.
    pub fn destroy(mut self, nic: &mut Nic, may_store: bool) {
        self.give_room_back(nic);
        let inboxes = self.inboxes.into_iter().flatten().map(|inbox| *inbox);
        nic.give_memory_back(self.queue.into_slots(), inboxes, may_store);
    }
}

/// Sending.
impl<U: User, const CHANNELS: usize, const INLINE: usize> Endpoint<U, CHANNELS, INLINE> {
    /// Whether work waits on any channel.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.backlog.iter().any(|work| !work.is_empty())
    }

    /// The number of messages and accesses that wait.
    pub fn backlog_len(&self) -> usize {
        self.backlog.iter().map(VecDeque::len).sum()
    }

    fn drop_backlog(&mut self) {
        self.backlog.iter_mut().for_each(VecDeque::clear);
    }

    /// Takes the queued work of another endpoint, whose attempt to connect is given up.
    pub fn inherit(&mut self, given_up: &mut Self) {
        std::mem::swap(&mut self.backlog, &mut given_up.backlog);
    }

    /// Whether a message can be sent now, apart from queued work.
    #[inline]
    pub fn may_send(&mut self, message: &U::Message, payload: &impl Payload) -> bool {
        let (channel, len) = (message.channel(), message.header_max() + payload.len());
        self.is_open
            && match (&mut self.outboxes[channel], &mut self.written) {
                (Some(outbox), _) => outbox.has_room(len),
                // A record may need a second write for the wrap-around mark.
                (None, Some(ring)) => self.queue.has_room_for(2) && ring.has_room(len),
                (None, None) => self.queue.may_send(channel),
            }
    }

    /// Puts a message in the line, if it fits there and the line is free. Returns whether it did.
    #[inline]
    fn put_in_line(&mut self, message: &U::Message, payload: &impl Payload) -> Result<bool> {
        let (Some(line), Some(outbox)) = (&mut self.line, &self.outboxes[0]) else { return Ok(false) };
        if !(self.is_open && message.fits_line(payload.len()) && line.is_free()) {
            return Ok(false);
        }
        let Some(short) = message.encode_line(payload, outbox.records()) else { return Ok(false) };
        line.put(&short);
        self.queue.qp().notify().map(|()| true)
    }

    /// Sends a message; the caller has checked [`Endpoint::may_send`]. The payload may be reused when this returns, unless it is sent
    /// [without a copy](Payload::sge): a completion then returns `key`. `copied` is called with the number of bytes that are copied
    /// for a device, before the message is posted.
    ///
    /// # Errors
    /// Those of the payload and of posting.
    #[inline]
    pub fn post(
        &mut self,
        message: &U::Message,
        payload: &impl Payload,
        key: Option<U::Key>,
        copied: impl FnOnce(u64),
    ) -> Result<Path> {
        if self.put_in_line(message, payload)? {
            return Ok(Path::Line);
        }
        self.post_in_order(message, payload, key, copied)
    }

    /// As [`Endpoint::post`], for a message that the line does not carry.
    #[inline]
    fn post_in_order(
        &mut self,
        message: &U::Message,
        payload: &impl Payload,
        key: Option<U::Key>,
        copied: impl FnOnce(u64),
    ) -> Result<Path> {
        let channel = message.channel();
        if let Some(outbox) = &mut self.outboxes[channel] {
            outbox.put(message, payload)?;
            return self.queue.qp().notify().map(|()| Path::Ring);
        }
        if let Some(ring) = &mut self.written {
            let options = (self.options.write_flags, Signal::Sometimes);
            ring.send(&mut self.queue, (message, payload), options, copied)?;
            return Ok(Path::Written);
        }
        let options = (self.options.send_flags, key.map_or(Signal::Sometimes, Signal::Key));
        self.queue.send(channel, message.encode(), payload, options, copied)?;
        Ok(Path::Sent)
    }

    /// Sends a message, if no work waits on its channel and there is room; returns how, or `None` if nothing has happened.
    ///
    /// # Errors
    /// As [`Endpoint::post`].
    #[inline]
    pub fn try_send(
        &mut self,
        message: &U::Message,
        payload: &impl Payload,
        copied: impl FnOnce(u64),
    ) -> Result<Option<Path>> {
        if !self.backlog[message.channel()].is_empty() {
            return Ok(None);
        }
        if self.put_in_line(message, payload)? {
            return Ok(Some(Path::Line));
        }
        if !self.may_send(message, payload) {
            return Ok(None);
        }
        self.post_in_order(message, payload, None, copied).map(Some)
    }

    /// Queues a message; [`Endpoint::pump`] sends it. `key` is returned as by [`Endpoint::post`], and `sent` when it has been posted.
    pub fn queue_message(
        &mut self,
        message: U::Message,
        payload: U::Payload,
        key: Option<U::Key>,
        sent: Option<U::Sent>,
    ) {
        self.backlog[message.channel()].push_back(Work::Send { message, payload, key, sent });
    }

    /// Whether a request for the peer's memory can be posted now. A write with immediate data takes a credit, as a message does.
    #[inline]
    pub fn may_access(&self, op: SendOp) -> bool {
        self.is_open
            && self.queue.has_room_for(1)
            && (self.queue.has_credit(0) || !matches!(op, SendOp::WriteImm(..)))
    }

    /// Reads or changes the peer's memory, with a piece of local memory; `key` is returned with the completion. The caller has
    /// checked [`Endpoint::may_access`].
    ///
    /// # Errors
    /// Those of posting.
    pub fn access(&mut self, op: SendOp, piece: Sge, key: U::Key) -> Result<()> {
        let flags = match op {
            SendOp::WriteImm(..) => {
                self.queue.take_credit(0);
                self.options.send_flags
            }
            SendOp::Write(_) => self.options.write_flags,
            _ => SendFlags::empty(),
        };
        self.queue.post(op, Data::Sges(&[piece]), flags, Signal::Key(key))
    }

    /// Reads or changes the peer's memory as [`Endpoint::access`] does, or queues that on a channel, after all other work. Returns
    /// whether it was posted.
    ///
    /// # Errors
    /// Those of posting.
    pub fn start_access(&mut self, channel: usize, op: SendOp, piece: Sge, key: U::Key) -> Result<bool> {
        let may_access = self.backlog[channel].is_empty() && self.may_access(op);
        if may_access {
            self.access(op, piece, key)?;
        } else {
            self.backlog[channel].push_back(Work::Access { op, piece, key });
        }
        Ok(may_access)
    }

    /// Sends the queued work of a channel, as far as there is room. `copied` is called as by [`Endpoint::post`], and `posted` for
    /// each message: how it has left, its length without header, and what to return. Returns whether an access was posted.
    ///
    /// # Errors
    /// Those of the payloads and of posting.
    pub fn pump(
        &mut self,
        channel: usize,
        copied: impl Fn(u64),
        mut posted: impl FnMut(Path, &U::Message, usize, Option<U::Sent>),
    ) -> Result<bool> {
        let mut has_accessed = false;
        while let Some(work) = self.backlog[channel].pop_front() {
            match work {
                Work::Send { message, payload, key, sent } if self.may_send(&message, &payload) => {
                    let path = self.post(&message, &payload, key, &copied)?;
                    posted(path, &message, payload.len(), sent);
                }
                Work::Access { op, piece, key } if self.may_access(op) => {
                    self.access(op, piece, key)?;
                    has_accessed = true;
                }
                work => {
                    self.backlog[channel].push_front(work);
                    break;
                }
            }
        }
        Ok(has_accessed)
    }

    /// Whether all signaled requests have completed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// A request of the send queue has completed; returns its key.
    ///
    /// # Errors
    /// Those of posting a grant that has waited for room.
    pub fn completed(&mut self) -> Result<Option<U::Key>> {
        let key = self.queue.sent();
        self.grant()?;
        Ok(key)
    }

    /// Sends the peer credits for released slots, once half of a channel's slots are released, and publishes the position in a ring
    /// of written messages. If the send queue is full, this waits for the next completion.
    ///
    /// # Errors
    /// Those of posting.
    pub fn grant(&mut self) -> Result<()> {
        if let Some(ring) = &mut self.written {
            ring.publish(&mut self.queue, self.options.write_flags)?;
        }
        if self.is_open && self.queue.owes_grant() {
            let options = (self.options.send_flags, Signal::Sometimes);
            self.queue.send_spare(U::Message::CREDIT.encode(), options)?;
        }
        Ok(())
    }
}

/// Receiving.
impl<U: User, const CHANNELS: usize, const INLINE: usize> Endpoint<U, CHANNELS, INLINE> {
    /// The memory that holds a message.
    #[inline]
    pub fn memory(&self, channel: usize, held: Held) -> &Buf {
        match (held, &self.inboxes[channel], &self.line, &self.written) {
            (Held::Record(_), Some(inbox), ..) => inbox.buf(),
            (Held::Record(_), None, _, Some(ring)) => ring.buf(),
            (Held::Line, _, Some(line), _) => line.memory(),
            _ => self.queue.buf(),
        }
    }

    /// Whether the peer has stored or written another message of a channel, valid or not.
    #[inline]
    pub fn has_stored(&mut self, channel: usize) -> bool {
        self.has_record(channel) || self.written.as_deref_mut().is_some_and(WriteRing::has_record)
    }

    /// Whether the peer has stored another message of a channel, valid or not.
    #[inline]
    pub fn has_record(&self, channel: usize) -> bool {
        self.inboxes[channel].as_deref().is_some_and(Inbox::has_record)
            || (channel == 0 && self.line.as_deref().is_some_and(DuplexLine::has_message))
    }

    /// Reads the header of the next message of a channel that the peer has stored; it remains the next one until
    /// [`Endpoint::consume`].
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn peek(&mut self, channel: usize, message: &mut U::Message) -> Result<Option<Arrived>, Malformed> {
        let Some(inbox) = &mut self.inboxes[channel] else { return Ok(None) };
        // The ring is examined first: a line message put before a ring record is visible once the record is.
        let has_record = inbox.has_record();
        if channel == 0
            && let Some(line) = &self.line
            && let Some(short) = line.poll(inbox.records())
        {
            let len = message.decode_line(&short).ok_or(Malformed)?;
            let at = line.offset_of(U::Message::LINE_PAYLOAD);
            return Ok(Some(Arrived { at, len, channel, held: Held::Line }));
        }
        if has_record && let Some(Record { at, len, upto }) = inbox.poll(message)? {
            return Ok(Some(Arrived { at, len, channel, held: Held::Record(upto) }));
        }
        Ok(None)
    }

    /// Takes the next message of a channel that the peer has stored or written. Its memory does not change until
    /// [`Endpoint::release`].
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take(&mut self, channel: usize, message: &mut U::Message) -> Result<Option<Arrived>, Malformed> {
        if let Some(ring) = &mut self.written {
            if !ring.has_record() {
                return Ok(None);
            }
            let Record { at, len, upto } = ring.take(message)?;
            return Ok(Some(Arrived { at, len, channel, held: Held::Record(upto) }));
        }
        let arrived = self.peek(channel, message)?;
        match (arrived.map(|arrived| arrived.held), &mut self.inboxes[channel], &mut self.line) {
            (Some(Held::Record(upto)), Some(inbox), _) => inbox.take(upto),
            (Some(Held::Line), _, Some(line)) => line.take(),
            _ => {}
        }
        Ok(arrived)
    }

    /// A message has arrived in a slot: takes the credits with it. Returns its channel, or `None` if it has nothing but credits.
    ///
    /// # Errors
    /// [`Malformed`] for credits that this side cannot have.
    pub fn arrived(&mut self, slot: u32, len: u32) -> Result<Option<usize>> {
        let mut first = [0; 4];
        if len as usize >= first.len() {
            self.queue.buf().read(self.queue.received_at(slot), &mut first)?;
        }
        self.queue.take_credits(u16::from_le_bytes([first[2], first[3]]))?;
        Ok(U::Message::channel_of(first[0]))
    }

    /// Reads the header of a message of `len` bytes in a slot.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(
        &self,
        channel: usize,
        (slot, len): (u32, u32),
        message: &mut U::Message,
    ) -> Result<Arrived> {
        let (begin, len) = (self.queue.received_at(slot), len as usize);
        let mut bytes = [0; HEADER_MAX];
        let known = len.min(HEADER_MAX);
        self.queue.buf().read(begin, &mut bytes[..known])?;
        let behind = message.decode(&bytes[..known], len).ok_or(Malformed)?;
        let payload = len.checked_sub(behind).ok_or(Malformed)?;
        Ok(Arrived { at: begin + behind, len: payload, channel, held: Held::Slot(slot) })
    }

    /// Takes and releases the message that [`Endpoint::peek`] has returned, or releases the slot of one.
    ///
    /// # Errors
    /// Those of posting.
    #[inline]
    pub fn consume(&mut self, arrived: &Arrived) -> Result<()> {
        match (arrived.held, &mut self.inboxes[arrived.channel], &mut self.line) {
            (Held::Record(upto), Some(inbox), _) => {
                if inbox.consume(upto) {
                    self.queue.qp().notify()
                } else {
                    Ok(())
                }
            }
            (Held::Line, _, Some(line)) => {
                line.consume();
                if !self.is_open {
                    line.acknowledge();
                }
                Ok(())
            }
            (held, ..) => self.release(arrived.channel, held),
        }
    }

    /// Releases the memory of a message to the peer.
    ///
    /// # Errors
    /// Those of posting.
    #[inline]
    pub fn release(&mut self, channel: usize, held: Held) -> Result<()> {
        match held {
            Held::Slot(slot) => {
                self.queue.release(slot, channel)?;
                self.grant()
            }
            Held::Record(upto) => {
                if let Some(inbox) = &mut self.inboxes[channel] {
                    return if inbox.release(upto) { self.queue.qp().notify() } else { Ok(()) };
                }
                match &mut self.written {
                    Some(ring) => {
                        ring.release(upto);
                        ring.publish(&mut self.queue, self.options.write_flags)
                    }
                    None => Ok(()),
                }
            }
            Held::Line => {
                self.line.as_deref_mut().into_iter().for_each(DuplexLine::release);
                if !self.is_open {
                    self.acknowledge_line();
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use host::{Host, Rng};
    use verbs::{CmEvent, ConnParam, Screen, ScreenRequest, Verdict};

    use super::*;
    use crate::header::{HeaderBytes, LINE_WORDS};
    use crate::nic::{NicConfig, QueueSizes};
    use crate::queue::of_completion;

    const SIZES: QueueSizes =
        QueueSizes { slots: 8, spare: 6, accesses: 0, slot_bytes: 512, ring_bytes: 4096 };
    const HEAD: usize = 16;
    const LINE_MAX: usize = 8;
    const CREDIT: u8 = 3;

    /// A message of a channel, whose kind is the channel and 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Numbered {
        channel: u8,
        number: u64,
    }

    const NONE: Numbered = Numbered { channel: CREDIT - 1, number: 0 };

    impl Header for Numbered {
        type Short = [u64; 2];

        fn encode_short(&self) -> Option<[u64; 2]> {
            Some([u64::from(self.channel) + 1, self.number])
        }

        fn encode(&self) -> HeaderBytes {
            HeaderBytes::from_words([u64::from(self.channel) + 1, self.number])
        }

        fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
            *self = Self { channel: (line[0] as u8).checked_sub(1)?, number: line[1] };
            (total >= HEAD).then_some(HEAD)
        }

        fn decode(&mut self, bytes: &[u8], _total: usize) -> Option<usize> {
            let words: &[[u8; 8]; 2] = bytes.as_chunks().0.first_chunk()?;
            let [first, number] = words.map(u64::from_le_bytes);
            *self = Self { channel: (first as u8).checked_sub(1)?, number };
            Some(HEAD)
        }
    }

    /// The line carries messages of the first channel with up to eight bytes.
    impl Message for Numbered {
        const CREDIT: Self = NONE;
        const LINE_PAYLOAD: usize = 1;

        fn channel(&self) -> usize {
            usize::from(self.channel)
        }

        fn channel_of(first: u8) -> Option<usize> {
            (first != CREDIT).then(|| usize::from(first) - 1)
        }

        fn header_max(&self) -> usize {
            HEAD
        }

        fn fits_line(&self, payload: usize) -> bool {
            self.channel == 0 && payload <= LINE_MAX
        }

        fn encode_line(&self, payload: &impl Payload, records: u16) -> Option<LineMessage> {
            let mut bytes = [0; LINE_MAX];
            payload.load(&mut bytes[..payload.len()]);
            let words = [self.number, u64::from_ne_bytes(bytes), 0];
            Some(LineMessage { kind: payload.len() as u8, records, label: 0, words })
        }

        fn decode_line(&mut self, line: &LineMessage) -> Option<usize> {
            *self = Self { channel: 0, number: line.words[0] };
            Some(usize::from(line.kind))
        }
    }

    struct Bytes(Vec<u8>);

    impl Payload for Bytes {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn load(&self, into: &mut [u8]) {
            into.copy_from_slice(&self.0);
        }

        fn copy_to(&self, memory: &Buf, at: usize) -> Result<()> {
            memory.write(at, &self.0)
        }
    }

    enum Test {}

    impl User for Test {
        type Message = Numbered;
        type Payload = Bytes;
        type Sent = u64;
        type Key = u64;
    }

    struct All;

    impl Screen for All {
        fn screen(&self, _request: &ScreenRequest<'_>) -> Verdict {
            Verdict::Pass(Box::new(()))
        }
    }

    struct Side {
        nic: Nic,
        endpoint: Endpoint<Test, 2, 64>,
        /// Messages that have arrived in slots, and numbers of the next message of each channel.
        slots: [VecDeque<(u32, u32)>; 2],
        sent: [u64; 2],
        received: [u64; 2],
    }

    impl Side {
        fn new(host: &Host, device: &str, is_first: bool) -> Self {
            let device = fabric::open(device, host).expect("a device");
            let address = device.attr().port_addrs.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
            let config = NicConfig {
                sizes: SIZES,
                inline: 64,
                cqe: 2 * SIZES.completions(),
                slab_connections: 2,
                listen_at: (&[address], 0),
                backlog: 1,
                register_all: |_| Ok(None),
                caches: false,
                split_receives: false,
            };
            let screen: Arc<dyn Screen> = Arc::new(All);
            let mut nic = Nic::open(&device, &config, &screen).expect("a port");
            let endpoint = Endpoint::new(&mut nic, 0, None, options(is_first)).expect("room");
            Self { nic, endpoint, slots: Default::default(), sent: [0; 2], received: [0; 2] }
        }

        fn event(&self, host: &Host) -> CmEvent {
            let cm = &self.nic.cm;
            host.wait("test", cm, None, || cm.poll_event()).expect("there is no deadline")
        }

        /// Sends the next message of a channel now, or queues it.
        fn send(&mut self, channel: u8) {
            let number = &mut self.sent[usize::from(channel)];
            let (message, payload) = (Numbered { channel, number: *number }, payload(*number));
            *number += 1;
            let path = self.endpoint.try_send(&message, &payload.as_slice(), |_| ()).expect("posted");
            if path.is_none() {
                self.endpoint.queue_message(message, Bytes(payload), None, Some(message.number));
            }
        }

        fn poll(&mut self) {
            while let Some(wc) = self.nic.next_completion().expect("a queue") {
                assert!(wc.is_ok(), "{:?}", wc.status);
                let (_, Some(slot)) = of_completion(&wc) else {
                    self.endpoint.completed().expect("posted");
                    continue;
                };
                match self.endpoint.arrived(slot, wc.byte_len).expect("its credits") {
                    Some(channel) => self.slots[channel].push_back((slot, wc.byte_len)),
                    None => self.endpoint.queue.post_receive(slot).expect("posted"),
                }
            }
            for channel in 0..2 {
                self.endpoint.pump(channel, |_| (), |_, _, _, sent| assert!(sent.is_some())).expect("posted");
            }
        }

        /// Takes and checks the next message of a channel; returns whether there was one.
        fn take(&mut self, channel: usize) -> bool {
            let mut message = NONE;
            let stored = self.endpoint.peek(channel, &mut message).expect("a valid message");
            let arrived = stored.or_else(|| {
                let slot = self.slots[channel].pop_front()?;
                Some(self.endpoint.decode(channel, slot, &mut message).expect("a valid message"))
            });
            let Some(arrived) = arrived else { return false };
            let memory = self.endpoint.memory(channel, arrived.held);
            let bytes = memory.to_vec(arrived.at..arrived.at + arrived.len).expect("inside");
            let number = self.received[channel];
            assert_eq!((message, bytes), (Numbered { channel: channel as u8, number }, payload(number)));
            self.received[channel] += 1;
            self.endpoint.consume(&arrived).expect("posted");
            true
        }
    }

    fn options(is_first: bool) -> EndpointOptions {
        EndpointOptions {
            is_initiator: is_first,
            send_sges: 1,
            is_first,
            record_bytes: SIZES.slot_bytes,
            send_flags: SendFlags::empty(),
            write_flags: SendFlags::empty(),
        }
    }

    /// The bytes of a message: 1 to 64, so that the line carries some.
    fn payload(number: u64) -> Vec<u8> {
        vec![number as u8; 1 + (number * 37) as usize % 64]
    }

    fn pair(device: &str) -> [Side; 2] {
        let host = host::real::host();
        let mut sides = [true, false].map(|is_first| Side::new(&host, device, is_first));
        let [one, other] = &mut sides;
        let offers = [&*one, &*other].map(|side| side.endpoint.offer());
        one.endpoint.set_offer(&offers[1]);
        other.endpoint.set_offer(&offers[0]);
        one.nic.cm.connect(one.endpoint.qp(), other.nic.addr(), &ConnParam::default()).expect("a request");
        let CmEvent::ConnectRequest(request) = other.event(&host) else { panic!("no request") };
        other.nic.cm.accept(request, other.endpoint.qp(), &ConnParam::default()).expect("an answer");
        for side in &mut sides {
            assert!(matches!(side.event(&host), CmEvent::Established { .. }));
            assert_ne!(side.endpoint.stage(), ConnStage::Connected);
            side.endpoint.open().expect("opened");
            assert_eq!(side.endpoint.stage(), ConnStage::Connected);
        }
        sides
    }

    /// Goal: messages of both channels arrive whole and in order, by whatever path. Method: random turns.
    fn messages_of_both_channels_arrive_in_order(device: &str) {
        let (mut sides, mut rng, mut waited) = (pair(device), Rng::new(7), 0);
        while sides.iter().any(|side| side.received != [500; 2]) {
            let side = &mut sides[rng.next_u64() as usize % 2];
            let channel = rng.next_u64() as usize % 2;
            for _ in 0..rng.next_u64() % 6 {
                if side.sent[channel] < 500 {
                    side.send(channel as u8);
                }
            }
            waited += side.endpoint.backlog_len();
            side.poll();
            while rng.one_in(2) && side.take(channel) {}
        }
        assert!(waited > 100, "{waited}");
        assert!(sides.iter().all(|side| !side.endpoint.has_backlog()));
    }

    #[test]
    fn messages_of_both_channels_arrive_in_order_on_shm() {
        messages_of_both_channels_arrive_in_order("shm");
    }

    #[test]
    fn messages_of_both_channels_arrive_in_order_on_iwarp() {
        messages_of_both_channels_arrive_in_order("iwarp");
    }

    /// Goal: the last message arrives after all others, and none is sent after it.
    fn last_message_ends_a_side(device: &str) {
        let [mut from, mut to] = pair(device);
        (0..3).for_each(|_| from.send(1));
        let last = Numbered { channel: 1, number: 3 };
        while !from.endpoint.leave(&last).expect("posted") {
            from.poll();
        }
        assert!(!from.endpoint.may_send(&last, &[].as_slice()));
        while to.received[1] < 3 {
            to.poll();
            to.take(1);
        }
    }

    #[test]
    fn last_message_ends_a_side_on_shm() {
        last_message_ends_a_side("shm");
    }

    #[test]
    fn last_message_ends_a_side_on_iwarp() {
        last_message_ends_a_side("iwarp");
    }

    #[test]
    fn work_of_a_given_up_attempt_is_sent_by_its_replacement() {
        let mut side = Side::new(&host::real::host(), "iwarp", true);
        (0..3).for_each(|_| side.send(0));
        let mut other = Endpoint::<Test, 2, 64>::new(&mut side.nic, 1, None, options(false)).expect("room");
        other.inherit(&mut side.endpoint);
        assert_eq!((side.endpoint.backlog_len(), other.backlog_len()), (0, 3));
    }
}
