//! [`Portals`]: sends, receives and probes as calls of Portals, and the handling of their events.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use host::{Host, SlotKey};
use portals::{
    AckReq, Action, EAGER_MAX, Engine, Entry, EntryHandle, EntryOptions, EqHandle, Event, EventKind, Fail,
    List, ListId, Matcher, MdAddr, MdHandle, MdOptions, MemoryDescriptor, Ni, Node, Process, PtOptions,
    Region, Search, Source, Transfer, TryRecv,
};

use super::bits::{self, LONG};
use super::entries::{MESSAGES, READS, failed};
use super::found::{FoundMessage, PortalsKey};
use super::open;
use super::overflow::Overflow;
use crate::bootstrap::Bootstrap;
use crate::error::{Class, Error, Result};
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::{Envelope, MatchCriteria};
use crate::p2p::operation::{ArrivedData, Receive, Table};
use crate::p2p::wire::MatchKey;
use crate::peers::nic::Port;
use crate::status::Status;

/// The capacity of the event queue: more than the operations that can be in progress.
const EVENTS: usize = 1 << 24;
/// The user pointer of a search for one message, and of requests whose events are ignored.
const CLAIM: u64 = u64::MAX;
const IGNORED: u64 = 0;

/// How a send or a receive has started.
#[derive(Debug)]
pub(crate) enum PortalsStarted {
    /// It has completed already.
    Completed(Status),
    /// It is in progress under this name. After [`Portals::set_operation`] has set its operation, [`Portals::next_completed`]
    /// reports its completion.
    InProgress(PortalsKey),
}

/// A send in progress.
#[derive(Debug)]
struct Outgoing {
    to: u32,
    operation: Option<SlotKey>,
    /// Keeps the data alive until the send completes.
    data: Option<Buffer>,
    /// The entry from which a receive may get the data.
    exposed: Option<EntryHandle>,
    /// The events still expected: the message has left; it was matched, and in which list; a receive has got the data.
    awaits_send: bool,
    awaits_ack: bool,
    awaits_get: bool,
    /// Its status, if it completed before it had an operation.
    status: Option<Status>,
}

impl Outgoing {
    /// A send that is about to be posted. If `is_exposed`, the receiver gets the data from this process, and its match is reported.
    fn new(to: u32, is_exposed: bool) -> Self {
        let (operation, data, exposed, status) = (None, None, None, None);
        Self {
            to,
            operation,
            data,
            exposed,
            awaits_send: true,
            awaits_ack: is_exposed,
            awaits_get: is_exposed,
            status,
        }
    }
}

/// A receive without its message, or without all its data.
#[derive(Debug)]
struct Incoming {
    receive: Receive,
    operation: Option<SlotKey>,
    entry: Option<EntryHandle>,
    /// The destination of the data, if the program's memory is not contiguous.
    staging: Option<Buffer>,
    /// The message whose data are being fetched, and its length.
    fetching: Option<(Envelope, u64)>,
    status: Option<Status>,
}

impl Incoming {
    fn new(receive: Receive) -> Result<Self> {
        let buffer = &receive.buffer;
        let own = || Buffer::from_bytes(&vec![0; buffer.len() as usize]);
        let staging = if buffer.is_noncontiguous() { Some(own()?) } else { None };
        Ok(Self { receive, operation: None, entry: None, staging, fetching: None, status: None })
    }

    /// Address and length of the memory that data are received into.
    fn destination(&self) -> (u64, u64) {
        let buffer = self.staging.as_ref().unwrap_or(&self.receive.buffer);
        buffer.contiguous_range().map_or((0, 0), |(addr, len)| (addr as u64, len as u64))
    }

    /// Copies the first `len` received bytes from the staging buffer, if there is one.
    fn unpack(&self, len: u64) {
        if let Some(staging) = &self.staging {
            self.receive.buffer.store(&staging.to_vec()[..len as usize]);
        }
    }
}

/// A process's messages over Portals.
#[derive(Debug)]
pub(crate) struct Portals {
    ni: Ni,
    host: Host,
    eq: EqHandle,
    /// Memory descriptors of all memory; `silent` reports no event on success.
    all: MdHandle,
    silent: MdHandle,
    sends: Table<Outgoing>,
    receives: Table<Incoming>,
    in_flight: usize,
    overflow: Overflow,
    events: VecDeque<Event>,
    found: Option<FoundMessage>,
    completed: VecDeque<(SlotKey, Status)>,
}

