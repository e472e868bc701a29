//! [`Connection`]: the [endpoint](transport::Endpoint) to a process, with what MPI adds: its payloads, its protocols by message size,
//! counters, and the shortest paths of eager messages.

use std::borrow::Cow;

use host::{Host, SlotKey};
use pmi::profile::Traffic;
use transport::{
    Arrived, ConnStage, DuplexLine, Endpoint, EndpointOptions, Found, Held, Inbox, LineMessage, Malformed,
    Path, USER_LINE,
};
use verbs::{Buf, RemoteAddr, SendFlags, SendOp, Sge};

use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::TagCriteria;
use crate::p2p::proto::{EndpointTraits, Proto, ProtocolLimits, Protocols, ShortPath};
use crate::p2p::shm_copy::{ClaimWords, Copying, SharedMessage};
use crate::p2p::wire::{
    HEAD, LINE_MAX, LINE_PAYLOAD, MatchKey, Message, is_begin, is_eager, line_message, parse_eager,
    parse_line,
};
use crate::peers::nic::{INLINE, Nic};

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

    fn copy_past_caches(&self, memory: &Buf, at: usize) -> verbs::Result<()> {
        match self {
            Self::User(buffer) => buffer.load_for_peer(memory, at, true),
            Self::Zcopy { bytes, .. } => bytes.load_past_caches(memory, at),
            Self::None | Self::Own(_) => self.copy_to(memory, at),
        }
    }
}

/// MPI as a user of endpoints.
pub(crate) enum Mpi {}

impl transport::User for Mpi {
    type Message = Message;
    type Payload = Payload<'static>;
    type Sent = SlotKey;
    type Key = SlotKey;
}

/// An arrived message, and the location of its payload until it is released.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// The offset of the payload in the memory that holds the message.
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
    /// The line after it, if it is in the ring. With a [`Held`] the compiler stores the parts of [`Next`] to memory and loads them
    /// again in other sizes, for which the processor waits.
    upto: Option<u64>,
}

impl Short {
    #[inline]
    fn held(&self) -> Held {
        self.upto.map_or(Held::Line, Held::Record)
    }
}

/// The next message that a peer has stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Nothing,
    /// It remains the next message until [`Connection::pass`].
    Short(Short),
    /// The beginning of a long message, for [`Connection::stored`].
    Begun,
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
    let (match_key, whole) = parse_eager([first, second]).ok_or(Malformed)?;
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

/// Counts a message that carries its data, or begins them.
fn count(traffic: &mut Traffic, path: Path, message: &Message, len: usize) {
    let proto = match path {
        Path::Line => Proto::EagerLine,
        Path::Ring => Proto::EagerRing,
        Path::Written => Proto::EagerWrite,
        Path::Sent if message.head_len() + len <= INLINE => Proto::EagerInline,
        Path::Sent => Proto::EagerCopy,
    };
    match message {
        Message::Eager { .. } => traffic.count(proto, len),
        Message::Begin { length, .. } if path == Path::Ring => {
            traffic.count(Proto::EagerFrag, *length as usize)
        }
        Message::Begin { length, .. } => traffic.count(Proto::EagerDirect, *length as usize),
        // Others are counted when the receiver answers.
        _ => {}
    }
}

/// This side's end of a connection to one process.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The process at the other end.
    pub(crate) process: u32,
    /// The index of its device among the process's ports.
    pub(crate) port: usize,
    /// The peer has left, or its own attempt is used: this connection is dropped when it has ended. The device of a peer that has
    /// left may still wait for an acknowledgement.
    pub(crate) is_left_to_end: bool,
    /// The queue pair, rings and flow control.
    pub(crate) endpoint: Endpoint<Mpi, 1, INLINE>,
    /// The claim words in this side's memory for long messages that both sides copy.
    words: ClaimWords,
    /// Payload bytes of the longest message for the peer's slots, and for its ring.
    slot_payload: usize,
    record_payload: usize,
    /// See [`Nic::sends_direct`].
    direct: bool,
    /// Counters of sent messages.
    pub(crate) traffic: Traffic,
    /// The protocols of this connection, by message size.
    pub(crate) protocols: Protocols,
}

