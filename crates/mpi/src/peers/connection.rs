//! [`Connection`]: a queue pair and its flow control. Messages arrive in order, and a sender never exceeds the room at its peer.
//!
//! Where the peer's NIC memory can be mapped, all messages to it are stored there ([`transport::Outbox`]). Otherwise they are sent.
//! Each direction uses one way for as long as the connection exists; the two directions may differ. If both sides enable it,
//! messages are written instead of sent ([`transport::WriteRing`]).

use std::borrow::Cow;

use host::{Host, SlotKey};
use pmi::profile::Traffic;
use transport::{
    DuplexLine, Found, Inbox, LineMessage, MessageQueue, Offer, Outbox, Payload as _, Record, SHARED_LINE,
    Signal, Slots, USER_LINE, WriteRing,
};
use verbs::{Buf, Data, Qp, QpState, RemoteAddr, SendFlags, SendOp, Sge};

use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::TagCriteria;
use crate::p2p::proto::{EndpointTraits, Proto, ProtocolLimits, Protocols, ShortPath};
use crate::p2p::shm_copy::{ClaimWords, Copying, SharedMessage};
use crate::p2p::wire::{
    HEAD, HEAD_MAX, LINE_MAX, LINE_PAYLOAD, MatchKey, Message, is_eager, line_message, parse_eager,
    parse_line,
};
use crate::peers::nic::{INLINE, Nic, Sizes};

/// The payload of a message.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// None.
    None,
    /// The program's data, which do not change until the message has been sent.
    User(Cow<'a, Buffer>),
    /// A copy.
    Own(Vec<u8>),
    /// Contiguous data of the program, sent by the device without a copy. They do not change until the device has read them: a
    /// later request reports that, or this one, if it has a `key`, which is returned with its completion.
    Zcopy { bytes: Piece, from: Sge, key: Option<SlotKey> },
}

impl Payload<'_> {
    /// The key that is returned when data without a copy have been sent.
    pub(crate) fn key(&self) -> Option<SlotKey> {
        if let Self::Zcopy { key, .. } = self { *key } else { None }
    }
}

/// The bytes of a payload of up to [`LINE_MAX`] bytes, padded with zeros.
fn line_words(payload: &impl transport::Payload) -> [u64; 2] {
    let mut bytes = [0; LINE_MAX];
    payload.load(&mut bytes[..payload.len()]);
    let word = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_ne_bytes(*part));
    [word(bytes.first_chunk()), word(bytes.last_chunk())]
}

impl transport::Payload for Payload<'_> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::User(buffer) => buffer.len() as usize,
            Self::Own(bytes) => bytes.len(),
            Self::Zcopy { bytes, .. } => bytes.len(),
        }
    }

    #[inline]
    fn sge(&self) -> Option<Sge> {
        if let Self::Zcopy { from, .. } = self { Some(*from) } else { None }
    }

    #[inline]
    fn load(&self, into: &mut [u8]) {
        match self {
            Self::None => {}
            Self::User(buffer) => buffer.load(into),
            Self::Own(bytes) => into.copy_from_slice(bytes),
            Self::Zcopy { bytes, .. } => bytes.buffer().load(into),
        }
    }

    #[inline]
    fn copy_to(&self, memory: &Buf, at: usize) -> verbs::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::User(buffer) => buffer.load_to(memory, at),
            Self::Own(bytes) => memory.write(at, bytes),
            Self::Zcopy { bytes, .. } => bytes.load_to(memory, at),
        }
    }
}

/// The memory that holds an arrived message until it is released.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageMemory {
    /// A slot.
    Slot(u32),
    /// The lines of the ring before this one.
    Lines(u64),
    /// The line that both sides write.
    Line,
}

/// An arrived message, and the location of its payload until it is released.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// The offset of the payload in the buffer of the slots, or of the ring.
    pub(crate) at: usize,
    /// Its length in bytes.
    pub(crate) len: usize,
}