impl Portals {
    /// Opens an interface on a device, and exchanges addresses with the other processes, which have the same job key. Collective.
    pub(crate) fn open(
        host: &Host,
        port: &Port,
        matcher: Matcher,
        bootstrap: &dyn Bootstrap,
        job: &auth::Key,
    ) -> Result<Self> {
        let ni = open::open(host, port, matcher, &job.derive("portals", &[]))?;
        let set_up = |engine: &mut Engine| {
            engine.set_patient();
            let eq = engine.eq_alloc(EVENTS)?;
            engine.pt_alloc(PtOptions::empty(), Some(eq), Some(MESSAGES))?;
            engine.pt_alloc(PtOptions::empty(), Some(eq), Some(READS))?;
            let mut all = |options| {
                let region = Region::new(0, u64::MAX);
                engine.md_bind(MemoryDescriptor { region, options, eq: Some(eq), counter: None })
            };
            Ok((eq, all(MdOptions::empty())?, all(MdOptions::EVENT_SUCCESS_DISABLE)?))
        };
        let (eq, all, silent) = ni.with_engine(set_up).ok_or_else(closed_error)?.map_err(failed)?;
        let overflow = ni.with_engine(Overflow::new).ok_or_else(closed_error)??;
        open::exchange_addresses(&ni, bootstrap)?;
        Ok(Self {
            ni,
            host: host.clone(),
            eq,
            all,
            silent,
            sends: Table::default(),
            receives: Table::default(),
            in_flight: 0,
            overflow,
            events: VecDeque::new(),
            found: None,
            completed: VecDeque::new(),
        })
    }

    /// The event source on which a thread sleeps.
    pub(crate) fn source(&self) -> &Node {
        self.ni.node()
    }

    /// Calls the interface, and fetches its events; the caller must call [`Portals::handle_events`] afterwards.
    fn call<T>(&mut self, act: impl FnOnce(&mut Engine) -> portals::Result<T>) -> Result<T> {
        let Self { ni, eq, events, .. } = self;
        let done = ni.with_engine_then(act, |engine, done| {
            fetch_events(engine, *eq, events);
            done
        });
        done.ok_or_else(closed_error)?.map_err(failed)
    }

    /// Sends bytes, if the message can be sent immediately; returns whether it was. If not, nothing has happened.
    #[inline]
    pub(crate) fn try_send(&mut self, to: u32, match_key: MatchKey, piece: Piece) -> bool {
        let Some(bits) = bits::match_bits_of(match_key) else { return false };
        let (offset, len) = piece.addr_len();
        let put = transfer(Action::Put, len, (Process::rank(to), MESSAGES), IGNORED);
        let local = MdAddr { md: self.silent, offset };
        self.ni.try_put(&Transfer { put: Some(local), match_bits: bits, ..put })
    }

    /// Receives bytes into one piece without posting a receive, if the matching message is the next message from its source; polls
    /// `polls` times. Returns its tag and its length; if `None`, nothing has happened.
    #[inline]
    pub(crate) fn try_receive(
        &self,
        wanted: &MatchCriteria,
        into: Piece,
        polls: u32,
    ) -> Option<(i32, usize)> {
        match self.try_receive_put(wanted, into.addr_len(), polls) {
            TryRecv::Put(bits, len) => Some((bits::tag(bits), len as usize)),
            TryRecv::Nothing | TryRecv::NotApplicable => None,
        }
    }

    /// Receives as [`Portals::try_receive`] does, for a [`Receive`]. Breaks with its status, or with `None` if a later poll cannot
    /// succeed either.
    #[inline]
    pub(crate) fn receive_stored(&self, receive: &Receive, polls: u32) -> ControlFlow<Option<Status>> {
        let wanted = &receive.wanted;
        let (Some((addr, len)), Some(source)) = (receive.buffer.contiguous_range(), wanted.source) else {
            return ControlFlow::Break(None);
        };
        match self.try_receive_put(wanted, (addr as u64, len as u64), polls) {
            TryRecv::Put(bits, len) => {
                let match_key = MatchKey { context: wanted.context, tag: bits::tag(bits) };
                ControlFlow::Break(Some(receive.status(&Envelope { source, match_key }, len)))
            }
            TryRecv::Nothing => ControlFlow::Continue(()),
            TryRecv::NotApplicable => ControlFlow::Break(None),
        }
    }

