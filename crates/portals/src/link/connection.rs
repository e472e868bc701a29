//! [`Connection`]: a queue pair with another process, and its flow control. Messages arrive in order, and no
//! one sends without room at the peer.
//!
//! A request may wait at the target, and its initiator may wait for an answer from there. So each virtual
//! channel has its own credits, and its messages are read whatever waits on the other.
//!
//! If the peer's memory can be mapped, all messages are stored there ([`Outbox`], [`DuplexLine`]); otherwise
//! they are sent. Each side uses one method for the life of the link. A message stays in the memory where it
//! arrived until it is released.

use std::borrow::Cow;
use std::collections::VecDeque;

use transport::{
    DuplexLine, Header as _, Inbox, MessageQueue, Nic, Offer, Outbox, Payload as _, Record, SHARED_LINE,
    Signal, Slots,
};
use verbs::{Buf, Data, Error, Qp, RemoteAddr, Result, SendFlags, SendOp, Sge};

use crate::link::memory;
use crate::link::nic::{INLINE, SLOT_BYTES};
use crate::link::wire::{
    HEAD_MAX, LINE_DATA, Message, VirtualChannel, arrival, fits_line, line_message, parse_line,
};
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
                self.load(&mut bytes);
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

/// How unsignaled messages are posted.
const UNSIGNALED: (SendFlags, Signal<u64>) = (SendFlags::empty(), Signal::Sometimes);

/// Work queued for the connection, for credits, or for space in the send queue.
#[derive(Debug)]
pub(crate) enum Task {
    /// A message. `report` is reported when it has left.
    Send { message: Message, payload: Payload<'static>, report: Option<(u8, u64)> },
    /// A read or write of the peer's memory.
    Move(Move),
}

/// The queued work of each virtual channel.
pub(crate) type Queues = [VecDeque<Task>; 2];

/// A read or write of the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// Whether it is a write.
    pub(crate) is_write: bool,
    /// Address in the peer's memory.
    pub(crate) remote: RemoteAddr,
    /// Address in this process's memory.
    pub(crate) local: Sge,
    /// Reported when it has completed.
    pub(crate) key: u64,
}

/// What holds an arrived message.
#[derive(Debug)]
enum Held {
    /// A slot of the receive queue.
    Slot(u32),
    /// The ring's cache lines before this one.
    Record(u64),
    /// The duplex line.
    Line,
}

/// Where the data of an arrived message are stored until it is released.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// Offset of the data in [`Connection::memory`], and their length in bytes.
    pub(crate) at: usize,
    pub(crate) len: usize,
    channel: VirtualChannel,
    held: Held,
}

/// The state of one virtual channel of a link.
#[derive(Debug)]
struct ChannelState {
    inbox: Option<Inbox>,
    outbox: Option<Outbox>,
    /// Slots with messages that were not released, and the bytes in each.
    arrived: VecDeque<(u32, u32)>,
    queue: VecDeque<Task>,
}

impl ChannelState {
    fn new(inbox: Option<Inbox>) -> Self {
        let (arrived, queue) = (VecDeque::new(), VecDeque::new());
        Self { inbox, outbox: None, arrived, queue }
    }
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
    messages: MessageQueue<u64, 2, INLINE>,
    channels: [ChannelState; 2],
    /// Where both ends can map each other's memory.
    line: Option<DuplexLine>,
    offered: Option<Offer>,
    pub(crate) is_open: bool,
}

impl Connection {
    /// A queue pair with its receives posted. `number` identifies it in completions.
    pub(crate) fn new(nic: &mut Nic, number: u32, peer: Process, is_active: bool) -> Result<Self> {
        let messages = MessageQueue::new(nic, number, 1)?;
        let channels = match nic.inboxes() {
            Some(inboxes) => inboxes.map(|inbox| ChannelState::new(Some(inbox))),
            None => [None, None].map(ChannelState::new),
        };
        Ok(Self {
            peer,
            is_active,
            is_given_up: false,
            is_lost: false,
            is_readable: false,
            ignores_messages: false,
            messages,
            channels,
            line: None,
            offered: None,
            is_open: false,
        })
    }