/// A message that the peer has stored with its payload, and that needs no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    pub(crate) match_key: MatchKey,
    /// The offset and the length of the payload.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// The line after it, if it is in the ring.
    upto: Option<u64>,
}

/// The next message that a peer has stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Nothing,
    /// It remains the next message until [`Connection::pass`].
    Short(Short),
    /// A message for [`Connection::stored`].
    Other,
}

/// The result of [`Connection::take_piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Nothing,
    /// The next message does not match, or must be received by another path.
    Unknown,
    /// The message was received.
    Message {
        tag: i32,
        len: usize,
    },
}

/// The result of [`Connection::copy`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copied {
    /// A piece is being copied.
    Piece,
    /// No piece is left.
    Nothing,
    /// The send queue has no room; a completion frees some.
    NoRoom,
}

/// Receives the message in a line, if it matches and fits.
#[inline(always)]
fn take_line(line: &mut DuplexLine, message: &LineMessage, wanted: &TagCriteria, into: Piece) -> Taken {
    match parse_line(message) {
        Some((match_key, len)) if wanted.accepts(&match_key) && len <= into.len() => {
            into.put_words([message.words[LINE_PAYLOAD], message.words[LINE_PAYLOAD + 1]], len);
            line.consume();
            Taken::Message { tag: match_key.tag, len }
        }
        _ => Taken::Unknown,
    }
}

/// Copies the payload of the next message in a ring, if it is short, matches and fits. Returns its tag and the payload's length.
#[inline(always)]
fn copy_record(
    inbox: &Inbox,
    found: &Found,
    wanted: &TagCriteria,
    into: Piece,
) -> Result<Option<(i32, usize)>> {
    if !is_eager(found.first) {
        return Ok(None);
    }
    let [first, second, one, two] = inbox.words(found);
    let (match_key, whole) = parse_eager([first, second]).ok_or_else(nonsense)?;
    let len = whole - HEAD;
    if !wanted.accepts(&match_key) || len > into.len() {
        return Ok(None);
    }
    if len > LINE_MAX {
        into.store_from(inbox.buf(), found.at + HEAD, len)?;
    } else {
        into.put_words([one, two], len);
    }
    Ok(Some((match_key.tag, len)))
}

#[cold]
fn nonsense() -> Error {
    Error::new(Class::OTHER, "the peer sent a message that this version does not know")
}

/// The state of this side's [`Message::Leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Not sent.
    No,
    /// Sent by the request with this number, counted in the order of posting.
    Said(u64),
    /// Stored in the peer's memory.
    Stored,
}

/// This side's end of a connection to one process.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The process at the other end.
    pub(crate) process: u32,
    /// The index of its device among the process's ports.
    pub(crate) port: usize,
    /// Messages may be sent.
    pub(crate) open: bool,
    /// Its completions have reserved room in its device's completion queue.
    pub(crate) has_room: bool,
    queue: MessageQueue<SlotKey, 1, INLINE>,
    /// Boxed, since in jobs of thousands of processes most devices use none of these four, which are the larger part of a
    /// connection.
    inbox: Option<Box<Inbox>>,
    outbox: Option<Box<Outbox>>,
    /// The rings in both directions where messages are written; on an open connection only if the peer has them, too.
    fast: Option<Box<WriteRing>>,
    /// Whether each write asks the device to notify a sleeping peer.
    rings: bool,
    /// Present on an open connection if inbox and outbox are.
    line: Option<Box<DuplexLine>>,
    /// The claim words in this side's memory for long messages that both sides copy.
    words: ClaimWords,
    /// Whether the line is in this side's memory.
    is_lower: bool,
    /// The memory that the peer offers.
    offered: Option<Offer>,
    sizes: Sizes,
    /// Payload bytes of the longest message for the peer's slots.
    slot_payload: usize,
    /// Messages complete locally, when they have been sent; where delivery matters, the peer reports it.
    zcopy: bool,
    leaving: Leaving,
    /// Counters of sent messages.
    pub(crate) traffic: Traffic,
    /// The protocols of this connection, by message size.
    pub(crate) protocols: Protocols,
}