    #[inline]
    fn try_receive_put(&self, wanted: &MatchCriteria, (addr, len): (u64, u64), polls: u32) -> TryRecv {
        let Some((match_bits, ignore_bits)) = bits::receive_bits_of(wanted) else {
            return TryRecv::NotApplicable;
        };
        let source = source_of(wanted);
        let options = ONE_MESSAGE | EntryOptions::NO_TRUNCATE;
        let entry =
            Entry { source, match_bits, ignore_bits, ..Entry::taking_all(Region::new(addr, len), options) };
        self.ni.try_recv(MESSAGES, &entry, polls)
    }

    /// Starts a send. With `synchronous` it completes when a receive has got the message.
    ///
    /// # Errors
    /// Portals has no room for it, or cannot deliver it.
    pub(crate) fn send(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
        synchronous: bool,
    ) -> Result<PortalsStarted> {
        let bits = bits::match_bits_of(match_key).ok_or_else(not_carried_error)?;
        let copy = if buffer.is_noncontiguous() { Some(buffer.copied()?) } else { None };
        let data = copy.as_ref().unwrap_or(buffer);
        let (addr, len) = data.contiguous_range().map_or((0, 0), |(addr, len)| (addr as u64, len as u64));
        let is_long = len > EAGER_MAX;
        let is_exposed = is_long || synchronous;
        let target = Process::rank(to);
        if !is_exposed {
            let local = MdAddr { md: self.silent, offset: addr };
            let put = transfer(Action::Put, len, (target, MESSAGES), IGNORED);
            if self.ni.try_put(&Transfer { put: Some(local), match_bits: bits, ..put }) {
                return Ok(PortalsStarted::Completed(Status::empty()));
            }
        }
        let key = self.sends.insert(Outgoing::new(to, is_exposed));
        let number = key.number();
        let put = Transfer {
            put: Some(MdAddr { md: self.all, offset: addr }),
            ack: if is_exposed { AckReq::Full } else { AckReq::None },
            match_bits: if is_long { bits | LONG } else { bits },
            hdr_data: if is_exposed { number } else { IGNORED },
            ..transfer(Action::Put, len, (target, MESSAGES), number)
        };
        let entry = is_exposed.then(|| exposed_entry(Region::new(addr, len), number, target));
        let done = self.call(|engine| {
            let exposed = entry.map(|entry| engine.append(READ_LIST, entry, number)).transpose()?;
            engine.transfer(&put).map(|()| exposed)
        });
        let Some(outgoing) = self.sends.get_mut(key) else { return Err(closed_error()) };
        match done {
            Ok(exposed) => outgoing.exposed = exposed,
            Err(error) => {
                self.sends.remove(key);
                return Err(error);
            }
        }
        self.handle_events();
        let Some(outgoing) = self.sends.get_mut(key) else { return Err(closed_error()) };
        if let Some(status) = outgoing.status.take() {
            self.sends.remove(key);
            return Ok(PortalsStarted::Completed(status));
        }
        outgoing.data = Some(copy.unwrap_or_else(|| buffer.clone()));
        self.in_flight += 1;
        Ok(PortalsStarted::InProgress(PortalsKey::Send(key)))
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// Portals has no room for it.
    pub(crate) fn receive(&mut self, receive: Receive) -> Result<PortalsStarted> {
        let (match_bits, ignore_bits) =
            bits::receive_bits_of(&receive.wanted).ok_or_else(not_carried_error)?;
        let source = source_of(&receive.wanted);
        let incoming = Incoming::new(receive)?;
        let (addr, len) = incoming.destination();
        let entry = Entry {
            source,
            match_bits,
            ignore_bits,
            ..Entry::taking_all(Region::new(addr, len), ONE_MESSAGE)
        };
        let key = self.receives.insert(incoming);
        let place = ListId { pt_index: MESSAGES, list: List::Priority };
        let done = self.call(|engine| engine.append(place, entry, key.number()));
        match (done, self.receives.get_mut(key)) {
            (Ok(entry), Some(incoming)) => incoming.entry = Some(entry),
            (Ok(_), None) => return Err(closed_error()),
            (Err(error), _) => {
                self.receives.remove(key);
                return Err(error);
            }
        }
        self.handle_events();
        Ok(self.receive_started(key))
    }

    /// Returns how a receive has started.
    fn receive_started(&mut self, key: SlotKey) -> PortalsStarted {
        let status = self.receives.get_mut(key).and_then(|incoming| incoming.status.take());
        match status {
            Some(status) => {
                self.receives.remove(key);
                PortalsStarted::Completed(status)
            }
            None => PortalsStarted::InProgress(PortalsKey::Receive(key)),
        }
    }

    /// Starts a receive of a claimed message.
    ///
    /// # Errors
    /// As [`Portals::receive`].
    pub(crate) fn receive_found(&mut self, receive: Receive, found: &FoundMessage) -> Result<PortalsStarted> {
        if !found.is_long {
            let status = receive.store(&found.envelope, ArrivedData::Bytes(&found.bytes));
            self.get_exposed(found, (0, 0), IGNORED);
            self.handle_events();
            return Ok(PortalsStarted::Completed(status));
        }
        let key = self.receives.insert(Incoming::new(receive)?);
        self.fetch_long(key, found);
        self.handle_events();
        Ok(self.receive_started(key))
    }

    /// Sets the operation of a send or a receive, under which its completion is reported.
    pub(crate) fn set_operation(&mut self, name: PortalsKey, to: SlotKey) {
        let operation = match name {
            PortalsKey::Send(key) => self.sends.get_mut(key).map(|outgoing| &mut outgoing.operation),
            PortalsKey::Receive(key) => self.receives.get_mut(key).map(|incoming| &mut incoming.operation),
        };
        if let Some(operation) = operation {
            *operation = Some(to);
        }
    }

    /// Removes a receive that no message has matched; returns whether it did.
    pub(crate) fn cancel(&mut self, name: PortalsKey) -> bool {
        let PortalsKey::Receive(key) = name else { return false };
        let Some(entry) = self.receives.get_mut(key).and_then(|incoming| incoming.entry) else {
            return false;
        };
        let is_out = self.call(|engine| engine.unlink(entry)).is_ok();
        if is_out {
            self.receives.remove(key);
        }
        self.handle_events();
        is_out
    }

    /// Returns the message that a receive would get.
    pub(crate) fn probe(&mut self, wanted: &MatchCriteria) -> Option<FoundMessage> {
        self.search(wanted, Search::Only)
    }

    /// Takes the message that a receive would get out of matching.
    pub(crate) fn mprobe(&mut self, wanted: &MatchCriteria) -> Option<FoundMessage> {
        self.search(wanted, Search::Delete)
    }

    fn search(&mut self, wanted: &MatchCriteria, search: Search) -> Option<FoundMessage> {
        let (match_bits, ignore_bits) = bits::receive_bits_of(wanted)?;
        let entry = Entry {
            source: source_of(wanted),
            match_bits,
            ignore_bits,
            ..Entry::taking_all(Region::new(0, 0), ONE_MESSAGE)
        };
        self.found = None;
        // The search's result is an event that has been fetched already: unexpected messages are short, or only a header.
        self.call(|engine| engine.search(MESSAGES, entry, search, CLAIM)).ok()?;
        self.handle_events();
        let mut found = self.found.take()?;
        found.envelope.match_key.context = wanted.context;
        Some(found)
    }

    /// Drops the messages of a freed context.
    pub(crate) fn drop_context(&mut self, context: u64) {
        let wanted = MatchCriteria { context, source: None, tag: None };
        let Some((match_bits, ignore_bits)) = bits::receive_bits_of(&wanted) else { return };
        let options = ONE_MESSAGE - EntryOptions::USE_ONCE;
        let entry = Entry { match_bits, ignore_bits, ..Entry::taking_all(Region::new(0, 0), options) };
        // A search fails only for an invalid entry.
        self.call(|engine| engine.search(MESSAGES, entry, Search::Delete, IGNORED)).unwrap_or(());
        self.handle_events();
    }

    /// Polls for events.
    pub(crate) fn poll(&mut self) {
        let Self { ni, eq, events, .. } = self;
        ni.poll(|engine| fetch_events(engine, *eq, events));
        self.handle_events();
    }

    /// The next completed operation, and its status.
    pub(crate) fn next_completed(&mut self) -> Option<(SlotKey, Status)> {
        self.completed.pop_front()
    }

    /// The interface that matches messages.
    pub(crate) fn interface(&self) -> Ni {
        self.ni.clone()
    }

    /// Whether all messages have been sent, and fetched where necessary, and no peer waits for data or an answer from this process.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.ni.is_idle()
    }