    /// Its queue pair.
    #[inline]
    pub(crate) fn qp(&self) -> &Qp {
        self.messages.qp()
    }

    /// The memory into which the peer may store messages, encoded; zeros if there is none.
    pub(crate) fn offer(&self) -> [u8; auth::OFFER] {
        let [state, _] = &self.channels;
        state.inbox.as_ref().map_or([0; auth::OFFER], |inbox| inbox.offer().bytes())
    }

    /// Records the memory that the peer has offered.
    pub(crate) fn set_offer(&mut self, offer: &[u8; auth::OFFER]) {
        self.offered = Offer::parse(offer);
    }

    /// Whether messages can arrive, and ring space become free, without a completion.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        let [state, _] = &self.channels;
        state.inbox.is_some() || state.outbox.is_some()
    }

    /// The connection is established: messages may be sent.
    pub(crate) fn opened(&mut self) -> Result<()> {
        self.is_open = true;
        if let Some(offer) = self.offered.take()
            && let Some([requests, answers]) = Outbox::new(self.messages.qp(), offer, SLOT_BYTES)
        {
            let [to_requests, to_answers] = &mut self.channels;
            if let Some(inbox) = &to_requests.inbox {
                let memory = if self.is_active { inbox.buf() } else { requests.buf() };
                self.line = Some(DuplexLine::new(memory, SHARED_LINE, self.is_active)?);
            }
            (to_requests.outbox, to_answers.outbox) = (Some(requests), Some(answers));
        }
        self.grant_credits()
    }

    /// Gives up the attempt, since the peer's own is used; returns all queued work.
    pub(crate) fn give_up(&mut self) -> Queues {
        (self.is_given_up, self.is_lost) = (true, true);
        self.channels.each_mut().map(|state| std::mem::take(&mut state.queue))
    }

    /// Queues work of an attempt that was given up before all other work.
    pub(crate) fn prepend(&mut self, queues: Queues) {
        for (state, mut queue) in self.channels.iter_mut().zip(queues) {
            queue.append(&mut state.queue);
            state.queue = queue;
        }
    }

    /// Destroys the link; returns its memory for the device's next links: slots, and the rings into which the
    /// peer stored messages.
    pub(crate) fn into_memory(self) -> (Slots, impl Iterator<Item = Inbox>) {
        (self.messages.into_slots(), self.channels.into_iter().filter_map(|state| state.inbox))
    }

    /// Ends all sending. Messages that have arrived are dropped, unless `keep_received`.
    pub(crate) fn end(&mut self, keep_received: bool) {
        (self.is_lost, self.ignores_messages) = (true, !keep_received);
        self.channels.iter_mut().for_each(|state| state.queue.clear());
        self.messages.qp().to_error();
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
        let state = self.state(message.channel());
        state.queue.push_back(Task::Send { message, payload: payload.kept(), report });
        Ok(false)
    }

    /// Sends a message if there is room now; returns whether it has left.
    #[inline]
    pub(crate) fn try_send(&mut self, message: &Message, payload: &Payload<'_>) -> Result<bool> {
        if !self.state(message.channel()).queue.is_empty() {
            return Ok(false);
        }
        if self.put_in_line(message, payload) {
            return self.messages.qp().notify().map(|()| true);
        }
        let can = self.may_send_now(message, payload);
        if can {
            self.post_message(message, payload)?;
        }
        Ok(can)
    }

    /// Sends a message by the duplex line, if possible; returns whether it did.
    #[inline]
    fn put_in_line(&mut self, message: &Message, payload: &Payload<'_>) -> bool {
        let (Some(line), [ChannelState { outbox: Some(outbox), .. }, _]) = (&mut self.line, &self.channels)
        else {
            return false;
        };
        let len = payload.len();
        if !line.is_free() || !fits_line(message, len) {
            return false;
        }
        let short = line_message(message, len, outbox.records(), |data| payload.load(data));
        short.iter().for_each(|short| line.put(short));
        short.is_some()
    }

    /// Reads or writes the peer's memory, or queues that until there is room.
    pub(crate) fn start_move(&mut self, it: Move) -> Result<()> {
        // Ordered with the answers, as an answer follows it.
        if self.state(VirtualChannel::Answer).queue.is_empty()
            && self.is_open
            && self.messages.has_room_for(1)
        {
            return self.post_move(it);
        }
        self.state(VirtualChannel::Answer).queue.push_back(Task::Move(it));
        Ok(())
    }

    #[inline]
    fn state(&mut self, channel: VirtualChannel) -> &mut ChannelState {
        &mut self.channels[channel as usize]
    }

    /// Sends queued work as far as there is room; appends the reportable operations that have left to `left`.
    pub(crate) fn pump(&mut self, left: &mut Vec<(u8, u64)>) -> Result<()> {
        VirtualChannel::ALL.into_iter().try_for_each(|channel| self.pump_channel(channel, left))
    }

    fn pump_channel(&mut self, channel: VirtualChannel, left: &mut Vec<(u8, u64)>) -> Result<()> {
        while let Some(task) = self.state(channel).queue.pop_front() {
            match task {
                Task::Send { ref message, ref payload, report: done }
                    if self.may_send_now(message, payload) =>
                {
                    self.post_message(message, payload)?;
                    left.extend(done);
                }
                Task::Move(it) if self.is_open && self.messages.has_room_for(1) => self.post_move(it)?,
                Task::Send { .. } | Task::Move(_) => {
                    self.state(channel).queue.push_front(task);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether work is queued.
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        self.channels.iter().any(|state| !state.queue.is_empty())
    }

    #[inline]
    fn may_send_now(&mut self, message: &Message, payload: &Payload<'_>) -> bool {
        let channel = message.channel();
        match &mut self.channels[channel as usize].outbox {
            Some(outbox) => self.is_open && outbox.has_room(HEAD_MAX + payload.len()),
            None => self.is_open && self.messages.may_send(channel as usize),
        }
    }

    #[inline]
    fn post_message(&mut self, message: &Message, payload: &Payload<'_>) -> Result<()> {
        let channel = message.channel();
        let state = self.state(channel);
        if let Some(outbox) = &mut state.outbox {
            outbox.put(message, payload)?;
            return self.messages.qp().notify();
        }
        self.messages.send(channel as usize, message.bytes(), payload, UNSIGNALED, |_| ())
    }

    fn post_move(&mut self, it: Move) -> Result<()> {
        let op = if it.is_write { SendOp::Write(it.remote) } else { SendOp::Read(it.remote) };
        self.messages.post(op, Data::Sges(&[it.local]), SendFlags::empty(), Signal::Key(it.key))
    }

    /// A request of the send queue has completed; returns the key to report.
    pub(crate) fn sent(&mut self) -> Result<Option<u64>> {
        let key = self.messages.sent();
        self.grant_credits()?;
        Ok(key)
    }

    /// A message has arrived in a slot.
    ///
    /// # Errors
    /// [`Error::Invalid`] for credits that the peer did not have.
    pub(crate) fn received(&mut self, slot: u32, len: u32) -> Result<()> {
        let mut first = [0; 4];
        if len as usize >= first.len() {
            self.messages.buf().read(self.messages.received_at(slot), &mut first)?;
        }
        let (channel, credits) = arrival(first);
        self.messages.take_credits(credits)?;
        match channel {
            Some(channel) => self.state(channel).arrived.push_back((slot, len)),
            None if self.is_lost => {}
            None => self.messages.post_receive(slot)?,
        }
        Ok(())
    }

    /// Whether there is more to do than to read requests: an answer has arrived, or work is queued.
    #[inline]
    pub(crate) fn has_more_than_requests(&self) -> bool {
        let [_, answers] = &self.channels;
        answers.inbox.as_ref().is_some_and(Inbox::has_record)
            || !answers.arrived.is_empty()
            || self.has_queue()
    }

    /// Whether a request has arrived.
    #[inline]
    pub(crate) fn has_request(&self) -> bool {
        let [requests, _] = &self.channels;
        self.has_record() || !requests.arrived.is_empty()
    }

    /// Whether a request may have been stored in this process's memory.
    #[inline]
    pub(crate) fn has_record(&self) -> bool {
        let [state, _] = &self.channels;
        state.inbox.as_ref().is_some_and(Inbox::has_record)
            || self.line.as_ref().is_some_and(DuplexLine::has_message)
    }

    /// The memory that holds a message.
    #[inline]
    pub(crate) fn memory(&self, arrived: &Arrived) -> &Buf {
        match (&arrived.held, &self.channels[arrived.channel as usize].inbox, &self.line) {
            (Held::Record(_), Some(inbox), _) => inbox.buf(),
            (Held::Line, _, Some(line)) => line.memory(),
            _ => self.messages.buf(),
        }
    }

    /// Decodes the next message of one virtual channel into `message`; it stays the next one until
    /// [`Connection::release`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message that violates the protocol.
    #[inline]
    pub(crate) fn peek(&mut self, channel: VirtualChannel, message: &mut Message) -> Result<Option<Arrived>> {
        if self.ignores_messages {
            return Ok(None);
        }
        let violation = || {
            Error::Invalid("the peer sent an invalid message, or has another version of the protocol".into())
        };
        let state = &mut self.channels[channel as usize];
        if let Some(inbox) = &mut state.inbox {
            // Read before the line: if a record is visible, so is a line message stored before it.
            let has_record = inbox.has_record();
            if channel == VirtualChannel::Request
                && let Some(line) = &self.line
                && let Some(short) = line.poll(inbox.records())
            {
                let (len, at) = (parse_line(&short, message), line.offset_of(LINE_DATA));
                return Ok(Some(Arrived { at, len, channel, held: Held::Line }));
            }
            if has_record && let Some(Record { at, len, upto }) = inbox.poll(message)? {
                let arrived = Arrived { at, len, channel, held: Held::Record(upto) };
                return if message.channel() == channel { Ok(Some(arrived)) } else { Err(violation()) };
            }
        }
        let Some((slot, total)) = state.arrived.front().copied() else { return Ok(None) };
        let (begin, total) = (self.messages.received_at(slot), total as usize);
        let mut head = [0; HEAD_MAX];
        let known = total.min(HEAD_MAX);
        self.messages.buf().read(begin, &mut head[..known])?;
        let behind = message.decode(&head[..known], total).ok_or_else(violation)?;
        Ok(Some(Arrived { at: begin + behind, len: total - behind, channel, held: Held::Slot(slot) }))
    }

    /// Releases the message that [`Connection::peek`] returned.
    #[inline]
    pub(crate) fn release(&mut self, arrived: &Arrived) -> Result<()> {
        let state = self.state(arrived.channel);
        match arrived.held {
            Held::Record(upto) => match state.inbox.as_mut().is_some_and(|inbox| inbox.consume(upto)) {
                true => self.messages.qp().notify(),
                false => Ok(()),
            },
            Held::Slot(slot) => self.release_slot(slot, arrived.channel),
            Held::Line => {
                self.line.iter_mut().for_each(DuplexLine::consume);
                Ok(())
            }
        }
    }

    fn release_slot(&mut self, slot: u32, channel: VirtualChannel) -> Result<()> {
        self.state(channel).arrived.pop_front();
        if self.is_lost {
            return Ok(());
        }
        self.messages.release(slot, channel as usize)?;
        self.grant_credits()
    }

    /// Returns credits to the peer when half of the slots are free. If the send queue is full, the next
    /// completion does this.
    fn grant_credits(&mut self) -> Result<()> {
        if self.is_open && self.messages.owes_grant() {
            self.messages.send_spare(Message::Credit.bytes(), UNSIGNALED)?;
        }
        Ok(())
    }

    /// Requests a completion for when everything sent has arrived. Stored messages have arrived already.
    pub(crate) fn request_idle(&mut self) -> Result<()> {
        if self.is_open && self.messages.posted() > 0 {
            self.messages.send_spare(Message::Credit.bytes(), (SendFlags::empty(), Signal::Always))?;
        }
        Ok(())
    }

    /// Whether all requested transfers have completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.is_idle()
    }
}
