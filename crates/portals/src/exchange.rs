//! [`Exchange`]: connects a process's interfaces with its connections: sends requests, delivers messages and
//! moves data.
//!
//! Short data travel with their message. A long request carries the remote address of its data or of its
//! destination, and the target reads or writes it by RDMA after an entry has matched. Operations of a process
//! on itself need no message.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use transport::{Arrived, Nic, Registration};
use verbs::{Access, Buf, Device, RemoteAddr, Result, SendOp};

use crate::engine::Engine;
use crate::engine::initiator::Outgoing;
use crate::engine::target::{Arrival, Delivery};
use crate::link::connection::{EAGER_MAX, Payload};
use crate::link::connections::{Connections, Event};
use crate::link::memory;
use crate::link::nic::{SLOTS, reach};
use crate::link::trust::Trust;
use crate::link::wire::{INTERFACES, Message, VirtualChannel};
use crate::objects::atomic::ELEMENT_MAX;
use crate::objects::command::Transfer;
use crate::objects::entry::Entry;
use crate::objects::event::{Fail, List};
use crate::objects::message::{Action, Answer, Request};
use crate::objects::process::Process;
use crate::objects::region::Region;

/// An interface of this process.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) engine: Engine,
    /// The processes by rank; `None` on a physical interface.
    pub(crate) map: Option<Vec<Process>>,
}

/// Memory that the NIC accesses as one piece.
#[derive(Debug)]
struct Window {
    registration: Registration,
    addr: u64,
    /// A contiguous copy, if the user's memory has several pieces.
    copy: Option<Buf>,
}

impl Window {
    /// Exposes `len` bytes of user memory. With `filled` a copy starts with their contents.
    fn of(
        nic: &Nic,
        (region, offset, len): (&Region, u64, u64),
        access: Access,
        filled: bool,
    ) -> Result<Self> {
        let mut pieces = region.part(offset, len);
        if let (Some(piece), None) = (pieces.next(), pieces.next()) {
            let registration = reach(nic, piece.addr, piece.len, access)?;
            return Ok(Self { registration, addr: piece.addr, copy: None });
        }
        let copy = Buf::alloc((len as usize).max(1))?;
        if filled {
            let mut bytes = vec![0; len as usize];
            memory::load(region, offset, &mut bytes);
            copy.write(0, &bytes)?;
        }
        let registration = Registration::Own(Arc::new(nic.pd().reg_mr(&copy, access)?));
        Ok(Self { registration, addr: copy.addr(), copy: Some(copy) })
    }

    /// Copies received data back to the user's memory.
    fn finish(&self, region: &Region, offset: u64, len: u64) {
        if let Some(copy) = &self.copy
            && let Ok(bytes) = copy.to_vec(0..(len as usize).min(copy.len()))
        {
            memory::store(region, offset, &bytes);
        }
    }
}

/// An operation of this process in flight.
#[derive(Debug)]
struct Pending {
    link: usize,
    /// Only for long messages.
    window: Option<Box<Window>>,
    /// No answer is expected: the operation completes when its message has left.
    ends_when_left: bool,
}

/// The operations of an interface in flight, indexed by the low bits of their number.
#[derive(Debug, Default)]
struct InFlight {
    places: Vec<Option<(u64, Pending)>>,
    count: usize,
}

impl InFlight {
    fn insert(&mut self, operation: u64, pending: Pending) {
        let place = operation as u32 as usize;
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.count += usize::from(self.places[place].replace((operation, pending)).is_none());
    }

    fn get(&self, operation: u64) -> Option<&Pending> {
        let (number, pending) = self.places.get(operation as u32 as usize)?.as_ref()?;
        (*number == operation).then_some(pending)
    }

    fn remove(&mut self, operation: u64) -> Option<Pending> {
        self.get(operation)?;
        self.count -= 1;
        self.places[operation as u32 as usize].take().map(|(_, pending)| pending)
    }

    /// Assigns the operations of one link to the link that replaced it.
    fn replace(&mut self, link: usize, by: usize) {
        for (_, pending) in self.places.iter_mut().flatten().filter(|(_, pending)| pending.link == link) {
            pending.link = by;
        }
    }