impl Connection {
    /// Creates a queue pair with its receives posted, which the caller then connects to a process; `is_lower` is true if this
    /// process comes before it. `number` identifies the queue pair in completions.
    pub(crate) fn new(
        nic: &mut Nic,
        port: usize,
        number: u32,
        (is_lower, process): (bool, u32),
    ) -> Result<Self> {
        // Data sent without a copy are a second scatter/gather element after the header.
        let pieces = if nic.zcopy() { 2 } else { 1 };
        let queue = MessageQueue::new(&mut nic.shared, number, pieces)?;
        let (sizes, inbox) = (nic.sizes, nic.shared.inboxes().map(|[inbox]| Box::new(inbox)));
        let fast = nic.write_ring().map(Box::new);
        let rings = fast.is_some() && nic.device.attr().write_notify;
        // This table is replaced when the connection opens.
        let (room, zcopy) = (nic.slot_payload_to(process), nic.zcopy());
        let before = EndpointTraits { short: ShortPath::Sent, room, zcopy, both: false };
        Ok(Self {
            process,
            port,
            open: false,
            has_room: true,
            queue,
            inbox,
            outbox: None,
            fast,
            rings,
            line: None,
            words: ClaimWords::default(),
            is_lower,
            offered: None,
            sizes,
            slot_payload: nic.slot_payload_to(process),
            zcopy: nic.zcopy(),
            leaving: Leaving::No,
            traffic: Traffic::default(),
            protocols: Protocols::new(before, &ProtocolLimits::default()),
        })
    }

    /// Its queue pair.
    pub(crate) fn qp(&self) -> &Qp {
        self.queue.qp()
    }

    /// The memory that this side offers to the peer for messages, encoded; zeros if it offers none.
    pub(crate) fn offer(&self) -> [u8; auth::OFFER] {
        let written = || self.fast.as_deref().map(WriteRing::offer);
        let offer = self.inbox.as_deref().map(Inbox::offer).or_else(written);
        offer.map_or([0; auth::OFFER], |offer| offer.bytes())
    }

    /// Records the memory that the peer offers.
    pub(crate) fn is_offered(&mut self, offer: Offer) {
        self.offered = Some(offer);
    }

    /// Whether the peer may store messages in this side's memory, or write them.
    #[inline]
    pub(crate) fn is_stored_to(&self) -> bool {
        self.inbox.is_some() || self.fast.is_some()
    }