    /// Handles all fetched events, including those caused by handling them.
    fn handle_events(&mut self) {
        while let Some(event) = self.events.pop_front() {
            self.handle_event(&event);
        }
    }

    fn handle_event(&mut self, event: &Event) {
        let key = SlotKey::from_number(event.user_ptr);
        match event.kind {
            EventKind::Send => self.handle_send_event(key, |outgoing| {
                outgoing.awaits_send = false;
                // A failed send is reported by no other event.
                event.fail != Fail::Ok
            }),
            EventKind::Ack => self.handle_send_event(key, |outgoing| {
                outgoing.awaits_ack = false;
                outgoing.awaits_get &= event.fail == Fail::Ok && event.list == List::Overflow;
                event.fail != Fail::Ok
            }),
            EventKind::Get => self.handle_send_event(key, |outgoing| {
                (outgoing.awaits_get, outgoing.exposed) = (false, None);
                event.fail != Fail::Ok
            }),
            EventKind::Put => {
                let envelope = self.envelope(key, event);
                self.complete_arrival(key, event, envelope, event.rlength);
            }
            EventKind::Reply => {
                let fetching = self.receives.get_mut(key).and_then(|incoming| incoming.fetching);
                self.complete_arrival(
                    key,
                    event,
                    fetching.map(|(envelope, _)| envelope),
                    fetching.map_or(0, |(_, len)| len),
                );
            }
            EventKind::PutOverflow => self.handle_overflow(key, event),
            EventKind::Search if event.fail == Fail::Ok => self.found = self.find(event),
            EventKind::AutoUnlink => {
                let overflow = &mut self.overflow;
                // Without memory for another block, messages wait at their senders until this process has received some.
                let _ = self.ni.with_engine(|engine| overflow.link(engine));
            }
            EventKind::AutoFree => self.overflow.free_block(event.user_ptr),
            _ => {}
        }
    }