    /// The operations of a link.
    fn of(&self, link: usize) -> Vec<u64> {
        let of = |(number, pending): &(u64, Pending)| (pending.link == link).then_some(*number);
        self.places.iter().flatten().filter_map(of).collect()
    }
}

/// An RDMA read or write of a message's data in progress.
#[derive(Debug)]
struct DataMove {
    link: usize,
    interface: u8,
    delivery: Delivery,
    window: Window,
    remote: RemoteAddr,
    len: u64,
    done: u64,
    /// Bytes of the current read or write.
    step: u64,
}

/// The Portals state of a process.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) connections: Connections,
    interfaces: [Option<Interface>; INTERFACES],
    pending: [InFlight; INTERFACES],
    moves: BTreeMap<u64, DataMove>,
    next_move: u64,
    /// Operations of this process on itself that have not been done.
    own: VecDeque<(u8, Outgoing)>,
    /// A message waits for room at a patient interface.
    has_waiting: bool,
    /// Something has happened that a thread may wait for.
    has_events: bool,
}

/// The result of [`crate::Ni::try_recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecv {
    /// The entry's message: its match bits and its length.
    Put(u64, u64),
    /// The process has sent no message so far; a later call may return one.
    Nothing,
    /// Not possible for this entry, or for the next message: the caller appends the entry and waits for its event.
    NotApplicable,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The state may have changed.
    pub(crate) changed: bool,
    /// More messages have arrived.
    pub(crate) more: bool,
}

/// How far the messages of a link were processed.
enum Drained {
    /// There are no more.
    All,
    /// There may be more.
    Some,
    /// The next message waits for room.
    Blocked,
}

/// Maximum number of messages processed from a lost link: as many as can be outstanding, unless the peer ignores the loss.
const LOST_LINK_MESSAGES_MAX: u32 = 1 << 11;

impl Exchange {
    pub(crate) fn new(device: &Device, address: Ipv4Addr, pid: Option<u32>, trust: Trust) -> Result<Self> {
        Ok(Self {
            connections: Connections::new(device, address, pid, trust)?,
            interfaces: [None, None, None, None],
            pending: Default::default(),
            moves: BTreeMap::new(),
            next_move: 0,
            own: VecDeque::new(),
            has_waiting: false,
            has_events: false,
        })
    }

    /// The interface of this number, if it is open.
    pub(crate) fn interface(&mut self, number: u8) -> Option<&mut Interface> {
        self.interfaces.get_mut(usize::from(number))?.as_mut()
    }

    /// Opens an interface.
    pub(crate) fn open(&mut self, number: u8, interface: Interface) {
        self.interfaces[usize::from(number)] = Some(interface);
    }

    /// Closes an interface; later messages for it are dropped.
    pub(crate) fn close(&mut self, number: u8) {
        self.interfaces[usize::from(number)] = None;
        self.pending[usize::from(number)] = InFlight::default();
        let key = |(key, it): (&u64, &DataMove)| (it.interface == number).then_some(*key);
        let keys: Vec<u64> = self.moves.iter().filter_map(key).collect();
        keys.into_iter().for_each(|key| drop(self.moves.remove(&key)));
    }

    /// Records that something has happened that a thread may wait for.
    pub(crate) fn mark_event(&mut self) {
        self.has_events = true;
    }

    /// Whether something has happened since the last call.
    #[inline]
    pub(crate) fn take_events(&mut self) -> bool {
        std::mem::take(&mut self.has_events)
    }

    /// Whether an interface has no operations in flight, and no data of messages for it.
    pub(crate) fn is_idle(&self, number: u8) -> bool {
        self.pending[usize::from(number)].count == 0
            && self.moves.values().all(|it| it.interface != number)
            && self.connections.is_drained()
    }

    /// Polls, with `brief` only the most frequent sources, and processes the events.
    #[inline]
    pub(crate) fn progress(&mut self, brief: bool) -> Progress {
        let took = self.connections.poll(brief);
        while let Some((link, by)) = self.connections.next_replaced() {
            self.pending.iter_mut().for_each(|pending| pending.replace(link, by));
        }
        let more = self.process_links();
        // Everything that gives the interfaces messages to send also sets one of the flags.
        if self.has_events || self.has_waiting || self.connections.has_events() || !self.own.is_empty() {
            self.flush();
        }
        let sent_queued = self.connections.take_sent_queued();
        Progress { changed: took || sent_queued || self.has_events, more }
    }