    /// Whether the peer may map this side's NIC memory, and store messages there.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        self.inbox.is_some()
    }

    /// Opens the connection: messages may be sent from now on, by the protocols that both ends support. Credits for slots that were
    /// released before are sent.
    pub(crate) fn opened(&mut self, both: bool, chosen: &ProtocolLimits) -> Result<()> {
        self.open = true;
        let offered = self.offered.take();
        self.fast = self.fast.take().and_then(|mut fast| fast.open(offered?).then_some(fast));
        let outbox = offered.and_then(|offer| Outbox::new(self.queue.qp(), offer, self.sizes.record_bytes));
        self.outbox = outbox.map(|[outbox]| Box::new(outbox));
        if let (Some(inbox), Some(outbox)) = (&self.inbox, &self.outbox) {
            let memory = if self.is_lower { inbox.buf() } else { outbox.buf() };
            self.line = Some(Box::new(DuplexLine::new(memory, SHARED_LINE, self.is_lower)?));
        }
        self.choose(both, chosen);
        self.grant()
    }

    /// Computes the table of protocols; `both` is true if each process can read and write all memory of the other.
    pub(crate) fn choose(&mut self, both: bool, chosen: &ProtocolLimits) {
        let short = match (&self.outbox, &self.fast) {
            (Some(_), _) => ShortPath::Stored,
            (None, Some(_)) => ShortPath::Written,
            (None, None) => ShortPath::Sent,
        };
        let traits = EndpointTraits { short, room: self.payload_max(), zcopy: self.zcopy, both };
        self.protocols = Protocols::new(traits, chosen);
    }

    /// The memory that holds a message's payload.
    pub(crate) fn memory(&self, held: MessageMemory) -> &Buf {
        if let (MessageMemory::Lines(_), Some(fast)) = (held, &self.fast) {
            return fast.buf();
        }
        match (held, &self.inbox, &self.line) {
            (MessageMemory::Lines(_), Some(inbox), _) => inbox.buf(),
            (MessageMemory::Line, _, Some(line)) => line.memory(),
            _ => self.queue.buf(),
        }
    }

    /// Payload bytes of the longest message, in addition to its header.
    #[inline]
    pub(crate) fn payload_max(&self) -> usize {
        if self.outbox.is_some() { self.sizes.record_payload() } else { self.slot_payload }
    }

    /// Whether a message can be sent now.
    #[inline]
    pub(crate) fn may_send(&mut self, message: &Message, payload: &impl transport::Payload) -> bool {
        let len = message.head_len() + payload.len();
        // A record may need a second write for the wrap-around mark.
        let rooms = self.queue.has_room_for(2);
        match (&mut self.outbox, &mut self.fast) {
            (Some(outbox), _) => self.open && outbox.has_room(len),
            (None, Some(fast)) => self.open && rooms && fast.has_room(len),
            (None, None) => self.open && self.queue.may_send(0),
        }
    }

    /// Whether a request for the peer's memory can be posted now. A write with immediate takes a credit, as a message does.
    pub(crate) fn may_access(&self, op: SendOp) -> bool {
        self.open
            && self.queue.has_room_for(1)
            && (self.queue.has_credit(0) || !matches!(op, SendOp::WriteImm(..)))
    }

    /// Whether all sent messages have completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// Sends a message; the caller has checked [`Connection::may_send`]. The payload may be reused when this returns.
    ///
    /// For data [sent without a copy](Payload::Zcopy), a completion reports that instead; `key` is returned with it.
    pub(crate) fn send(
        &mut self,
        host: &Host,
        message: &Message,
        payload: &impl transport::Payload,
        key: Option<SlotKey>,
    ) -> Result<()> {
        if let Some(outbox) = &mut self.outbox {
            let len = payload.len();
            if let (Message::Eager { match_key, answer: None }, Some(line)) = (message, &mut self.line)
                && len <= LINE_MAX
                && line.is_free()
            {
                line.put(&line_message(*match_key, line_words(payload), len, outbox.records()));
                self.traffic.count(Proto::EagerLine, len);
            } else {
                outbox.put(message, payload)?;
                self.count(Proto::EagerRing, message, len);
            }
            return Ok(self.queue.qp().notify()?);
        }
        if self.fast.is_some() {
            self.count(Proto::EagerWrite, message, payload.len());
            return self.write(host, message, payload, Signal::Sometimes);
        }
        let is_inline = message.head_len() + payload.len() <= INLINE;
        self.count(if is_inline { Proto::EagerInline } else { Proto::EagerCopy }, message, payload.len());
        let options = (self.flags(SendOp::Send), key.map_or(Signal::Sometimes, Signal::Key));
        Ok(self.queue.send(0, message.bytes(0), payload, options, |bytes| host.charge_copy(bytes))?)
    }

    /// The flags of a request: where the device may send payload without a copy, messages complete locally.
    fn flags(&self, op: SendOp) -> SendFlags {
        match op {
            SendOp::Send | SendOp::WriteImm(..) if self.zcopy => SendFlags::LOCAL,
            SendOp::Write(_) => self.write_flags(),
            _ => SendFlags::empty(),
        }
    }

    /// A written message, or credit word, wakes a peer that sleeps.
    fn write_flags(&self) -> SendFlags {
        if self.rings { SendFlags::NOTIFY } else { SendFlags::empty() }
    }

    /// Sends [`Message::Leave`] as soon as there is room; returns whether it has arrived. It is the last message. Its request is
    /// signaled and not local, so its completion proves arrival, even where other requests complete earlier.
    pub(crate) fn leave(&mut self, host: &Host) -> Result<bool> {
        match self.leaving {
            Leaving::Stored => return Ok(true),
            Leaving::Said(place) => return Ok(self.queue.has_completed(place)),
            Leaving::No if !(self.open && (self.outbox.is_some() || self.queue.has_room_for(1))) => {
                return Ok(false);
            }
            Leaving::No => {}
        }
        // No message may follow it.
        self.open = false;
        if let Some(outbox) = &mut self.outbox {
            outbox.put(&Message::Leave, &Payload::None)?;
            self.leaving = Leaving::Stored;
            return self.queue.qp().notify().map(|()| true).map_err(Error::from);
        }
        if self.fast.is_some() {
            self.write(host, &Message::Leave, &Payload::None, Signal::Always)?;
        } else {
            self.queue.send_spare(Message::Leave.bytes(0), (SendFlags::empty(), Signal::Always))?;
        }
        self.leaving = Leaving::Said(self.queue.posted() - 1);
        Ok(false)
    }

    /// The peer has sent [`Message::Leave`] and receives nothing more. The line is acknowledged, since the peer may keep its memory
    /// until then.
    pub(crate) fn left(&mut self) {
        (self.open, self.leaving) = (false, Leaving::No);
        self.acknowledge_line();
    }

    fn acknowledge_line(&mut self) {
        self.line.as_deref_mut().into_iter().for_each(DuplexLine::acknowledge);
    }

    /// Whether this side has left, but its memory may hold a message that the peer has not read. False if the peer has left as
    /// well.
    pub(crate) fn is_needed(&mut self) -> bool {
        let is_here = self.leaving == Leaving::Stored && self.is_lower;
        let waits = is_here && self.line.as_ref().is_some_and(|line| line.is_unacknowledged());
        while waits && let Ok(Some((what, _))) = self.stored() {
            if what.message == Message::Leave {
                self.left();
                return false;
            }
        }
        waits
    }

    /// Destroys the connection; returns its memory for reuse by the device's next connections: slots, and the inbox.
    pub(crate) fn into_memory(self) -> (Slots, Option<Inbox>) {
        (self.queue.into_slots(), self.inbox.map(|inbox| *inbox))
    }

    /// Counts a message that carries its data, or whose fragments carry all data.
    fn count(&mut self, by: Proto, message: &Message, len: usize) {
        match message {
            Message::Eager { .. } => self.traffic.count(by, len),
            // Others are counted when the receiver answers.
            Message::Rts { at, frag_bytes, .. } if u64::from(*frag_bytes) == at.length => {
                self.traffic.count(Proto::EagerFrag, at.length as usize);
            }
            _ => {}
        }
    }

    /// Sends an eager message of the program, if there is room for it. Returns whether it was sent.
    #[inline]
    pub(crate) fn send_piece(&mut self, host: &Host, match_key: MatchKey, piece: Piece) -> Result<bool> {
        let Some(outbox) = &mut self.outbox else { return self.post_piece(host, match_key, piece) };
        let len = piece.len();
        if let Some(line) = &mut self.line
            && len <= LINE_MAX
            && line.is_free()
        {
            line.put(&line_message(match_key, piece.words(), len, outbox.records()));
            self.traffic.count(Proto::EagerLine, len);
        } else {
            return self.store_piece(match_key, piece);
        }
        self.queue.qp().notify()?;
        Ok(true)
    }

    /// Sends an eager message that cannot be stored, if there is room for it. Returns whether it was sent.
    #[inline(never)] // out of line, so that sends by the line save no registers for it
    fn post_piece(&mut self, host: &Host, match_key: MatchKey, piece: Piece) -> Result<bool> {
        let message = Message::Eager { match_key, answer: None };
        let may_send = self.may_send(&message, &piece);
        if may_send {
            self.send(host, &message, &piece, None)?;
        }
        Ok(may_send)
    }

    /// Stores a short message of the program in the ring, if there is room. Returns whether it was stored.
    #[inline(never)] // out of line, so that sends by the line save no registers for it
    fn store_piece(&mut self, match_key: MatchKey, piece: Piece) -> Result<bool> {
        let Some(outbox) = &mut self.outbox else { return Ok(false) };
        if !outbox.has_room(HEAD + piece.len()) {
            return Ok(false);
        }
        outbox.put(&Message::Eager { match_key, answer: None }, &piece)?;
        self.traffic.count(Proto::EagerRing, piece.len());
        self.queue.qp().notify()?;
        Ok(true)
    }

    /// Receives the next message that the peer has stored, if it matches and fits.
    ///
    /// # Errors
    /// [`Class::OTHER`] for an invalid message.
    #[inline]
    pub(crate) fn take_piece(&mut self, wanted: &TagCriteria, into: Piece) -> Result<Taken> {
        let (Some(line), Some(inbox)) = (&mut self.line, &mut self.inbox) else { return Ok(Taken::Unknown) };
        if let Some(short) = line.poll(inbox.records()) {
            return Ok(take_line(line, &short, wanted, into));
        }
        if !inbox.has_record() {
            return Ok(Taken::Nothing);
        }
        self.take_next(wanted, into)
    }

    /// Receives as [`Connection::take_piece`] does, for callers that expect several messages, most of them in the ring.
    ///
    /// # Errors
    /// As [`Connection::take_piece`].
    #[inline]
    pub(crate) fn take_next(&mut self, wanted: &TagCriteria, into: Piece) -> Result<Taken> {
        let (Some(line), Some(inbox)) = (&mut self.line, &mut self.inbox) else { return Ok(Taken::Unknown) };
        // The ring is examined first, as in `next`: a line message sent before a ring record is visible once the record is.
        let found = inbox.peek()?;
        if line.has_message()
            && let Some(short) = line.poll(inbox.records())
        {
            return Ok(take_line(line, &short, wanted, into));
        }
        let Some(found) = found else { return Ok(Taken::Nothing) };
        let Some((tag, len)) = copy_record(inbox, &found, wanted, into)? else { return Ok(Taken::Unknown) };
        if inbox.consume(found.upto) {
            self.queue.qp().notify()?;
        }
        Ok(Taken::Message { tag, len })
    }

    /// Writes a message to the peer's memory by RDMA.
    fn write(
        &mut self,
        host: &Host,
        message: &Message,
        payload: &impl transport::Payload,
        signal: Signal<SlotKey>,
    ) -> Result<()> {
        let options = (self.write_flags(), signal);
        let Some(fast) = &mut self.fast else { return Ok(()) };
        let copied = |bytes| host.charge_copy(bytes);
        Ok(fast.send(&mut self.queue, (message, payload), options, copied)?)
    }

    /// Publishes this side's position in its ring, if a part of the ring is free again.
    fn publish(&mut self) -> Result<()> {
        let flags = self.write_flags();
        let Some(fast) = &mut self.fast else { return Ok(()) };
        Ok(fast.publish(&mut self.queue, flags)?)
    }

    /// Reads or changes the peer's memory, with a piece of local memory; `key` is returned with the completion.
    pub(crate) fn access(&mut self, op: SendOp, piece: Sge, key: SlotKey) -> Result<()> {
        if let SendOp::WriteImm(..) = op {
            self.queue.take_credit(0);
        }
        Ok(self.queue.post(op, Data::Sges(&[piece]), self.flags(op), Signal::Key(key))?)
    }

    /// Whether both sides can copy a message to this one: the peer maps this side's memory if this side maps the peer's, since both
    /// are on one host.
    pub(crate) fn may_share(&self) -> bool {
        self.inbox.is_some() && self.line.is_some()
    }

    /// Queues a message to this side until both can copy it.
    pub(crate) fn await_share(&mut self, key: SlotKey, length: u64) {
        self.words.wait(key, length);
    }

    /// The message that has waited longest, and the claim word assigned to it; `None` while all words are in use.
    pub(crate) fn next_share(&mut self) -> Option<(SlotKey, SharedMessage)> {
        let inbox = self.inbox.as_ref()?;
        self.words.next(inbox.buf(), USER_LINE)
    }

    /// Frees the claim word of a message that was copied whole.
    pub(crate) fn end_share(&mut self, share: &SharedMessage) {
        self.words.end(share);
    }

    /// Claims a piece of a shared message and copies it, if one is left and there is room for the request; `key` is returned with
    /// the completion.
    pub(crate) fn copy(&mut self, copying: &Copying, key: SlotKey) -> Result<Copied> {
        let memory = match (copying.receives, &self.inbox, &self.outbox) {
            (true, Some(inbox), _) => inbox.buf(),
            (false, _, Some(outbox)) => outbox.buf(),
            _ => return Ok(Copied::Nothing),
        };
        if !(self.open && self.queue.has_room_for(1)) {
            return Ok(Copied::NoRoom);
        }
        let Some(piece) = copying.share.claim(memory, USER_LINE, copying.receives) else {
            return Ok(Copied::Nothing);
        };
        let (here, there) = copying.ends(piece);
        let remote = RemoteAddr { addr: there.addr, rkey: there.rkey };
        let op = if copying.receives { SendOp::Read(remote) } else { SendOp::Write(remote) };
        self.access(op, here, key)?;
        Ok(Copied::Piece)
    }

    /// A request of the send queue has completed; returns its key, if it was an access.
    pub(crate) fn sent(&mut self) -> Option<SlotKey> {
        self.queue.sent()
    }

    /// A message of `len` bytes has arrived in a slot.
    ///
    /// # Errors
    /// [`Class::OTHER`] for an invalid message.
    pub(crate) fn received(&mut self, slot: u32, len: u32) -> Result<Received> {
        let (at, len) = (self.queue.received_at(slot), len as usize);
        let mut head = [0; HEAD_MAX];
        let known = len.min(HEAD_MAX);
        self.queue.buf().read(at, &mut head[..known])?;
        let (message, credits) = Message::parse(&head, len).ok_or_else(nonsense)?;
        self.queue.take_credits(credits)?;
        let head_len = message.head_len();
        Ok(Received { message, at: at + head_len, len: len - head_len })
    }

    /// The peer has written the rest of a message, which consumed a slot's receive.
    pub(crate) fn landed(&mut self, slot: u32) -> Result<()> {
        self.queue.release(slot, 0)?;
        self.grant()
    }

    /// Whether the peer has stored another message, valid or not.
    #[inline]
    pub(crate) fn has_stored(&mut self) -> bool {
        self.inbox.as_deref().is_some_and(Inbox::has_record)
            || self.fast.as_deref_mut().is_some_and(WriteRing::has_record)
            || self.line.as_deref().is_some_and(DuplexLine::has_message)
    }

    /// The next message that the peer has stored.
    ///
    /// # Errors
    /// [`Class::OTHER`] for an invalid message.
    #[inline(always)] // so that the result is not built in memory
    pub(crate) fn next(&mut self) -> Result<Next> {
        let Some(inbox) = &mut self.inbox else {
            let has_record = self.fast.as_deref_mut().is_some_and(WriteRing::has_record);
            return Ok(if has_record { Next::Other } else { Next::Nothing });
        };
        // The ring is examined first, here and in `stored`: a line message sent before a ring record is visible once the record is.
        let found = inbox.peek()?;
        if let Some(line) = &self.line
            && let Some(short) = line.poll(inbox.records())
        {
            let (match_key, len) = parse_line(&short).ok_or_else(nonsense)?;
            let at = line.offset_of(LINE_PAYLOAD);
            return Ok(Next::Short(Short { match_key, at, len, upto: None }));
        }
        let Some(found) = found else { return Ok(Next::Nothing) };
        if !is_eager(found.first) {
            return Ok(Next::Other);
        }
        let (match_key, whole) = parse_eager(inbox.words(&found)).ok_or_else(nonsense)?;
        let (at, len) = (found.at + HEAD, whole - HEAD);
        Ok(Next::Short(Short { match_key, at, len, upto: Some(found.upto) }))
    }

    /// Releases a short message that [`Connection::next`] has returned.
    #[inline]
    pub(crate) fn pass(&mut self, short: &Short) -> Result<()> {
        let Some(upto) = short.upto else {
            self.line.as_deref_mut().into_iter().for_each(DuplexLine::consume);
            return Ok(());
        };
        if let Some(inbox) = &mut self.inbox
            && inbox.consume(upto)
        {
            self.queue.qp().notify()?;
        }
        Ok(())
    }

    /// The memory that holds a short message's payload.
    #[inline]
    pub(crate) fn memory_of(&self, short: &Short) -> &Buf {
        match (&self.line, &self.inbox) {
            (Some(line), _) if short.upto.is_none() => line.memory(),
            (_, Some(inbox)) => inbox.buf(),
            _ => self.queue.buf(),
        }
    }

    /// Takes the next message that the peer has stored.
    ///
    /// # Errors
    /// [`Class::OTHER`] for an invalid message.
    pub(crate) fn stored(&mut self) -> Result<Option<(Received, MessageMemory)>> {
        let Some(inbox) = &mut self.inbox else {
            let Some(fast) = &mut self.fast else { return Ok(None) };
            if !fast.has_record() {
                return Ok(None);
            }
            let mut message = Message::Credit;
            let Record { at, len, upto } = fast.take(&mut message)?;
            return Ok(Some((Received { message, at, len }, MessageMemory::Lines(upto))));
        };
        let found = inbox.peek()?;
        if let Some(line) = &mut self.line
            && let Some(short) = line.poll(inbox.records())
        {
            let ((match_key, len), at) =
                (parse_line(&short).ok_or_else(nonsense)?, line.offset_of(LINE_PAYLOAD));
            line.take();
            let message = Message::Eager { match_key, answer: None };
            return Ok(Some((Received { message, at, len }, MessageMemory::Line)));
        }
        let Some(found) = found else { return Ok(None) };
        let mut message = Message::Credit;
        let Record { at, len, upto } = inbox.decode(&found, &mut message)?;
        inbox.take(upto);
        Ok(Some((Received { message, at, len }, MessageMemory::Lines(upto))))
    }

    /// Releases the memory of a message.
    #[inline]
    pub(crate) fn release(&mut self, held: MessageMemory, message: &Message) -> Result<()> {
        match (held, &mut self.inbox) {
            (MessageMemory::Slot(slot), _) => self.release_slot(slot, message),
            (MessageMemory::Lines(upto), Some(inbox)) => {
                if inbox.release(upto) {
                    self.queue.qp().notify()?;
                }
                Ok(())
            }
            (MessageMemory::Line, _) => {
                self.line.as_deref_mut().into_iter().for_each(DuplexLine::release);
                if !self.open {
                    self.acknowledge_line();
                }
                Ok(())
            }
            (MessageMemory::Lines(upto), None) => {
                match self.fast.as_mut().is_some_and(|fast| fast.release(upto)) {
                    true => self.publish(),
                    false => Ok(()),
                }
            }
        }
    }

    /// Releases a slot to the peer; a credit message is sent once half of the slots are released.
    fn release_slot(&mut self, slot: u32, message: &Message) -> Result<()> {
        if matches!(message, Message::Credit) {
            return Ok(self.queue.post_receive(slot)?);
        }
        self.queue.release(slot, 0)?;
        self.grant()
    }

    /// Sends the peer credits for released slots, once half of them are released. If reads fill the send queue, this waits for the
    /// next completion.
    pub(crate) fn grant(&mut self) -> Result<()> {
        self.publish()?;
        if self.open && self.queue.owes_grant() {
            let options = (self.flags(SendOp::Send), Signal::Sometimes);
            self.queue.send_spare(Message::Credit.bytes(0), options)?;
        }
        Ok(())
    }

    /// Whether the queue pair has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.queue.qp().state() == QpState::Error
    }
}
