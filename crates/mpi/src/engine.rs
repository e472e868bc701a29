//! [`Engine`]: MPI's point-to-point operations. It matches messages with receives, and moves data: short messages bring them
//! along, long ones are read by the receiver from the sender's memory.

use std::borrow::Cow;
use std::ops::ControlFlow;

use host::{Host, Step};
use verbs::{Buf, RemoteAddr, SendOp, Sge};

use crate::connection::{Next, Payload, Received, Short, Taken};
use crate::doubt::Ledger;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::matching::{Envelope, Match, Matching, Wanted};
use crate::memory::{Buffer, Piece};
use crate::operation::{
    Access, Answer, Body, Brought, Helping, Lent, Names, Operation, Plain, Reading, Receive, Sending, There,
    Work, Writing, envelope_status,
};
use crate::over_portals::{self, Portals, Started};
use crate::parts::Parts;
use crate::share::{Copying, Share};
use crate::space::Spaces;
use crate::status::{Ended, Status};
use crate::table::{Key, Table};
use crate::tool::{Carrier, Gauge, Happening, Traffic, Watch};
use crate::transport::{Event, HeldAt, STORED_MAX, Transport};
use crate::wire::{Called, Exposed, Label, Message};

/// MPI's modes of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is complete when the buffer may be used again (`MPI_Send`).
    #[default]
    Standard,
    /// It is complete at once, by a copy in the space attached for that (`MPI_Bsend`).
    Buffered,
    /// It is complete when a receive has matched it (`MPI_Ssend`).
    Synchronous,
    /// The receive is posted already, says the program (`MPI_Rsend`).
    Ready,
}

impl Mode {
    /// Whether nothing is to be done but to send.
    #[inline]
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Standard | Self::Ready)
    }
}

/// How an operation has begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is over already.
    Over(Status),
    /// It goes by this name.
    Under(Key),
}

/// What [`Engine::receive_stored`] finds.
#[derive(Debug)]
pub(crate) enum Stored {
    /// The message, which the receive has got.
    Received(Status),
    /// Nothing from the source so far, whose connection this is, if it is not over Portals.
    Nothing(Option<usize>),
    /// Its message may come another way.
    Unknown,
}

/// A message that was taken out of the order for one receive (`MPI_Mprobe`).
#[derive(Debug)]
pub(crate) struct Claimed {
    envelope: Envelope,
    body: Body,
    names: Group,
}

/// Something in several steps, each of which begins when operations have ended: a collective operation, a pair of a send and a
/// receive. It is asked again whenever an operation has ended.
pub(crate) trait Task: Send {
    /// Goes on as far as possible; says how it ended, if it has.
    fn advance(&mut self, engine: &mut Engine) -> Option<Status>;

    /// Whether it may wait for what nobody sends, so that it is worth asking.
    fn may_doubt(&self) -> bool {
        false
    }

    /// It has waited long: asks those that it waits for.
    fn doubt(&self, _engine: &mut Engine) {}

    /// A process says that it has called something else in an operation, or has given up.
    fn refuse(&mut self, _engine: &mut Engine, _from: u32, _label: Label, _called: Called) {}
}

/// All point-to-point state of a process.
pub(crate) struct Engine {
    pub(crate) transport: Transport,
    /// What matches the messages of most contexts, if not this engine: then the transport is for the others, and for memory.
    pub(crate) portals: Option<Box<Portals>>,
    host: Host,
    rank: u32,
    matching: Matching<Key, Body>,
    /// The first parts of long messages, which come by themselves.
    parts: Parts,
    operations: Table<Operation>,
    tasks: Vec<(Key, Box<dyn Task>)>,
    /// A task may be able to go on.
    stirred: bool,
    /// Where buffered sends are counted.
    pub(crate) spaces: Spaces,
    /// An operation has come to its end since somebody last asked.
    news: bool,
    /// Messages that both sides copy, and for whose next piece a send queue had no room.
    stalled: Vec<Key>,
    /// Long messages of this process's whose receivers have not told that they have them.
    lent: u32,
    /// What this process has sent to itself.
    own: Traffic,
    /// Entries of the matching queues that were looked at.
    looked: u64,
    /// Collective operations that were begun as schedules.
    pub(crate) scheduled: u64,
    /// What those were.
    ledger: Ledger,
    /// Sends of such that have failed, which perhaps nobody receives.
    abandoned: Vec<Key>,
    /// What has happened, while a tool wants to hear of it.
    pub(crate) watch: Option<Box<Watch>>,
    /// Receives that began with a look at what their source has stored, and at nothing else.
    hasty: u32,
}

/// Bytes of the longest write.
const WRITE_MAX: u64 = 1 << 30;

/// Of so many of them one makes progress first.
const HASTE_MAX: u32 = 256;
/// Looks in a row for what a process may have stored by Portals, which takes more to ask.
const PORTALS_LOOKS: u32 = 4;

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.transport)
    }
}

impl Engine {
    /// An engine of process `rank`.
    pub(crate) fn new(host: &Host, rank: u32, transport: Transport, portals: Option<Portals>) -> Self {
        Self {
            transport,
            portals: portals.map(Box::new),
            host: host.clone(),
            rank,
            matching: Matching::default(),
            parts: Parts::default(),
            operations: Table::default(),
            tasks: Vec::new(),
            stirred: false,
            spaces: Spaces::default(),
            news: false,
            stalled: Vec::new(),
            lent: 0,
            own: Traffic::default(),
            looked: 0,
            scheduled: 0,
            ledger: Ledger::default(),
            abandoned: Vec::new(),
            watch: None,
            hasty: 0,
        }
    }

    /// The machine that it runs on.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Begins a send.
    ///
    /// # Errors
    /// The process is lost; [`crate::Class::BUFFER`] without enough space for a buffered send.
    pub(crate) fn send(&mut self, to: u32, label: Label, buffer: &Buffer, mode: Mode) -> Result<Begun> {
        self.send_for(to, label, buffer, (mode, false))
    }