    /// Processes a few messages of each link. Returns whether there are more.
    #[inline]
    fn process_links(&mut self) -> bool {
        let (mut more, mut place) = (false, 0);
        while let Some(number) = self.connections.readable_at(place) {
            let drained =
                self.process_puts(number, SLOTS).unwrap_or_else(|| self.process_link(number, SLOTS));
            match drained {
                Drained::All => place += usize::from(self.connections.keep_readable(place, number)),
                Drained::Some => {
                    more = true;
                    place += 1;
                }
                Drained::Blocked => place += 1,
            }
        }
        more
    }

    /// Processes messages of a link, at most `most` of each virtual channel.
    #[inline]
    fn process_link(&mut self, number: usize, most: u32) -> Drained {
        match VirtualChannel::ALL.map(|channel| self.process_channel(number, channel, most)) {
            [Drained::Some, _] | [_, Drained::Some] => Drained::Some,
            [_, drained] => drained,
        }
    }

    /// Processes at most `most` requests of a link while they are puts with inline data and without
    /// acknowledgement: the most frequent case, in few steps. `None` on any other message or on an error;
    /// [`Exchange::process_link`] then finds everything that was not processed here.
    #[inline]
    fn process_puts(&mut self, number: usize, most: u32) -> Option<Drained> {
        let Self { interfaces, connections, has_events, .. } = self;
        let link = connections.link(number).filter(|link| !link.has_more_than_requests())?;
        let mut message = Message::Credit;
        for _ in 0..most {
            if !link.has_request() {
                return Some(Drained::All);
            }
            let arrived = link.peek(VirtualChannel::Request, &mut message).ok()??;
            let Message::Request { interface, request, exposed: None } = &mut message else { return None };
            let is_silent = request.action == Action::Put && !request.is_answered();
            let Interface { engine, map } = interfaces[usize::from(*interface)].as_mut()?;
            if !is_silent || arrived.len as u64 != request.length {
                return None;
            }
            if map.is_none() {
                request.initiator = link.peer;
            }
            let memory = link.memory(&arrived);
            let mover = |region: &Region, offset: u64, len: u64| {
                let moved = memory::store_from(region, offset, len as usize, (memory, arrived.at));
                if moved.is_ok() { Fail::Ok } else { Fail::Segv }
            };
            engine.arrive_whole(request, mover)?;
            *has_events = true;
            if link.release(&arrived).is_err() {
                connections.lose(number, false);
                return None;
            }
        }
        Some(Drained::Some)
    }

    /// Processes messages of one virtual channel of a link. A message that waits for room at a patient
    /// interface stays in the inbox with all messages after it, which stops the peer when its credits run
    /// out.
    #[inline]
    fn process_channel(&mut self, number: usize, channel: VirtualChannel, most: u32) -> Drained {
        let mut message = Message::Credit;
        for _ in 0..most {
            let Some(arrived) = self.connections.peek(number, channel, &mut message) else {
                return Drained::All;
            };
            if self.process_message(number, &mut message, &arrived).is_none() {
                self.has_waiting = true;
                return Drained::Blocked;
            }
            self.connections.release(number, &arrived);
            self.has_events = true;
        }
        Drained::Some
    }

    /// Sends the interfaces' messages, and processes the resulting events.
    pub(crate) fn flush(&mut self) {
        if std::mem::take(&mut self.has_waiting) {
            while self.process_links() {}
        }
        let mut waits = false;
        while self.connections.has_events() || self.has_outgoing() || !(waits || self.own.is_empty()) {
            while let Some(event) = self.connections.next_event() {
                self.has_events = true;
                self.handle(event);
            }
            for number in 0..INTERFACES {
                while let Some(interface) = &mut self.interfaces[number]
                    && let Some(outgoing) = interface.engine.next_outgoing()
                {
                    self.route(number as u8, outgoing);
                }
            }
            if let Some((number, outgoing)) = self.own.pop_front() {
                waits = self.perform_local(number, outgoing).is_none();
            }
        }
    }