impl Connection {
    /// Creates a queue pair with its receives posted, which the caller then connects to a process; `is_lower` is true if this
    /// process comes before it, and `is_initiator` if this process sends the connect request. `number` identifies the queue pair in
    /// completions.
    pub(crate) fn new(
        nic: &mut Nic,
        port: usize,
        number: u32,
        (process, is_lower, is_initiator): (u32, bool, bool),
    ) -> Result<Self> {
        let (direct, slot_payload, written) =
            (nic.sends_direct(), nic.slot_payload_to(process), nic.write_ring());
        let wakes = written.is_some() && nic.device.attr().write_notify;
        let options = EndpointOptions {
            is_initiator,
            // Data sent without a copy are a second element after the header.
            send_sges: if direct { 2 } else { 1 },
            is_first: is_lower,
            record_bytes: nic.sizes.record_bytes,
            // Such messages complete locally, when they have been sent; where delivery matters, the peer reports it.
            send_flags: if direct { SendFlags::LOCAL } else { SendFlags::empty() },
            // A written message, or position, wakes a peer that sleeps.
            write_flags: if wakes { SendFlags::NOTIFY } else { SendFlags::empty() },
        };
        // This table is replaced when the connection opens.
        let before = EndpointTraits { short: ShortPath::Sent, room: slot_payload, direct, both: false };
        Ok(Self {
            process,
            port,
            is_left_to_end: false,
            endpoint: Endpoint::new(&mut nic.shared, number, written, options)?,
            words: ClaimWords::default(),
            slot_payload,
            record_payload: nic.sizes.record_payload(),
            direct,
            traffic: Traffic::default(),
            protocols: Protocols::new(before, &ProtocolLimits::default()),
        })
    }