    /// Begins a send, for whose end the caller may wait at once: then this process answers the receiver.
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub(crate) fn send_for(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, waits): (Mode, bool),
    ) -> Result<Begun> {
        self.host.charge_step(Step::Call, 1);
        if let Some(piece) = buffer.piece().filter(|_| mode.is_plain())
            && self.send_piece(to, label, piece)
        {
            return Ok(Begun::Over(Status::empty()));
        }
        self.send_on(to, label, buffer, (mode, waits))
    }

    /// Sends a short message, if it can be stored at once in the receiver's memory. Whether it has left; nothing has happened otherwise.
    #[inline]
    pub(crate) fn send_piece(&mut self, to: u32, label: Label, piece: Piece) -> bool {
        match self.portals(label.context) {
            Some(portals) => portals.send_piece(to, label, piece),
            None => self.transport.send_piece(to, label, piece),
        }
    }

    /// Takes the message for a receive that has not begun, from a process, if nothing waits in its context and that is the next one
    /// that the process has stored; looks for it `looks` times. Its tag and its length, or nothing, and then nothing has happened.
    #[inline]
    pub(crate) fn take_piece(
        &mut self,
        from: u32,
        wanted: &Match,
        into: Piece,
        looks: u32,
    ) -> Option<(i32, usize)> {
        let stored = self.transport.stored_by(from);
        if (stored.is_none() && self.portals.is_none()) || !self.matching.is_idle(wanted.context) {
            return None;
        }
        self.hasty = self.hasty.wrapping_add(1);
        if self.hasty.is_multiple_of(HASTE_MAX) {
            // A program that is never kept waiting goes on with what else is under way, too.
            self.progress(true);
            return None;
        }
        if let Some(portals) = self.portals(wanted.context) {
            let wanted = Wanted { context: wanted.context, source: Some(from), tag: wanted.tag };
            return portals.take_piece(&wanted, into, looks);
        }
        let number = stored?;
        for _ in 0..looks {
            match self.transport.take_piece(number, wanted, into) {
                Taken::Nothing => {}
                Taken::Message { tag, len } => return Some((tag, len)),
                Taken::Unknown => return None,
            }
        }
        None
    }

    /// What matches messages of a context, if not this engine.
    #[inline]
    fn portals(&mut self, context: u64) -> Option<&mut Portals> {
        self.portals.as_deref_mut().filter(|_| over_portals::carries(context))
    }

    /// Names what has begun over Portals, and ends what has come to its end by that.
    fn begun_by_portals(&mut self, started: Result<Started>) -> Result<Begun> {
        let begun = match started? {
            Started::Over(status) => Begun::Over(status.ok()?),
            Started::Under(name) => {
                let key = self.operations.insert(Operation::new(Work::Portals(name)));
                if let Some(portals) = &mut self.portals {
                    portals.belongs(name, key);
                }
                Begun::Under(key)
            }
        };
        self.end_of_portals();
        Ok(begun)
    }

    /// Ends what Portals has told the end of.
    fn end_of_portals(&mut self) {
        while let Some((key, status)) = self.portals.as_deref_mut().and_then(Portals::next_over) {
            self.end(key, status);
        }
    }

    /// Begins a send that does not leave at once.
    ///
    /// # Errors
    /// As [`Engine::send`].
    fn send_on(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (mode, waits): (Mode, bool),
    ) -> Result<Begun> {
        if mode == Mode::Buffered {
            return self.send_buffered(to, label, buffer);
        }
        self.dispatch(to, label, Cow::Borrowed(buffer), None, (mode == Mode::Synchronous, waits))
    }

    /// Sends data of the program's, or a copy of them.
    fn dispatch(
        &mut self,
        to: u32,
        label: Label,
        buffer: Cow<'_, Buffer>,
        copy: Option<Vec<u8>>,
        (answered, waits): (bool, bool),
    ) -> Result<Begun> {
        if let Some(portals) = self.portals(label.context) {
            let copy = copy.map(|bytes| Buffer::own(&bytes)).transpose()?;
            let started = portals.send(to, label, copy.as_ref().unwrap_or(&buffer), answered);
            return self.begun_by_portals(started);
        }
        let len = buffer.len();
        if to == self.rank {
            return self.send_to_self(label, copy.unwrap_or_else(|| buffer.to_vec()), answered);
        }
        if len > self.transport.payload_max(to)? as u64 {
            if !answered
                && copy.is_none()
                && !buffer.is_scattered()
                && let Some(cut) = self.transport.cut_to(to)?
                && len <= cut.whole
            {
                return self.send_in_parts(to, label, &buffer, cut.part);
            }
            return self.send_long(to, label, &buffer, (copy, waits));
        }
        let payload = match copy {
            Some(bytes) => Payload::Own(bytes),
            None => Payload::User(buffer),
        };
        if !answered && self.transport.send_now(to, &Message::Eager { label, answer: None }, &payload)? {
            return Ok(Begun::Over(Status::empty()));
        }
        self.host.charge_step(Step::Request, 1);
        let key = self.operations.insert(Operation::new(Work::Send { to, answered, held: None }));
        let message = Message::Eager { label, answer: answered.then(|| key.number()) };
        self.started(key, |engine| {
            if answered && engine.transport.send_now(to, &message, &payload)? {
                return Ok(());
            }
            // A peer that answers what it has not got must not make the program's memory free.
            let payload = match payload {
                Payload::User(buffer) if answered => Payload::Own(buffer.to_vec()),
                Payload::User(buffer) => Payload::User(Cow::Owned(buffer.into_owned())),
                Payload::Own(bytes) => Payload::Own(bytes),
                Payload::Lent { bytes, from, key } => Payload::Lent { bytes, from, key },
                Payload::None => Payload::None,
            };
            engine.transport.send(to, message, payload, (!answered).then_some(key))
        })
    }

    /// Ends an operation that could not begin.
    fn started(&mut self, key: Key, begin: impl FnOnce(&mut Self) -> Result<()>) -> Result<Begun> {
        match begin(self) {
            Ok(()) => Ok(Begun::Under(key)),
            Err(error) => {
                self.operations.remove(key);
                Err(error)
            }
        }
    }

    /// Sends data in parts, from where the program has them.
    fn send_in_parts(&mut self, to: u32, label: Label, buffer: &Buffer, part: usize) -> Result<Begun> {
        self.host.charge_step(Step::Request, 1);
        let bytes = buffer.piece().unwrap_or(Piece::nothing());
        let (address, len) = bytes.place();
        let reach = self.transport.reach(to, address as usize, len as usize, false)?;
        let whole = reach.sge(address, len as u32);
        let held = Sending { reach, staging: None, buffer: buffer.clone(), helping: None, writing: None };
        let work = Work::Send { to, answered: false, held: Some(Box::new(held)) };
        let key = self.operations.insert(Operation::new(work));
        let at = Exposed { addr: 0, rkey: 0, length: len };
        let message = Message::Request { label, id: key.number(), at, brings: len as u32, waits: false };
        let begun =
            self.started(key, |engine| engine.send_parts(to, message, (bytes, whole), part, Some(key)))?;
        self.lent += 1;
        Ok(begun)
    }

    /// Sends bytes of the program's, reached as `whole`, the first part with a message and the others behind it. When the last one has left, `key` comes out
    /// as [`Event::Accessed`].
    fn send_parts(
        &mut self,
        to: u32,
        first: Message,
        (bytes, whole): (Piece, Sge),
        part: usize,
        key: Option<Key>,
    ) -> Result<()> {
        let (Message::Request { id, .. } | Message::Part { id }) = first else { return Ok(()) };
        let (mut message, mut left) = (first, bytes);
        while left.len() > 0 {
            let [bytes, others] = left.split(part);
            let (addr, len) = bytes.place();
            let from = Sge { addr, length: len as u32, ..whole };
            let payload = Payload::Lent { bytes, from, key: key.filter(|_| others.len() == 0) };
            self.transport.send(to, message, payload, None)?;
            (message, left) = (Message::Part { id }, others);
        }
        Ok(())
    }

    /// Tells the receiver where the data are. A copy, or what lies in pieces, lies in memory of the operation's own.
    ///
    /// Who waits writes the data where the receiver wants them, on devices that send from all memory, and the first part goes at once, so
    /// that something is on its way while the two agree on the rest: to read them would take another message. Who goes on need not be
    /// asked for anything.
    fn send_long(
        &mut self,
        to: u32,
        label: Label,
        buffer: &Buffer,
        (copy, waits): (Option<Vec<u8>>, bool),
    ) -> Result<Begun> {
        let len = buffer.len() as usize;
        let (addr, staging) = match (buffer.one_piece(), copy) {
            (Some((addr, _)), None) => (addr, None),
            (_, copy) => {
                let staging = Buf::alloc(len)?;
                match copy {
                    Some(bytes) => staging.write(0, &bytes)?,
                    None => buffer.load_to(&staging, 0)?,
                }
                self.host.charge_copy(len as u64);
                (staging.addr() as usize, Some(staging))
            }
        };
        self.host.charge_step(Step::Request, 1);
        let memory = if staging.is_none() { buffer.memory() } else { None };
        let cut = self.transport.cut_to(to)?.filter(|_| waits && staging.is_none());
        let waits = cut.is_some();
        let reach = self.transport.reach_in(to, (addr, len), memory, !waits)?;
        let remote = if waits { RemoteAddr::default() } else { reach.remote(addr as u64) };
        let at = Exposed { addr: remote.addr, rkey: remote.rkey, length: len as u64 };
        // Never all of it goes at once: who gets the rest answers.
        let part = cut.map_or(0, |cut| cut.part.min(len / 2));
        let whole = buffer.piece().filter(|_| waits).unwrap_or(Piece::nothing());
        let [first, rest] = whole.split(part);
        let writing = waits.then_some(Writing { rest, under_way: 0 });
        let begin = reach.sge(addr as u64, first.len() as u32);
        let key = self.operations.insert(Operation::new(Work::Send {
            to,
            answered: true,
            held: Some(Box::new(Sending { reach, staging, buffer: buffer.clone(), helping: None, writing })),
        }));
        let id = key.number();
        let message = Message::Request { label, id, at, brings: first.len() as u32, waits };
        let begun = self.started(key, |engine| {
            engine.transport.send(to, message, Payload::None, None)?;
            engine.send_parts(to, Message::Part { id }, (first, begin), part, None)
        })?;
        self.lent += 1;
        Ok(begun)
    }

    fn send_to_self(&mut self, label: Label, bytes: Vec<u8>, answered: bool) -> Result<Begun> {
        let envelope = Envelope { source: self.rank, label };
        self.own.count(Carrier::Own, bytes.len());
        self.host.charge_copy(bytes.len() as u64);
        if let Some(key) = self.matching.arrive(&envelope) {
            self.take_in(key, &envelope, Brought::Bytes(&bytes));
            return Ok(Begun::Over(Status::empty()));
        }
        let key = answered.then(|| {
            self.operations.insert(Operation::new(Work::Send { to: self.rank, answered: true, held: None }))
        });
        self.keep(envelope, Body::Here { bytes, answer: key.map(Answer::Own) });
        Ok(key.map_or(Begun::Over(Status::empty()), Begun::Under))
    }

    fn send_buffered(&mut self, to: u32, label: Label, buffer: &Buffer) -> Result<Begun> {
        let share = self.spaces.share(label.context, buffer.len())?;
        let copy = buffer.to_vec();
        self.host.charge_copy(buffer.len());
        if let Begun::Under(key) =
            self.dispatch(to, label, Cow::Borrowed(buffer), Some(copy), (false, false))?
            && let Some(operation) = self.operations.get_mut(key)
        {
            (operation.free, operation.buffered) = (true, Some(Box::new(share)));
            self.spaces.take(share);
        }
        Ok(Begun::Over(Status::empty()))
    }

    /// Begins a receive.
    #[inline(always)] // it is put together where it waits, and not copied
    pub(crate) fn receive(&mut self, receive: Receive) -> Begun {
        self.host.charge_step(Step::Call, 1);
        self.host.charge_step(Step::Request, 1);
        let wanted = receive.wanted;
        if self.portals.is_some() || self.matching.keeps(wanted.context) || self.lost(&wanted).is_some() {
            return self.receive_early(receive);
        }
        self.await_message(receive)
    }

    /// Begins a receive of bytes in one piece, where nothing waits for it; nothing has happened otherwise.
    #[inline]
    pub(crate) fn post_plain(&mut self, wanted: Wanted, plain: Plain, comm: u64) -> Option<Key> {
        if self.portals.is_some() || self.lost(&wanted).is_some() {
            return None;
        }
        let receives = self.matching.receives(wanted.context)?;
        let key = self.operations.insert_with(|| Operation::of(Work::Plain(plain), comm));
        receives.push_back((wanted, key));
        Some(key)
    }

    /// Whether an operation has ended well; nothing while it has not ended.
    #[inline]
    pub(crate) fn has_ended_well(&mut self, key: Key) -> Option<bool> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(status), .. }) => Some(status.error.is_none()),
            Some(_) => None,
            None => Some(false),
        }
    }

    /// Begins a receive whose message may be here, or can come no more.
    fn receive_early(&mut self, receive: Receive) -> Begun {
        if let Some(portals) = self.portals(receive.wanted.context) {
            let started = portals.receive(receive);
            return self.received_by_portals(started);
        }
        if let Some((envelope, body)) = self.matching.receive(&receive.wanted) {
            return self.receive_kept(receive, envelope, body);
        }
        match self.lost(&receive.wanted) {
            Some(error) => Begun::Over(Status::failed(error)),
            None => self.await_message(receive),
        }
    }

    /// How a receive over Portals has begun: what failed is its status.
    fn received_by_portals(&mut self, started: Result<Started>) -> Begun {
        if let Ok(Started::Over(status)) = started {
            self.end_of_portals();
            return Begun::Over(status);
        }
        self.begun_by_portals(started).unwrap_or_else(|error| Begun::Over(Status::failed(error)))
    }

    #[inline(always)]
    fn await_message(&mut self, receive: Receive) -> Begun {
        let wanted = receive.wanted;
        let work = match receive.plain() {
            Some(plain) => Work::Plain(plain),
            None => Work::Receive(Box::new(receive)),
        };
        let key = self.operations.insert(Operation::new(work));
        self.matching.post(wanted, key);
        Begun::Under(key)
    }

    /// Takes the message for a receive that has not begun, as [`Engine::receive_stored`], and looks for it `looks` times.
    #[inline]
    pub(crate) fn await_stored(&mut self, receive: &Receive, looks: u32) -> Option<Status> {
        if let Some(portals) = self.portals(receive.wanted.context) {
            return portals.receive_stored(receive, looks).break_value().flatten();
        }
        let mut left = looks;
        loop {
            let number = match self.receive_stored(receive) {
                Stored::Received(status) => return Some(status),
                Stored::Nothing(number) => number?,
                Stored::Unknown => return None,
            };
            while !self.transport.has_stored(number) {
                left = left.checked_sub(1)?;
            }
        }
    }

    /// Takes the message for a receive that has not begun, if nothing waits in its context and that is the next one that its source
    /// has stored; what the source has stored before goes the usual way. Nothing else makes progress.
    #[inline]
    pub(crate) fn receive_stored(&mut self, receive: &Receive) -> Stored {
        let wanted = &receive.wanted;
        if let Some(portals) = self.portals(wanted.context) {
            return match portals.receive_stored(receive, PORTALS_LOOKS) {
                ControlFlow::Break(Some(status)) => Stored::Received(status),
                ControlFlow::Break(None) => Stored::Unknown,
                ControlFlow::Continue(()) => Stored::Nothing(None),
            };
        }
        let Some(number) = wanted.source.and_then(|source| self.transport.stored_by(source)) else {
            return Stored::Unknown;
        };
        while self.matching.is_idle(wanted.context) {
            match self.transport.next(number) {
                Next::Short(short) => {
                    let (source, buf) = self.transport.origin(number, &short);
                    let envelope = Envelope { source, label: short.label };
                    if short.label.context == wanted.context && wanted.takes(&envelope) {
                        let status = receive.take(&envelope, Brought::Slot(buf, short.at, short.len));
                        self.transport.pass(number, &short);
                        return Stored::Received(status);
                    }
                    self.received_short(number, &short);
                }
                Next::Other => self.received_other(number),
                Next::Nothing => return Stored::Nothing(Some(number)),
            }
        }
        Stored::Unknown
    }

    fn receive_kept(&mut self, receive: Receive, envelope: Envelope, body: Body) -> Begun {
        match body {
            Body::Here { bytes, answer } => {
                let status = receive.take(&envelope, Brought::Bytes(&bytes));
                self.host.charge_copy(status.bytes);
                self.answer(envelope.source, answer);
                Begun::Over(status)
            }
            Body::There(there) => {
                let key = self.operations.insert(Operation::new(Work::Receive(Box::new(receive))));
                self.fetch(key, envelope, there);
                Begun::Under(key)
            }
            Body::Found(found) => match &mut self.portals {
                Some(portals) => {
                    let started = portals.receive_found(receive, &found);
                    self.received_by_portals(started)
                }
                None => Begun::Over(receive.status(&envelope, 0)),
            },
        }
    }

    /// What a receive would get.
    pub(crate) fn probe(&mut self, wanted: &Wanted, names: &Group) -> Option<Status> {
        if let Some(portals) = self.portals(wanted.context) {
            let found = portals.probe(wanted);
            self.end_of_portals();
            return found.map(|found| envelope_status(&found.envelope, found.len, names));
        }
        let (envelope, body) = self.matching.probe(wanted)?;
        Some(envelope_status(envelope, body.len(), names))
    }

    /// Takes what a receive would get out of the order.
    pub(crate) fn claim(&mut self, wanted: &Wanted, names: &Group) -> Option<(Claimed, Status)> {
        let (envelope, body) = match self.portals(wanted.context) {
            Some(portals) => {
                let found = portals.claim(wanted);
                self.end_of_portals();
                let found = found?;
                (found.envelope, Body::Found(found))
            }
            None => self.matching.receive(wanted)?,
        };
        let status = envelope_status(&envelope, body.len(), names);
        Some((Claimed { envelope, body, names: names.clone() }, status))
    }

    /// Receives what was claimed.
    pub(crate) fn receive_claimed(&mut self, claimed: Claimed, buffer: Buffer) -> Begun {
        let Claimed { envelope, body, names } = claimed;
        let label = envelope.label;
        let wanted = Wanted { context: label.context, source: Some(envelope.source), tag: Some(label.tag) };
        self.receive_kept(Receive { wanted, buffer, names: Names::Of(names) }, envelope, body)
    }

    /// Begins something in several steps.
    pub(crate) fn begin(&mut self, mut task: Box<dyn Task>) -> Begun {
        if let Some(status) = task.advance(self) {
            return Begun::Over(status);
        }
        let key = self.operations.insert(Operation::new(Work::Task));
        self.tasks.push((key, task));
        Begun::Under(key)
    }

    /// An operation that somebody else ends, by [`Engine::complete`].
    pub(crate) fn open(&mut self) -> Begun {
        Begun::Under(self.operations.insert(Operation::new(Work::Task)))
    }

    /// Ends what [`Engine::open`] began; whether nobody asks for it any more.
    pub(crate) fn complete(&mut self, key: Key) -> bool {
        let is_abandoned = self.operations.get_mut(key).is_some_and(|operation| operation.free);
        self.end(key, Status::empty());
        is_abandoned
    }

    /// A task may be able to go on, though no operation has ended.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// A name for what has begun, also if it is over already.
    pub(crate) fn under(&mut self, begun: Begun) -> Key {
        match begun {
            Begun::Under(key) => key,
            Begun::Over(status) => self.operations.insert(Operation::new(Work::Over(status))),
        }
    }

    /// Has all tasks go on; whether there was a reason to.
    fn advance_tasks(&mut self) -> bool {
        let stirred = std::mem::take(&mut self.stirred);
        if stirred && !self.tasks.is_empty() {
            let mut tasks = std::mem::take(&mut self.tasks);
            tasks.retain_mut(|(key, task)| match task.advance(self) {
                Some(status) => {
                    self.end(*key, status);
                    false
                }
                None => true,
            });
            // What the tasks themselves have begun comes behind them.
            tasks.append(&mut self.tasks);
            self.tasks = tasks;
        }
        stirred
    }

    /// Whether a task may wait for what nobody sends.
    pub(crate) fn may_doubt(&self) -> bool {
        // What Portals carries does not come in one order with questions.
        self.portals.is_none() && self.tasks.iter().any(|(_, task)| task.may_doubt())
    }

    /// This process has waited long: all tasks ask those that they wait for.
    pub(crate) fn doubt(&mut self) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter().for_each(|(_, task)| task.doubt(self));
        tasks.append(&mut self.tasks);
        self.tasks = tasks;
    }

    /// A collective operation begins.
    pub(crate) fn called(&mut self, label: Label, called: Called) {
        self.ledger.begin(label, called);
        self.note(Happening::Scheduled { kind: called.kind, bytes: called.bytes });
    }

    /// One has failed.
    pub(crate) fn gave_up(&mut self, label: Label) {
        self.ledger.give_up(label);
    }

    /// Whom a send or a receive waits for.
    pub(crate) fn awaited(&mut self, key: Key) -> Option<u32> {
        match &self.operations.get_mut(key)?.work {
            Work::Receive(_) | Work::Plain(_) => self.matching.wanted_by(&key)?.source,
            Work::Send { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// Says something to a process; who is lost, or is this one, need not be told.
    pub(crate) fn tell_of(&mut self, process: u32, message: Message) {
        if process != self.rank {
            drop(self.transport.send(process, message, Payload::None, None));
        }
    }

    /// Gives up a send or a receive for which nobody may ever come; whether it did, or its data are being moved.
    pub(crate) fn abandon(&mut self, key: Key) -> bool {
        if self.awaited(key).is_none() {
            return false;
        }
        self.cancel(key);
        self.free(key);
        if self.has(key) {
            self.abandoned.push(key);
        }
        true
    }

    /// A process wants to know whether this one has called the same.
    fn asked(&mut self, from: u32, label: Label, called: Called) {
        if let Some(called) = self.ledger.differs(label, called) {
            self.tell_of(from, Message::Differs { label, called });
        }
    }

    /// A process has called something else than this one, or has given up.
    fn refused(&mut self, from: u32, label: Label, called: Called) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.iter_mut().for_each(|(_, task)| task.refuse(self, from, label, called));
        tasks.append(&mut self.tasks);
        (self.tasks, self.stirred) = (tasks, true);
    }

    /// How an operation ended, if it has; it is forgotten then.
    pub(crate) fn take(&mut self, key: Key) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(_), .. }) => {}
            Some(_) => return None,
            None => return Some(Status::empty()),
        }
        match self.operations.remove(key)?.work {
            Work::Over(status) => Some(status),
            _ => None,
        }
    }

    /// How the operation of a request ended, which has; `None` if there is none. It is forgotten then.
    #[inline(always)]
    pub(crate) fn collect(&mut self, key: Key) -> Option<Ended> {
        self.operations.retire(key, |operation| {
            let comm = operation.comm();
            let Work::Over(status) = &mut operation.work else { return None };
            // All that one holds which is over.
            let status = std::mem::replace(status, Status::empty());
            Some(Ended { status, comm, is_persistent: false })
        })
    }

    /// Shows how the operation of a request ended, which has, and well; whether there is such a one. It is forgotten then.
    #[inline(always)]
    pub(crate) fn hand_out(&mut self, key: Key, show: impl FnOnce(&Status)) -> bool {
        let shown = self.operations.retire(key, |operation| match &operation.work {
            // It holds nothing.
            Work::Over(status) if status.error.is_none() => {
                show(status);
                Some(())
            }
            _ => None,
        });
        shown.is_some()
    }

    /// Says whose an operation is.
    #[inline]
    pub(crate) fn belongs(&mut self, key: Key, comm: u64) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.belongs(comm);
        }
    }

    /// Whose it is.
    pub(crate) fn comm(&mut self, key: Key) -> Option<u64> {
        self.operations.get_mut(key)?.comm()
    }

    /// Whether an operation is under way that belongs to a communicator.
    pub(crate) fn is_busy(&self, comm: u64) -> bool {
        let is_of = |operation: &Operation| operation.comm() == Some(comm);
        self.operations
            .iter()
            .any(|(_, operation)| is_of(operation) && !matches!(operation.work, Work::Over(_)))
    }

    /// Whether there is such an operation.
    #[inline]
    pub(crate) fn has(&mut self, key: Key) -> bool {
        self.operations.get_mut(key).is_some()
    }

    /// The operation at a place of theirs.
    pub(crate) fn at(&self, place: u32) -> Option<Key> {
        self.operations.at(place)
    }

    /// Whether an operation has ended.
    #[inline]
    pub(crate) fn is_over(&mut self, key: Key) -> bool {
        self.operations.get_mut(key).is_none_or(|operation| matches!(operation.work, Work::Over(_)))
    }

    /// How an operation ended, if it has.
    pub(crate) fn peek(&mut self, key: Key) -> Option<Status> {
        match self.operations.get_mut(key) {
            Some(Operation { work: Work::Over(status), .. }) => Some(status.clone()),
            Some(_) => None,
            None => Some(Status::empty()),
        }
    }

    /// Nobody will ask how an operation ended.
    pub(crate) fn free(&mut self, key: Key) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        operation.free = true;
        if let Work::Over(_) = operation.work {
            self.operations.remove(key);
        }
    }

    /// Cancels a receive that no message has matched. Sends are beyond it: they complete.
    pub(crate) fn cancel(&mut self, key: Key) {
        let is_cancelled = match self.operations.get_mut(key).map(|operation| &operation.work) {
            Some(Work::Receive(_) | Work::Plain(_)) => self.matching.cancel(&key),
            Some(Work::Portals(name)) => {
                let name = *name;
                self.portals.as_deref_mut().is_some_and(|portals| portals.cancel(name))
            }
            _ => false,
        };
        if is_cancelled {
            self.end(key, Status { cancelled: true, ..Status::empty() });
        }
    }

    /// Whether the peers have, or can get, all that this process has sent.
    pub(crate) fn is_drained(&self) -> bool {
        let sends = |(key, operation): (Key, &Operation)| {
            matches!(operation.work, Work::Send { .. }) && !self.abandoned.contains(&key)
        };
        let portals = self.portals.as_deref();
        portals.is_none_or(Portals::is_drained)
            && self.transport.is_drained()
            && !self.operations.iter().any(sends)
    }

    /// What this process has sent to itself.
    pub(crate) fn own(&self) -> &Traffic {
        &self.own
    }

    /// What a gauge shows now.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        let ((receives, messages), (kept, most)) = (self.matching.waiting(), self.matching.kept());
        match gauge {
            Gauge::PostedReceives => receives as u64,
            Gauge::UnexpectedMessages => messages as u64,
            Gauge::UnexpectedMost => most as u64,
            Gauge::UnexpectedTotal => kept,
            Gauge::MatchLooks => self.looked,
            Gauge::Operations => self.operations.iter().count() as u64,
            Gauge::Connections => self.transport.open() as u64,
            Gauge::WaitingRequests => self.transport.waiting() as u64,
            Gauge::MemoryFound => self.transport.reached[0],
            Gauge::MemoryRegistered => self.transport.reached[1],
            Gauge::CollectivesScheduled => self.scheduled,
        }
    }

    /// Messages of a communicator that is no more are of no use.
    pub(crate) fn forget(&mut self, context: u64) {
        match self.portals(context) {
            Some(portals) => portals.forget(context),
            None => {
                for (envelope, body) in self.matching.forget(context) {
                    if let Body::There(there) = body {
                        self.parts.give_up(envelope.source, there.id);
                    }
                }
            }
        }
    }

    /// Whether an operation has come to its end since this was last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Does all that can be done now; with `brief` what is likely, and all of it once in a while.
    pub(crate) fn progress(&mut self, brief: bool) {
        self.transport.poll(brief);
        if let Some(portals) = &mut self.portals {
            portals.poll();
        }
        self.react();
        // What tasks begin can end at once; nobody may go to sleep on that.
        while self.advance_tasks() {
            self.react();
        }
        let looked = self.matching.looked();
        if looked > 0 {
            self.looked += looked;
            self.host.charge_step(Step::Match, looked);
        }
    }

    fn react(&mut self) {
        self.end_of_portals();
        loop {
            while let Some(event) = self.transport.next_event() {
                match event {
                    Event::Received { from, what, place } => {
                        self.host.charge_step(Step::Event, 1);
                        self.received(from, &what, place);
                        self.transport.release(place, &what.message);
                    }
                    Event::Sent(key) => self.end(key, Status::empty()),
                    Event::Landed { from, place } => self.landed(from, place),
                    Event::Accessed(key) => {
                        self.accessed(key);
                        self.resume();
                    }
                    Event::Lost { process, error } => self.lose(process, &error),
                }
            }
            let Some(number) = self.transport.next_stored_to() else { return };
            self.take_stored(number);
            self.transport.pump_stored(number);
        }
    }

    /// Takes what a peer has stored, for as long as the receives that were posted first are plain ones for it: each message is the first
    /// receive's then.
    #[inline(never)] // where it has all registers for itself
    fn take_posted(&mut self, number: usize) {
        let Self { transport, matching, operations, host, .. } = self;
        let mut count = 0;
        transport.take_from(number, |connection| {
            let (from, mut failed) = (connection.process, None);
            matching.each_first(|wanted, key| {
                let Some(Operation { work, free: false, .. }) = operations.get_mut(*key) else {
                    return false;
                };
                let Work::Plain(plain) = work else { return false };
                if count == STORED_MAX || wanted.source.is_some_and(|source| source != from) {
                    return false;
                }
                let wanted = Match { context: wanted.context, tag: wanted.tag };
                match connection.take_next(&wanted, plain.into) {
                    Ok(Taken::Message { tag, len }) => {
                        host.charge_copy(len as u64);
                        let status = plain.status(from, tag, len);
                        // A plain receive holds nothing: nobody need look what to drop.
                        std::mem::forget(std::mem::replace(work, Work::Over(status)));
                        count += 1;
                        true
                    }
                    Ok(Taken::Nothing | Taken::Unknown) => false,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            failed.map_or(Ok(()), Err)
        });
        if count > 0 {
            (self.news, self.stirred) = (true, true);
        }
    }

    /// Takes what a peer has stored.
    fn take_stored(&mut self, number: usize) {
        self.take_posted(number);
        for _ in 0..STORED_MAX {
            match self.transport.next(number) {
                Next::Short(short) => self.received_short(number, &short),
                Next::Other => self.received_other(number),
                Next::Nothing => return,
            }
        }
    }

    fn received_other(&mut self, number: usize) {
        if let Some((from, what, place)) = self.transport.next_stored(number) {
            self.host.charge_step(Step::Event, 1);
            self.received(from, &what, place);
            self.transport.release(place, &what.message);
        }
    }

    #[inline(always)]
    fn received_short(&mut self, number: usize, short: &Short) {
        let (source, buf) = self.transport.origin(number, short);
        let envelope = Envelope { source, label: short.label };
        self.host.charge_copy(short.len as u64);
        let brought = Brought::Slot(buf, short.at, short.len);
        if let Some(key) = self.matching.arrive(&envelope) {
            let status =
                self.operations.get_mut(key).and_then(|operation| operation.take(&envelope, brought));
            status.into_iter().for_each(|status| self.end(key, status));
        } else if let Ok(bytes) = brought.to_vec() {
            self.keep(envelope, Body::Here { bytes, answer: None });
        }
        self.transport.pass(number, short);
    }

    /// Keeps a message that no receive waits for.
    fn keep(&mut self, envelope: Envelope, body: Body) {
        if self.watch.is_some() {
            let (from, tag) = (envelope.source, envelope.label.tag);
            self.note(Happening::Unexpected { from, tag, bytes: body.len() });
        }
        self.matching.keep(envelope, body);
    }

    /// Something has happened that a tool may want to hear of.
    fn note(&mut self, what: Happening) {
        if let Some(watch) = &mut self.watch {
            watch.note(self.host.now(), what);
        }
    }

    fn received(&mut self, from: u32, what: &Received, place: HeldAt) {
        match what.message {
            Message::Eager { label, answer } => {
                let envelope = Envelope { source: from, label };
                let (buf, range) = self.transport.payload(what, place);
                let brought = Brought::Slot(buf, range.start, range.len());
                self.host.charge_copy(range.len() as u64);
                let answer = answer.map(Answer::Peer);
                if let Some(key) = self.matching.arrive(&envelope) {
                    let operation = self.operations.get_mut(key);
                    let status = operation.and_then(|operation| operation.take(&envelope, brought));
                    status.into_iter().for_each(|status| self.end(key, status));
                    self.answer(from, answer);
                } else if let Ok(bytes) = brought.to_vec() {
                    self.keep(envelope, Body::Here { bytes, answer });
                }
            }
            Message::Request { label, id, at, brings, waits } => {
                let (envelope, there) = (Envelope { source: from, label }, There { id, at, brings, waits });
                if brings > 0 {
                    self.parts.expect(from, id, brings);
                }
                match self.matching.arrive(&envelope) {
                    Some(key) => self.fetch(key, envelope, there),
                    None => self.keep(envelope, Body::There(there)),
                }
                if what.len > 0 {
                    self.part(from, id, what, place);
                }
            }
            Message::Part { id } => self.part(from, id, what, place),
            Message::Clear { id, at, place } => self.write(from, Key::from_number(id), at, place),
            Message::Done { id, ok } => {
                let key = Key::from_number(id);
                // A name that is not that of a send to this peer is a lie, and means nothing; so is an end before this side's pieces
                // are there.
                let awaited = |o: &mut Operation| match &o.work {
                    Work::Send { to, answered: true, held } => {
                        *to == from && !held.as_ref().is_some_and(|held| held.is_copied_from())
                    }
                    _ => false,
                };
                if self.operations.get_mut(key).is_some_and(awaited) {
                    let failed = || Status::failed(Error::lost(from, "it could not read the message"));
                    self.end(key, if ok { Status::empty() } else { failed() });
                }
            }
            Message::Share { id, key, at, place, turn } => {
                let share = Share { place, turn, length: at.length };
                self.help(from, Key::from_number(id), key, share, at);
            }
            Message::Copied { key, pieces } => self.copied(from, Key::from_number(key), pieces),
            Message::Ask { label, called } => self.asked(from, label, called),
            Message::Differs { label, called } => self.refused(from, label, called),
            Message::Credit => {}
        }
    }

    /// Gives a receive its data.
    fn take_in(&mut self, key: Key, envelope: &Envelope, data: Brought<'_>) {
        let status = self.operations.get_mut(key).and_then(|operation| operation.take(envelope, data));
        status.into_iter().for_each(|status| self.end(key, status));
    }

    /// Tells who wants to know that a message was matched.
    fn answer(&mut self, from: u32, answer: Option<Answer>) {
        match answer {
            Some(Answer::Peer(id)) => self.tell(from, id, true),
            Some(Answer::Own(key)) => self.end(key, Status::empty()),
            None => {}
        }
    }

    fn tell(&mut self, process: u32, id: u64, ok: bool) {
        // Who is lost need not be told.
        drop(self.transport.send(process, Message::Done { id, ok }, Payload::None, None));
    }

    /// Begins to read the data of a message that a receive has matched.
    fn fetch(&mut self, key: Key, envelope: Envelope, there: There) {
        let operation = self.operations.get_mut(key);
        let Some(receive) = operation.and_then(|operation| operation.receive(&envelope)) else { return };
        let (from, id) = (envelope.source, there.id);
        if there.at.length.min(receive.buffer.len()) == 0 && there.brings == 0 {
            self.tell(from, id, true);
            return self.end(key, receive.status(&envelope, there.at.length));
        }
        let here = self.parts.take(from, id, key);
        if let Err(error) = self.read(key, receive, envelope, there) {
            self.parts.give_up(from, id);
            self.tell(from, id, false);
            return self.end(key, Status::failed(error));
        }
        if !here.is_empty()
            && let Some(operation) = self.operations.get_mut(key)
        {
            let is_there = operation.take_part(Brought::Bytes(&here));
            self.took(key, is_there);
        }
        // Of a message that was kept, parts may be missing that come no more.
        if let Some(error) = self.transport.lost(from).cloned()
            && let Some(Operation { work: Work::Reading(_), .. }) = self.operations.get_mut(key)
        {
            self.end(key, Status::failed(error));
        }
    }

    /// The next part of a long message has come.
    fn part(&mut self, from: u32, id: u64, what: &Received, place: HeldAt) {
        let (buf, range) = self.transport.payload(what, place);
        let brought = Brought::Slot(buf, range.start, range.len());
        self.host.charge_copy(range.len() as u64);
        if let Some(key) = self.parts.arrive(from, id, brought)
            && let Some(operation) = self.operations.get_mut(key)
        {
            let is_there = operation.take_part(brought);
            self.took(key, is_there);
        }
    }

    /// A receive has got a part of its message, if it could take it, and perhaps all of it.
    fn took(&mut self, key: Key, is_there: verbs::Result<bool>) {
        match is_there {
            Ok(false) => {}
            Ok(true) => self.finish_reading(key),
            Err(error) => self.end(key, Status::failed(error.into())),
        }
    }

    /// Tells the sender of a message where the rest of it goes, if any is wanted.
    fn ask_for_rest(
        &mut self,
        key: Key,
        receive: Receive,
        (envelope, there): (Envelope, There),
        (addr, staging): (u64, Option<Buf>),
    ) -> Result<()> {
        let (from, wanted) = (envelope.source, there.at.length.min(receive.buffer.len()));
        let (rest, at) = (there.rest(wanted), addr + u64::from(there.brings));
        let reach = match rest {
            0 => self.transport.reach(from, addr as usize, wanted as usize, false)?,
            _ => self.transport.let_in(from, (at as usize, rest as usize))?,
        };
        let remote = reach.remote(at);
        let mut reading = Reading::new(receive, (envelope, there), reach, (addr, staging));
        (reading.is_open, reading.left) = (rest > 0, u64::from(rest > 0) + u64::from(there.brings > 0));
        if let Some(operation) = self.operations.get_mut(key) {
            operation.work = Work::Reading(Box::new(reading));
        }
        if rest == 0 {
            return Ok(());
        }
        let (id, place) = (there.id, key.parts().0);
        let at = Exposed { addr: remote.addr, rkey: remote.rkey, length: rest };
        self.transport.send(from, Message::Clear { id, at, place }, Payload::None, None)
    }

    fn read(&mut self, key: Key, receive: Receive, envelope: Envelope, there: There) -> Result<()> {
        let (from, wanted) = (envelope.source, there.at.length.min(receive.buffer.len()));
        let (addr, staging) = match receive.buffer.one_piece() {
            Some((addr, _)) => (addr as u64, None),
            None if wanted == 0 => (0, None),
            None => {
                let staging = Buf::alloc(wanted as usize)?;
                (staging.addr(), Some(staging))
            }
        };
        if there.waits {
            return self.ask_for_rest(key, receive, (envelope, there), (addr, staging));
        }
        let step = self.transport.nic_of(from)?.read_max();
        let memory = if staging.is_none() { receive.buffer.memory() } else { None };
        let reach = self.transport.reach_in(from, (addr as usize, wanted as usize), memory, false)?;
        // Whoever sends, too, is in an exchange, where the other one has as much to read: with each other's messages both would only
        // move memory between caches.
        if self.lent == 0 && there.brings == 0 && self.transport.may_share(from, wanted) {
            let mut reading = Reading::new(receive, (envelope, there), reach, (addr, staging));
            reading.left = wanted;
            if let Some(operation) = self.operations.get_mut(key) {
                operation.work = Work::Reading(Box::new(reading));
            }
            self.transport.await_share(from, key, wanted);
            self.share_on(from);
            return Ok(());
        }
        let (at, first) = (there.at, u64::from(there.brings).min(wanted));
        let pieces = (first..wanted).step_by(step as usize).map(|begin| {
            let piece = Exposed { addr: at.addr + begin, ..at };
            (piece, reach.sge(addr + begin, (wanted - begin).min(step) as u32))
        });
        let pieces: Vec<_> = pieces.collect();
        let under_way = pieces.len() as u64;
        let mut reading = Reading::new(receive, (envelope, there), reach, (addr, staging));
        (reading.left, reading.under_way) = (under_way + u64::from(there.brings > 0), under_way);
        if let Some(operation) = self.operations.get_mut(key) {
            operation.work = Work::Reading(Box::new(reading));
        }
        pieces.into_iter().try_for_each(|(piece, into)| self.transport.read(from, piece, into, key))
    }

    /// Begins to copy messages of a process that both copy, for as long as there are words for them: to read one alone instead would
    /// take longer than to wait for those before it.
    fn share_on(&mut self, from: u32) {
        while let Some((key, share)) = self.transport.next_share(from) {
            let Some(Operation { work: Work::Reading(reading), .. }) = self.operations.get_mut(key) else {
                self.transport.end_share(from, &share);
                continue;
            };
            let id = reading.there.id;
            let rkey = reading.reach.remote(reading.addr).rkey;
            let into = Exposed { addr: reading.addr, rkey, length: share.length };
            reading.copying = Some(Copying::new(share, true, reading.addr, &reading.reach, reading.there.at));
            reading.left = share.pieces();
            let (place, turn) = (share.place, share.turn);
            let message = Message::Share { id, key: key.number(), at: into, place, turn };
            // An error is a loss, of which an event tells.
            if self.transport.send(from, message, Payload::None, None).is_ok() {
                drop(self.copy_on(key));
            }
        }
    }

    /// Goes on with a message that both copy, at the receiver.
    fn copy_on(&mut self, key: Key) -> Result<()> {
        if let Some(Operation { work: Work::Reading(reading), .. }) = self.operations.get_mut(key)
            && let Some(copying) = &reading.copying
        {
            let (begun, is_stalled) = self.transport.copy(reading.envelope.source, copying, key)?;
            reading.under_way += u64::from(begun);
            if is_stalled {
                self.stall(key);
            }
        }
        Ok(())
    }

    /// Writes the rest of a message of this process's where its receiver wants it.
    fn write(&mut self, to: u32, id: Key, at: Exposed, place: u32) {
        let Some(Operation { work: Work::Send { to: known, held: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let Sending { writing: Some(writing), reach, .. } = &mut **sending else { return };
        let (from, len) = writing.rest.place();
        if *known != to || writing.under_way > 0 || at.length == 0 || at.length > len {
            return;
        }
        let begins = (0..at.length).step_by(WRITE_MAX as usize);
        writing.under_way = at.length.div_ceil(WRITE_MAX) as u32;
        let writes = begins.map(|begin| {
            let there = RemoteAddr { addr: at.addr + begin, rkey: at.rkey };
            let step = (at.length - begin).min(WRITE_MAX);
            let op = match begin + step == at.length {
                true => SendOp::WriteImm(there, place),
                false => SendOp::Write(there),
            };
            (op, reach.sge(from + begin, step as u32))
        });
        let writes: Vec<_> = writes.collect();
        for (op, piece) in writes {
            // An error is a loss, of which an event tells.
            drop(self.transport.access(to, op, piece, id));
        }
    }

    /// The rest of a message has been written to this process.
    fn landed(&mut self, from: u32, place: u32) {
        let Some(key) = self.operations.at(place) else { return };
        if let Some(Operation { work: Work::Reading(reading), .. }) = self.operations.get_mut(key)
            && reading.envelope.source == from
            && std::mem::take(&mut reading.is_open)
        {
            reading.left -= 1;
            if reading.is_whole() {
                self.finish_reading(key);
            }
        }
    }

    /// Copies pieces of a message of this process's, as its receiver invites it to.
    fn help(&mut self, to: u32, id: Key, key: u64, share: Share, at: Exposed) {
        let Some(Operation { work: Work::Send { to: known, held: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let staged = sending.staging.as_ref().map(Buf::addr);
        let local = staged.or_else(|| sending.buffer.one_piece().map(|(addr, _)| addr as u64));
        let Some(local) = local.filter(|_| *known == to && at.length <= sending.buffer.len()) else { return };
        if sending.helping.is_some() {
            // A receiver invites once.
            return;
        }
        let copying = Copying::new(share, false, local, &sending.reach, at);
        sending.helping = Some(Helping { copying, key, under_way: 0, copied: 0 });
        self.help_on(id);
    }

    fn stall(&mut self, key: Key) {
        if !self.stalled.contains(&key) {
            self.stalled.push(key);
        }
    }

    /// Goes on with all messages that waited for room in a send queue, as there is some.
    fn resume(&mut self) {
        for key in std::mem::take(&mut self.stalled) {
            // An error is a loss, of which an event tells.
            drop(self.copy_on(key));
            self.help_on(key);
        }
    }

    /// Goes on with a message that both copy, at the sender.
    fn help_on(&mut self, id: Key) {
        let Some(Operation { work: Work::Send { to, held: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let (to, Some(helping)) = (*to, &mut sending.helping) else { return };
        // Who is lost need not be helped.
        let (begun, is_stalled) = self.transport.copy(to, &helping.copying, id).unwrap_or_default();
        helping.under_way += begun;
        if is_stalled {
            return self.stall(id);
        }
        if helping.under_way > 0 {
            return;
        }
        let (key, pieces) = (helping.key, helping.copied);
        sending.helping = None;
        if pieces > 0 {
            drop(self.transport.send(to, Message::Copied { key, pieces }, Payload::None, None));
        }
    }

    /// The sender has copied pieces of a message that both copy.
    fn copied(&mut self, from: u32, key: Key, pieces: u32) {
        if let Some(Operation { work: Work::Reading(reading), .. }) = self.operations.get_mut(key)
            && reading.envelope.source == from
            && reading.copying.is_some()
        {
            reading.left = reading.left.saturating_sub(pieces.into());
            if reading.is_whole() {
                self.finish_reading(key);
            }
        }
    }

    /// Begins to read or change a peer's memory by these requests.
    ///
    /// # Errors
    /// The process is lost, or cannot be reached.
    pub(crate) fn access(
        &mut self,
        process: u32,
        requests: &[(SendOp, Sge)],
        lent: Option<Lent>,
    ) -> Result<Begun> {
        self.host.charge_step(Step::Request, 1);
        let access = Access { process, left: requests.len(), lent };
        let key = self.operations.insert(Operation::new(Work::Access(Box::new(access))));
        self.started(key, |engine| {
            requests.iter().try_for_each(|(op, piece)| engine.transport.access(process, *op, *piece, key))
        })
    }

    /// One of the requests of an access is over, or one of the reads of a receive.
    fn accessed(&mut self, key: Key) {
        let Some(Operation { work: Work::Access(access), .. }) = self.operations.get_mut(key) else {
            return self.fetched(key);
        };
        access.left -= 1;
        if access.left > 0 {
            return;
        }
        let mut status = Status::empty();
        if let Some(Lent { buffer, staging: Some(staging), is_read: true, .. }) = &access.lent {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        self.end(key, status);
    }

    /// A piece is copied.
    fn fetched(&mut self, key: Key) {
        match self.operations.get_mut(key).map(|operation| &mut operation.work) {
            Some(Work::Reading(reading)) => {
                reading.left = reading.left.saturating_sub(1);
                reading.under_way = reading.under_way.saturating_sub(1);
                if reading.is_whole() {
                    self.finish_reading(key);
                } else {
                    // An error is a loss, of which an event tells.
                    drop(self.copy_on(key));
                }
            }
            Some(Work::Send { answered: false, .. }) => self.end(key, Status::empty()),
            Some(Work::Send { held: Some(sending), .. }) => {
                if let Some(writing) = &mut sending.writing {
                    writing.under_way = writing.under_way.saturating_sub(1);
                    if writing.under_way == 0 {
                        self.end(key, Status::empty());
                    }
                    return;
                }
                if let Some(helping) = &mut sending.helping {
                    (helping.under_way, helping.copied) =
                        (helping.under_way.saturating_sub(1), helping.copied + 1);
                    self.help_on(key);
                }
            }
            _ => {}
        }
    }

    /// All pieces of a message are there.
    fn finish_reading(&mut self, key: Key) {
        let Some(Operation { work: Work::Reading(reading), .. }) = self.operations.get_mut(key) else {
            return;
        };
        let (from, there) = (reading.envelope.source, reading.there);
        if let Some(copying) = &reading.copying {
            self.transport.end_share(from, &copying.share);
        }
        let written = there.waits && there.rest(there.at.length.min(reading.receive.buffer.len())) > 0;
        let mut status = reading.receive.status(&reading.envelope, there.at.length);
        if let Some(staging) = &reading.staging {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = reading.receive.buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        // Who has written it, or has sent all of it, knows.
        if !written && u64::from(there.brings) < there.at.length {
            self.tell(from, there.id, true);
        }
        self.end(key, status);
        self.share_on(from);
    }

    /// Why nothing comes any more that is wanted, if so.
    #[inline]
    pub(crate) fn lost(&self, wanted: &Wanted) -> Option<Error> {
        wanted.source.and_then(|source| self.transport.lost(source)).cloned()
    }

    /// A process is lost: nothing waits for it any more.
    fn lose(&mut self, process: u32, error: &Error) {
        self.note(Happening::Lost { process });
        self.parts.lose(process);
        let stuck = self.operations.iter().filter(|(_, operation)| operation.needs(process));
        let mut stuck: Vec<Key> = stuck.map(|(key, _)| key).collect();
        let operations = &mut self.operations;
        stuck.extend(self.matching.give_up(|wanted, key| match wanted.source {
            Some(source) => source == process,
            None => operations.get_mut(*key).is_some_and(|operation| match &operation.work {
                Work::Receive(receive) => receive.names.contain(process),
                Work::Plain(plain) => plain.names.contain(process),
                _ => false,
            }),
        }));
        stuck.into_iter().for_each(|key| self.end(key, Status::failed(error.clone())));
    }

    /// An operation has come to its end.
    #[inline]
    fn end(&mut self, key: Key, status: Status) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        if let Work::Send { held: Some(_), .. } = operation.work {
            self.lent -= 1;
        }
        operation.work = Work::Over(status);
        (self.news, self.stirred) = (true, true);
        if let Some(share) = operation.buffered.take() {
            self.spaces.give_back(*share);
        }
        if operation.free {
            self.operations.forget(key);
        }
    }
}