    fn envelope(&mut self, key: SlotKey, event: &Event) -> Option<Envelope> {
        let context = self.receives.get_mut(key)?.receive.wanted.context;
        let match_key = MatchKey { context, tag: bits::tag(event.match_bits) };
        Some(Envelope { source: event.initiator.nid, match_key })
    }

    /// Handles an event of a send; `now` returns whether the send has failed.
    fn handle_send_event(&mut self, key: SlotKey, now: impl FnOnce(&mut Outgoing) -> bool) {
        let Some(outgoing) = self.sends.get_mut(key) else { return };
        let has_failed = now(outgoing);
        let awaits = outgoing.awaits_send || outgoing.awaits_ack || outgoing.awaits_get;
        if awaits && !has_failed {
            return;
        }
        let (to, operation, exposed) = (outgoing.to, outgoing.operation, outgoing.exposed.take());
        if let Some(entry) = exposed {
            // If a receive gets the data at this moment, the entry is unlinked by that.
            self.ni.with_engine(|engine| engine.unlink(entry).unwrap_or(()));
        }
        let lost = || Status::failed(Error::lost(to, "Portals could not deliver the message"));
        let status = if has_failed { lost() } else { Status::empty() };
        match operation {
            Some(operation) => {
                self.completed.push_back((operation, status));
                self.sends.remove(key);
                self.in_flight -= 1;
            }
            None => {
                if let Some(outgoing) = self.sends.get_mut(key) {
                    outgoing.status = Some(status);
                }
            }
        }
    }

    /// The data of a message have been stored for a receive.
    fn complete_arrival(&mut self, key: SlotKey, event: &Event, envelope: Option<Envelope>, len: u64) {
        let (Some(incoming), Some(envelope)) = (self.receives.get_mut(key), envelope) else { return };
        let status = if event.fail == Fail::Ok {
            incoming.unpack(event.mlength);
            incoming.receive.status(&envelope, len)
        } else {
            Status::failed(Error::lost(envelope.source, "Portals could not deliver its message"))
        };
        self.complete_receive(key, status);
    }