    /// Whether the connection is or was open.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.endpoint.stage() == ConnStage::Connected
    }

    /// Opens the connection: messages may be sent from now on, by the protocols that both ends support.
    pub(crate) fn opened(&mut self, both: bool, chosen: &ProtocolLimits) -> Result<()> {
        self.endpoint.open()?;
        self.choose(both, chosen);
        Ok(())
    }

    /// Computes the table of protocols; `both` is true if each process can read and write all memory of the other.
    pub(crate) fn choose(&mut self, both: bool, chosen: &ProtocolLimits) {
        let (short, room) = match (&self.endpoint.outboxes, &self.endpoint.written) {
            ([Some(_)], _) => (ShortPath::Stored, self.record_payload),
            ([None], Some(_)) => (ShortPath::Written, self.slot_payload),
            ([None], None) => (ShortPath::Sent, self.slot_payload),
        };
        self.protocols = Protocols::new(EndpointTraits { short, room, direct: self.direct, both }, chosen);
    }

    /// Sends a message, if no other one waits and there is room. Returns whether it was sent; the payload may then be reused.
    pub(crate) fn try_send(
        &mut self,
        host: &Host,
        message: &Message,
        payload: &impl transport::Payload,
    ) -> Result<bool> {
        let path = self.endpoint.try_send(message, payload, |bytes| host.charge_copy(bytes))?;
        if let Some(path) = path {
            count(&mut self.traffic, path, message, payload.len());
        }
        Ok(path.is_some())
    }

    /// Sends queued messages and accesses, as far as there is room; calls `sent` with the keys of messages that have left. Returns whether an access
    /// was posted.
    pub(crate) fn pump(&mut self, host: &Host, mut sent: impl FnMut(SlotKey)) -> Result<bool> {
        let Self { endpoint, traffic, .. } = self;
        let posted = |path, message: &Message, len, key: Option<SlotKey>| {
            count(traffic, path, message, len);
            key.into_iter().for_each(&mut sent);
        };
        Ok(endpoint.pump(0, |bytes| host.charge_copy(bytes), posted)?)
    }

    /// Whether this side has left, but its memory may hold a message that the peer has not read. False if the peer has left as
    /// well.
    pub(crate) fn is_needed(&mut self) -> bool {
        let waits = self.endpoint.holds_unread();
        while waits && let Ok(Some((what, _))) = self.stored() {
            if what.message == Message::Leave {
                self.endpoint.left();
                return false;
            }
        }
        waits
    }

    /// Sends an eager message of the program, if there is room for it. Returns whether it was sent.
    #[inline]
    pub(crate) fn send_piece(&mut self, host: &Host, match_key: MatchKey, piece: Piece) -> Result<bool> {
        let Endpoint { line, outboxes: [outbox], .. } = &mut self.endpoint;
        let Some(outbox) = outbox else { return self.post_piece(host, match_key, piece) };
        let len = piece.len();
        if let Some(line) = line
            && len <= LINE_MAX
            && line.is_free()
        {
            line.put(&line_message(match_key, piece.words(), len, outbox.records()));
            self.traffic.count(Proto::EagerLine, len);
        } else {
            return self.store_piece(match_key, piece);
        }
        self.endpoint.qp().notify()?;
        Ok(true)
    }

    /// Sends an eager message that cannot be stored, if there is room for it. Returns whether it was sent.
    #[inline(never)] // out of line, so that sends by the line save no registers for it
    fn post_piece(&mut self, host: &Host, match_key: MatchKey, piece: Piece) -> Result<bool> {
        self.try_send(host, &Message::Eager { match_key, answer: None }, &piece)
    }

    /// Stores a short message of the program in the ring, if there is room. Returns whether it was stored.
    #[inline(never)] // out of line, so that sends by the line save no registers for it
    fn store_piece(&mut self, match_key: MatchKey, piece: Piece) -> Result<bool> {
        let [Some(outbox)] = &mut self.endpoint.outboxes else { return Ok(false) };
        if !outbox.has_room(HEAD + piece.len()) {
            return Ok(false);
        }
        outbox.put(&Message::Eager { match_key, answer: None }, &piece)?;
        self.traffic.count(Proto::EagerRing, piece.len());
        self.endpoint.qp().notify()?;
        Ok(true)
    }

    /// Receives the next message that the peer has stored, if it matches and fits.
    ///
    /// # Errors
    /// [`Malformed`], for an invalid message.
    #[inline]
    pub(crate) fn take_piece(&mut self, wanted: &TagCriteria, into: Piece) -> Result<Taken> {
        let Endpoint { line: Some(line), inboxes: [Some(inbox)], .. } = &mut self.endpoint else {
            return Ok(Taken::Unknown);
        };
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
        let Endpoint { line: Some(line), inboxes: [Some(inbox)], .. } = &mut self.endpoint else {
            return Ok(Taken::Unknown);
        };
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
            self.endpoint.qp().notify()?;
        }
        Ok(Taken::Message { tag, len })
    }

    /// Whether both sides can copy a message to this one: the peer maps this side's memory if this side maps the peer's, since both
    /// are on one host.
    pub(crate) fn may_share(&self) -> bool {
        self.endpoint.is_mapped() && self.endpoint.line.is_some()
    }

    /// Queues a message to this side until both can copy it.
    pub(crate) fn await_share(&mut self, key: SlotKey, length: u64) {
        self.words.wait(key, length);
    }

    /// The message that has waited longest, and the claim word assigned to it; `None` while all words are in use.
    pub(crate) fn next_share(&mut self) -> Option<(SlotKey, SharedMessage)> {
        let [inbox] = &self.endpoint.inboxes;
        self.words.next(inbox.as_ref()?.buf(), USER_LINE)
    }

    /// Frees the claim word of a message that was copied whole.
    pub(crate) fn end_share(&mut self, share: &SharedMessage) {
        self.words.end(share);
    }

    /// Claims a piece of a shared message and copies it, if one is left and there is room for the request; `key` is returned with
    /// the completion.
    pub(crate) fn copy(&mut self, copying: &Copying, key: SlotKey) -> Result<Copied> {
        let Endpoint { inboxes: [inbox], outboxes: [outbox], queue, is_open, .. } = &self.endpoint;
        let memory = match (copying.receives, inbox, outbox) {
            (true, Some(inbox), _) => inbox.buf(),
            (false, _, Some(outbox)) => outbox.buf(),
            _ => return Ok(Copied::Nothing),
        };
        if !(*is_open && queue.has_room_for(1)) {
            return Ok(Copied::NoRoom);
        }
        let Some(piece) = copying.share.claim(memory, USER_LINE, copying.receives) else {
            return Ok(Copied::Nothing);
        };
        let (here, there) = copying.ends(piece);
        let remote = RemoteAddr { addr: there.addr, rkey: there.rkey };
        let op = if copying.receives { SendOp::Read(remote) } else { SendOp::Write(remote) };
        self.endpoint.access(op, here, key)?;
        Ok(Copied::Piece)
    }

    /// A message of `len` bytes has arrived in a slot.
    ///
    /// # Errors
    /// [`Malformed`], for an invalid message.
    pub(crate) fn received(&mut self, slot: u32, len: u32) -> Result<Received> {
        let mut message = Message::Credit;
        self.endpoint.arrived(slot, len)?;
        let Arrived { at, len, .. } = self.endpoint.decode(0, (slot, len), &mut message)?;
        Ok(Received { message, at, len })
    }

    /// The next message that the peer has stored.
    ///
    /// # Errors
    /// [`Malformed`], for an invalid message.
    #[inline(always)] // so that the result is not built in memory
    pub(crate) fn next(&mut self) -> Result<Next> {
        let Endpoint { line, inboxes: [inbox], .. } = &mut self.endpoint;
        let Some(inbox) = inbox else {
            return Ok(if self.endpoint.has_stored(0) { Next::Other } else { Next::Nothing });
        };
        // The ring is examined first: a line message sent before a ring record is visible once the record is.
        let found = inbox.peek()?;
        if let Some(line) = line
            && let Some(short) = line.poll(inbox.records())
        {
            let (match_key, len) = parse_line(&short).ok_or(Malformed)?;
            let at = line.offset_of(LINE_PAYLOAD);
            return Ok(Next::Short(Short { match_key, at, len, upto: None }));
        }
        let Some(found) = found else { return Ok(Next::Nothing) };
        if !is_eager(found.first) {
            return Ok(if is_begin(found.first) { Next::Begun } else { Next::Other });
        }
        let (match_key, whole) = parse_eager(inbox.words(&found)).ok_or(Malformed)?;
        let (at, len) = (found.at + HEAD, whole - HEAD);
        Ok(Next::Short(Short { match_key, at, len, upto: Some(found.upto) }))
    }

    /// Releases a short message that [`Connection::next`] has returned.
    #[inline]
    pub(crate) fn pass(&mut self, short: &Short) -> Result<()> {
        let arrived = Arrived { at: short.at, len: short.len, channel: 0, held: short.held() };
        Ok(self.endpoint.consume(&arrived)?)
    }

    /// The memory that holds a short message's payload.
    #[inline]
    pub(crate) fn memory_of(&self, short: &Short) -> &Buf {
        self.endpoint.memory(0, short.held())
    }

    /// Takes the next message that the peer has stored.
    ///
    /// # Errors
    /// [`Malformed`], for an invalid message.
    pub(crate) fn stored(&mut self) -> Result<Option<(Received, Held)>> {
        let mut message = Message::Credit;
        let arrived = self.endpoint.take(0, &mut message)?;
        Ok(arrived.map(|Arrived { at, len, held, .. }| (Received { message, at, len }, held)))
    }

    /// Releases the memory of a message.
    #[inline]
    pub(crate) fn release(&mut self, held: Held, message: &Message) -> Result<()> {
        match (held, message) {
            (Held::Slot(slot), Message::Credit) => Ok(self.endpoint.queue.post_receive(slot)?),
            _ => Ok(self.endpoint.release(0, held)?),
        }
    }
}