    #[inline]
    fn has_outgoing(&self) -> bool {
        let has = |it: &Option<Interface>| it.as_ref().is_some_and(|it| it.engine.has_outgoing());
        self.interfaces.iter().any(has)
    }

    /// Sends a request to its target.
    #[inline]
    fn route(&mut self, number: u8, outgoing: Outgoing) {
        let Some(interface) = self.interface(number) else { return };
        let operation = outgoing.request.operation;
        let target = match &interface.map {
            None => Some(outgoing.target),
            Some(map) => map.get(outgoing.target.nid as usize).copied(),
        };
        if target == Some(self.connections.me()) {
            self.own.push_back((number, outgoing));
            return;
        }
        let sent = target.and_then(|target| self.send(number, target, outgoing).ok());
        if sent.is_none() {
            self.undeliverable(number, operation);
        }
    }

    fn undeliverable(&mut self, number: u8, operation: u64) {
        self.pending[usize::from(number)].remove(operation);
        if let Some(interface) = self.interface(number) {
            interface.engine.undeliverable(operation);
            self.has_events = true;
        }
    }

    /// Sends a put immediately if no one awaits its completion; returns whether it did. Otherwise nothing has
    /// happened.
    #[inline]
    pub(crate) fn try_put(&mut self, number: u8, transfer: &Transfer) -> bool {
        let Self { interfaces, connections, has_waiting, .. } = self;
        let Some(Interface { engine, map }) = &interfaces[usize::from(number)] else { return false };
        if *has_waiting || transfer.length > EAGER_MAX {
            return false;
        }
        let target = match map {
            None => Some(transfer.target),
            Some(map) => map.get(transfer.target.nid as usize).copied(),
        };
        let Some(target) = target.filter(|target| *target != connections.me()) else { return false };
        let Some((request, region, offset)) = engine.silent_put(transfer) else { return false };
        let len = request.length as usize;
        let data = Payload::User { region: Cow::Borrowed(region), offset, len, stays: false };
        let message = Message::Request { interface: number, request, exposed: None };
        connections.try_send(target, &message, &data)
    }

    /// On a logical interface: copies the next message of a process into an entry's memory and returns it, if
    /// the entry accepts puts of that process alone and would match it if appended now. Polls at most `polls`
    /// times. Otherwise nothing has happened.
    #[inline]
    pub(crate) fn try_recv(&mut self, number: u8, pt_index: u32, entry: &Entry, polls: u32) -> TryRecv {
        let Some(link) = self.direct_link(number, pt_index, entry) else { return TryRecv::NotApplicable };
        if (0..polls).all(|_| !self.connections.has_record(link)) {
            return TryRecv::Nothing;
        }
        let taken = self.take_direct(link, number, pt_index, entry);
        taken.map_or(TryRecv::NotApplicable, |(bits, length)| TryRecv::Put(bits, length))
    }

    /// The link by which the entry's only source stores messages, if no other entry waits for them and no
    /// message precedes them.
    #[inline]
    fn direct_link(&mut self, number: u8, pt_index: u32, entry: &Entry) -> Option<usize> {
        let Interface { engine, map } = self.interfaces[usize::from(number)].as_ref()?;
        if self.has_waiting || !engine.awaits_nothing(pt_index) {
            return None;
        }
        let source = entry.source.one()?;
        self.connections.stored_by(*map.as_ref()?.get(source.nid as usize)?)
    }

    #[inline]
    fn take_direct(&mut self, link: usize, number: u8, pt_index: u32, entry: &Entry) -> Option<(u64, u64)> {
        let engine = &self.interfaces[usize::from(number)].as_ref()?.engine;
        let mut message = Message::Credit;
        let arrived = self.connections.peek(link, VirtualChannel::Request, &mut message)?;
        let Message::Request { interface, request, exposed: None } = message else { return None };
        let is_it = interface == number && engine.would_take(pt_index, entry, &request);
        if !is_it || arrived.len as u64 != request.length {
            return None;
        }
        let memory = self.connections.memory(link, &arrived)?;
        memory::store_from(&entry.region, request.remote_offset, arrived.len, (memory, arrived.at)).ok()?;
        self.connections.release(link, &arrived);
        Some((request.match_bits, request.length))
    }