    /// A message arrived before the receive that matches it.
    fn handle_overflow(&mut self, key: SlotKey, event: &Event) {
        if event.user_ptr == CLAIM {
            self.found = self.find(event);
            return;
        }
        let Some(envelope) = self.envelope(key, event) else { return };
        let found = FoundMessage::from_event(envelope, event);
        if found.is_long {
            return self.fetch_long(key, &found);
        }
        let Some(incoming) = self.receives.get_mut(key) else { return };
        self.host.charge_copy(event.mlength);
        let status = match self.overflow.find(event.start) {
            Some((block, at)) => {
                incoming.receive.store(&envelope, ArrivedData::Slot(block, at, event.mlength as usize))
            }
            None => Status::failed(Error::new(
                Class::INTERN,
                "Portals stored a message outside of all overflow blocks",
            )),
        };
        self.get_exposed(&found, (0, 0), IGNORED);
        self.complete_receive(key, status);
    }

    /// The message that a search found, with the data of a short message, since the next event may free them.
    fn find(&self, event: &Event) -> Option<FoundMessage> {
        let match_key = MatchKey { context: 0, tag: bits::tag(event.match_bits) };
        let found = FoundMessage::from_event(Envelope { source: event.initiator.nid, match_key }, event);
        if event.kind == EventKind::Search || found.is_long {
            return Some(found);
        }
        let (block, at) = self.overflow.find(event.start)?;
        let bytes = block.to_vec(at..at + event.mlength as usize).ok()?;
        Some(FoundMessage { bytes, ..found })
    }

    /// Fetches the data of a long message from its sender.
    fn fetch_long(&mut self, key: SlotKey, found: &FoundMessage) {
        let Some(incoming) = self.receives.get_mut(key) else { return };
        incoming.fetching = Some((found.envelope, found.len));
        let (addr, room) = incoming.destination();
        self.get_exposed(found, (addr, found.len.min(room)), key.number());
    }

    /// Gets `len` bytes of the data that a sender has exposed, if it has: this also reports the match to the sender.
    fn get_exposed(&mut self, found: &FoundMessage, (addr, len): (u64, u64), number: u64) {
        if found.exposed_bits == IGNORED {
            return;
        }
        let get = Transfer {
            get: Some(MdAddr { md: self.all, offset: addr }),
            match_bits: found.exposed_bits,
            ..transfer(Action::Get, len, (Process::rank(found.envelope.source), READS), number)
        };
        // A transfer is refused only if it is invalid.
        self.call(|engine| engine.transfer(&get)).unwrap_or(());
    }

    fn complete_receive(&mut self, key: SlotKey, status: Status) {
        let Some(incoming) = self.receives.get_mut(key) else { return };
        match incoming.operation {
            Some(operation) => {
                self.completed.push_back((operation, status));
                self.receives.remove(key);
            }
            None => incoming.status = Some(status),
        }
    }
}

/// Entry options of a receive: it takes one message, and reports no event but that.
const ONE_MESSAGE: EntryOptions = EntryOptions::OP_PUT
    .union(EntryOptions::USE_ONCE)
    .union(EntryOptions::EVENT_LINK_DISABLE)
    .union(EntryOptions::EVENT_UNLINK_DISABLE);
/// The list of entries that expose data for receivers.
const READ_LIST: ListId = ListId { pt_index: READS, list: List::Priority };

/// An entry for one get by one process, under a number.
fn exposed_entry(region: Region, number: u64, process: Process) -> Entry {
    let options = (ONE_MESSAGE - EntryOptions::OP_PUT) | EntryOptions::OP_GET;
    let source = Source::exactly(process);
    Entry { source, match_bits: number, ignore_bits: 0, ..Entry::taking_all(region, options) }
}

fn transfer(action: Action, length: u64, (target, pt_index): (Process, u32), user_ptr: u64) -> Transfer {
    Transfer {
        action,
        put: None,
        get: None,
        length,
        ack: AckReq::None,
        target,
        pt_index,
        match_bits: 0,
        remote_offset: 0,
        user_ptr,
        hdr_data: IGNORED,
    }
}

fn source_of(wanted: &MatchCriteria) -> Source {
    wanted.source.map_or(Source::ANY, |source| Source::exactly(Process::rank(source)))
}

fn fetch_events(engine: &mut Engine, eq: EqHandle, into: &mut VecDeque<Event>) {
    while let Ok(Some((event, _))) = engine.eq_get(eq) {
        into.push_back(event);
    }
}

fn closed_error() -> Error {
    Error::new(Class::INTERN, "the Portals interface is closed")
}

fn not_carried_error() -> Error {
    Error::new(Class::INTERN, "Portals does not carry messages of this context")
}