    /// Sends a request to another process.
    #[inline]
    fn send(&mut self, number: u8, target: Process, outgoing: Outgoing) -> Result<()> {
        let Outgoing { request, payload, is_volatile, .. } = outgoing;
        let link = self.connections.link_to(target)?;
        if request.length > EAGER_MAX {
            return self.send_long(number, link, request, payload);
        }
        let report = payload.is_some().then_some((number, request.operation));
        let data = payload.map_or(Payload::NONE, |(region, offset)| Payload::User {
            region: Cow::Owned(region),
            offset,
            len: request.length as usize,
            stays: !is_volatile,
        });
        let message = Message::Request { interface: number, request, exposed: None };
        let (operation, ends_when_left) = (request.operation, !request.is_answered());
        let has_left = self.connections.send(link, message, data, report);
        if !(has_left && ends_when_left) {
            self.pending[usize::from(number)]
                .insert(operation, Pending { link, window: None, ends_when_left });
        }
        if has_left
            && report.is_some()
            && let Some(interface) = self.interface(number)
        {
            interface.engine.sent(operation);
        }
        Ok(())
    }

    /// Sends a request whose data the target reads or writes by RDMA.
    fn send_long(
        &mut self,
        number: u8,
        link: usize,
        request: Request,
        payload: Option<(Region, u64)>,
    ) -> Result<()> {
        let (place, access) = match payload {
            Some((region, offset)) => (Some((region, offset, request.length)), Access::REMOTE_READ),
            None => {
                let reply = self.interface(number).and_then(|it| it.engine.reply_to(request.operation));
                (reply, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
            }
        };
        let is_read = access == Access::REMOTE_READ;
        let window = |(region, offset, len): (Region, u64, u64)| {
            Window::of(self.connections.nic(), (&region, offset, len), access, is_read).map(Box::new)
        };
        let window = place.map(window).transpose()?;
        let exposed = window.as_ref().map(|window| window.registration.remote(window.addr));
        let ends_when_left = exposed.is_none() && !request.is_answered();
        let message = Message::Request { interface: number, request, exposed };
        self.pending[usize::from(number)].insert(request.operation, Pending { link, window, ends_when_left });
        self.connections.send(link, message, Payload::NONE, None);
        Ok(())
    }

    /// Performs an operation of this process on itself; `None` if it has to wait.
    fn perform_local(&mut self, number: u8, outgoing: Outgoing) -> Option<()> {
        let Some(Interface { engine, .. }) = self.interface(number) else { return Some(()) };
        let operation = outgoing.request.operation;
        let answer = match engine.arrive(&outgoing.request) {
            Arrival::Wait => {
                self.own.push_front((number, outgoing));
                return None;
            }
            Arrival::Refused(answer) => {
                engine.sent(operation);
                answer
            }
            Arrival::Deliver(delivery) => {
                let place = delivery.place();
                let mut came = Vec::new();
                if let Some((region, offset)) = &outgoing.payload {
                    came.resize(place.2 as usize, 0);
                    memory::load(region, *offset, &mut came);
                }
                let fetched = perform(outgoing.request.action, place, &came);
                if let Some((region, offset, len)) = engine.reply_to(operation) {
                    let len = fetched.len().min(len as usize);
                    memory::store(&region, offset, &fetched[..len]);
                }
                engine.sent(operation);
                engine.deliver(delivery, Fail::Ok)
            }
        };
        if let Some(answer) = answer {
            engine.answered(&answer);
        }
        self.has_events = true;
        Some(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Left(number, operation) => {
                let pending = &mut self.pending[usize::from(number)];
                if pending.get(operation).is_some_and(|pending| pending.ends_when_left) {
                    pending.remove(operation);
                }
                if let Some(interface) = self.interface(number) {
                    interface.engine.sent(operation);
                }
            }
            Event::Accessed(key) => self.move_step_done(key),
            Event::Lost(link) => self.link_lost(link),
        }
    }

    /// A link was lost: processes the messages that have arrived, then fails everything in flight on it.
    fn link_lost(&mut self, link: usize) {
        self.process_link(link, LOST_LINK_MESSAGES_MAX);
        for number in 0..INTERFACES as u8 {
            let operations = self.pending[usize::from(number)].of(link);
            operations.into_iter().for_each(|operation| self.undeliverable(number, operation));
        }
        let keys: Vec<u64> =
            self.moves.iter().filter(|(_, it)| it.link == link).map(|(key, _)| *key).collect();
        for it in keys.into_iter().filter_map(|key| self.moves.remove(&key)).collect::<Vec<_>>() {
            if let Some(interface) = self.interface(it.interface) {
                interface.engine.deliver(it.delivery, Fail::Undeliverable);
            }
        }
    }

    /// Processes a message; `None` if it has to wait.
    #[inline]
    fn process_message(&mut self, link: usize, message: &mut Message, arrived: &Arrived) -> Option<()> {
        match message {
            Message::Request { interface, request, exposed } => {
                return self.process_request(link, *interface, (request, *exposed), arrived);
            }
            Message::Answer { interface, answer, is_asked } => {
                self.process_answer(link, *interface, (answer, *is_asked), arrived);
            }
            Message::Credit => {}
        }
        Some(())
    }

    /// Processes a request, with inline or remote data; `None` if it has to wait.
    fn process_request(
        &mut self,
        link: usize,
        number: u8,
        (request, exposed): (&mut Request, Option<RemoteAddr>),
        arrived: &Arrived,
    ) -> Option<()> {
        let came = if request.action.brings() && exposed.is_none() { request.length } else { 0 };
        let wants_short = request.action.fetches() && exposed.is_none();
        if arrived.len as u64 != came || (wants_short && request.length > EAGER_MAX) {
            self.connections.lose(link, false);
            return Some(());
        }
        let Some(interface) = self.interfaces.get_mut(usize::from(number)).and_then(Option::as_mut) else {
            let (operation, fail) = (request.operation, Fail::Dropped);
            let (is_quiet, list, mlength, offset) = (false, List::Priority, 0, 0);
            let answer = Answer { operation, fail, is_quiet, list, mlength, offset };
            self.answer(link, number, (request, exposed), Some(answer), Payload::NONE);
            return Some(());
        };
        if interface.map.is_none() {
            request.initiator = self.connections.peer(link).unwrap_or_default();
        }
        let Some(remote) = exposed else { return self.process_inline(link, number, request, arrived) };
        match interface.engine.arrive(request) {
            Arrival::Wait => return None,
            Arrival::Refused(answer) => {
                self.answer(link, number, (request, exposed), answer, Payload::NONE);
            }
            Arrival::Deliver(delivery) if delivery.place().2 > 0 => {
                self.begin_move(link, number, delivery, remote);
            }
            Arrival::Deliver(delivery) => {
                let answer = interface.engine.deliver(delivery, Fail::Ok);
                self.answer(link, number, (request, exposed), answer, Payload::NONE);
            }
        }
        Some(())
    }

    /// Processes a request whose data are inline, in the request or in the answer; `None` if it has to wait.
    #[inline]
    fn process_inline(
        &mut self,
        link: usize,
        number: u8,
        request: &Request,
        arrived: &Arrived,
    ) -> Option<()> {
        let memory = self.connections.memory(link, arrived)?;
        let Interface { engine, .. } = self.interfaces[usize::from(number)].as_mut()?;
        let (mut fetched, mut read) = (Vec::new(), None);
        let mover = |region: &Region, offset: u64, len: u64| {
            let moved = match request.action {
                Action::Put => memory::store_from(region, offset, len as usize, (memory, arrived.at)),
                Action::Get => {
                    read = Some((region.clone(), offset, len as usize));
                    Ok(())
                }
                _ => memory.to_vec(arrived.at..arrived.at + len as usize).map(|came| {
                    fetched = perform(request.action, (region, offset, len), &came);
                }),
            };
            if moved.is_ok() { Fail::Ok } else { Fail::Segv }
        };
        let answer = engine.arrive_whole(request, mover)?;
        if request.is_answered() {
            let data = match read {
                Some((region, offset, len)) => {
                    Payload::User { region: Cow::Owned(region), offset, len, stays: false }
                }
                None => Payload::Bytes(fetched.into()),
            };
            self.answer(link, number, (request, None), answer, data);
        }
        Some(())
    }

    /// Sends an answer if the initiator waits for one, or for its memory.
    fn answer(
        &mut self,
        link: usize,
        interface: u8,
        (request, exposed): (&Request, Option<RemoteAddr>),
        answer: Option<Answer>,
        fetched: Payload<'_>,
    ) {
        let is_asked = request.is_answered();
        if !is_asked && exposed.is_none() {
            return;
        }
        let (operation, fail, is_quiet, list, mlength, offset) =
            (request.operation, Fail::Ok, true, List::Priority, 0, 0);
        let done = Answer { operation, fail, is_quiet, list, mlength, offset };
        let message = Message::Answer { interface, answer: answer.unwrap_or(done), is_asked };
        self.connections.send(link, message, fetched, None);
    }

    fn begin_move(&mut self, link: usize, interface: u8, delivery: Delivery, remote: RemoteAddr) {
        let (region, offset, len) = delivery.place();
        let is_get = delivery.request().action == Action::Get;
        let window = Window::of(self.connections.nic(), (region, offset, len), Access::LOCAL_WRITE, is_get);
        match window {
            Ok(window) => {
                let key = self.next_move;
                self.next_move += 1;
                let it = DataMove { link, interface, delivery, window, remote, len, done: 0, step: 0 };
                self.moves.insert(key, it);
                self.advance(key);
            }
            Err(_) => self.end_move(link, interface, delivery, remote, Fail::Segv),
        }
    }

    /// Starts the RDMA read or write of the next bytes of a move.
    fn advance(&mut self, key: u64) {
        let most = self.connections.nic().access_max();
        let Some(it) = self.moves.get_mut(&key) else { return };
        it.step = (it.len - it.done).min(most);
        let local = it.window.registration.sge(it.window.addr.wrapping_add(it.done), it.step as u32);
        let (link, remote) = (it.link, it.remote.offset(it.done));
        let is_get = it.delivery.request().action == Action::Get;
        let op = if is_get { SendOp::Write(remote) } else { SendOp::Read(remote) };
        self.connections.start_access(link, op, local, key);
    }

    fn move_step_done(&mut self, key: u64) {
        let Some(it) = self.moves.get_mut(&key) else { return };
        it.done += it.step;
        if it.done < it.len {
            return self.advance(key);
        }
        let Some(it) = self.moves.remove(&key) else { return };
        let (region, offset, len) = it.delivery.place();
        if it.delivery.request().action != Action::Get {
            it.window.finish(region, offset, len);
        }
        self.end_move(it.link, it.interface, it.delivery, it.remote, Fail::Ok);
    }

    fn end_move(&mut self, link: usize, number: u8, delivery: Delivery, remote: RemoteAddr, fail: Fail) {
        let request = *delivery.request();
        let Some(interface) = self.interface(number) else { return };
        let answer = interface.engine.deliver(delivery, fail);
        self.answer(link, number, (&request, Some(remote)), answer, Payload::NONE);
    }

    /// Processes an answer, perhaps with data.
    fn process_answer(
        &mut self,
        link: usize,
        number: u8,
        (answer, is_asked): (&Answer, bool),
        arrived: &Arrived,
    ) {
        let pending = &mut self.pending[usize::from(number)];
        if pending.get(answer.operation).is_none_or(|pending| pending.link != link) {
            // Its interface was closed meanwhile, or the peer sent an unknown number.
            return;
        }
        let Some(Pending { window, .. }) = pending.remove(answer.operation) else { return };
        let Some(Interface { engine, .. }) = self.interfaces[usize::from(number)].as_mut() else { return };
        if let Some((region, offset, len)) = engine.reply_to(answer.operation) {
            match (window, self.connections.memory(link, arrived)) {
                (Some(window), _) => window.finish(&region, offset, answer.mlength.min(len)),
                (None, Some(memory)) => {
                    let len = arrived.len.min(len as usize);
                    // All of it has arrived and is still in the inbox.
                    memory::store_from(&region, offset, len, (memory, arrived.at)).unwrap_or(());
                }
                (None, None) => {}
            }
        }
        if is_asked {
            engine.answered(answer);
        } else {
            engine.sent(answer.operation);
        }
    }
}

/// Applies a message to the target's memory; returns the previous contents if the action fetches them.
fn perform(action: Action, (region, offset, len): (&Region, u64, u64), came: &[u8]) -> Vec<u8> {
    let len = len as usize;
    if action == Action::Put {
        memory::store(region, offset, &came[..len]);
        return Vec::new();
    }
    let mut before = vec![0; len];
    memory::load(region, offset, &mut before);
    let (op, datatype, operand) = match action {
        Action::Put | Action::Get => return before,
        Action::Atomic(op, datatype) | Action::FetchAtomic(op, datatype) => (op, datatype, [0; ELEMENT_MAX]),
        Action::Swap(op, datatype, operand) => (op, datatype, operand),
    };
    let mut after = before.clone();
    op.apply(datatype, &operand, &came[..len], &mut after);
    memory::store(region, offset, &after);
    if action.fetches() { before } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ListId;
    use crate::engine::initiator::MemoryDescriptor;
    use crate::objects::command::MdAddr;
    use crate::objects::handles::CtHandle;
    use crate::objects::limits::Limits;
    use crate::objects::message::AckReq;
    use crate::objects::options::{EntryOptions, MdOptions, PtOptions};

    fn exchange(host: &verbs::host::Host) -> Exchange {
        let device = fabric::open("shm", host).expect("a device");
        let trust = Trust::new(&auth::Key::from_bytes([1; 16]), host, &device).expect("random numbers");
        let mut exchange = Exchange::new(&device, Ipv4Addr::LOCALHOST, None, trust).expect("a port");
        let engine = Engine::new(exchange.connections.me(), 0, true, Limits::default());
        exchange.open(0, Interface { engine, map: None });
        exchange
    }

    /// Starts an empty put to a process, counted when it is acknowledged.
    fn put(exchange: &mut Exchange, target: Process) -> CtHandle {
        let engine = &mut exchange.interface(0).expect("open").engine;
        let (region, options) = (Region::new(0, 0), MdOptions::EVENT_CT_ACK);
        let ct = engine.ct_alloc().expect("the first");
        engine.pt_alloc(PtOptions::empty(), None, Some(0)).expect("the first");
        let place = ListId { pt_index: 0, list: List::Priority };
        engine.append(place, Entry::taking_all(region.clone(), EntryOptions::OP_PUT), 0).expect("room");
        let md = MemoryDescriptor { region, options, eq: None, counter: Some(ct) };
        let put = Transfer {
            action: Action::Put,
            put: Some(MdAddr { md: engine.md_bind(md).expect("room"), offset: 0 }),
            get: None,
            length: 0,
            ack: AckReq::Counting,
            target,
            pt_index: 0,
            match_bits: 0,
            remote_offset: 0,
            user_ptr: 0,
            hdr_data: 0,
        };
        engine.transfer(&put).expect("legal");
        exchange.flush();
        ct
    }

    /// Goal: an answer on a link that replaced another one completes the operation sent on the old link.
    /// Method: two processes connect to each other, and one has answered before the other has done anything
    /// but poll.
    #[test]
    fn answers_on_a_replacing_link_complete_operations() {
        let host = verbs::host::real::host();
        let mut both = [0, 1].map(|_| exchange(&host));
        both.sort_by_key(|exchange| exchange.connections.me());
        let [lower, higher] = &mut both;
        let (to_higher, to_lower) = (higher.connections.me(), lower.connections.me());
        let (counts, _) = (put(lower, to_higher), put(higher, to_lower));
        let is_there = |exchange: &Exchange| exchange.connections.readable_at(0).is_some();
        let until = host.now() + verbs::host::Span::from_ms(200);
        while host.now() < until {
            lower.connections.poll(false);
            higher.progress(false);
        }
        assert!(is_there(lower) && is_there(higher));
        lower.progress(false);
        let counted = lower.interface(0).expect("open").engine.ct_get(counts).expect("a counter");
        assert_eq!((counted.success, counted.failure), (1, 0));
    }
}
