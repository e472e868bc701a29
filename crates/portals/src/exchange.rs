//! [`Exchange`]: the interfaces of a process and the carrier between them: requests go out, what comes is delivered, data are moved.
//!
//! Short data come along with their message. Of longer ones the request says where they lie, or where they are to go, and the target's
//! side reads or writes them after an entry has taken the message. Operations of a process on itself take no message.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use verbs::{Access, Buf, Device, RemoteAddr, Result};

use crate::atomic::ELEMENT_MAX;
use crate::carrier::{Carrier, Event};
use crate::engine::Engine;
use crate::event::{Fail, List};
use crate::initiator::Outgoing;
use crate::link::{EAGER_MAX, Payload, Task};
use crate::memory;
use crate::message::{Action, Answer, Request};
use crate::nic::{Nic, Reach};
use crate::process::Process;
use crate::region::Region;
use crate::target::{Arrival, Delivery};
use crate::wire::{INTERFACES, Message};

/// An interface of this process.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) engine: Engine,
    /// The processes by rank; `None` on a physical interface.
    pub(crate) map: Option<Vec<Process>>,
}

/// Memory that a NIC reaches as one piece.
#[derive(Debug)]
struct Window {
    reach: Reach,
    addr: u64,
    /// A copy in one piece, where the user's memory lies in several.
    copy: Option<Buf>,
}

impl Window {
    /// Bytes of the user's memory. A copy has them with `filled`.
    fn of(
        nic: &Nic,
        (region, offset, len): (&Region, u64, u64),
        access: Access,
        filled: bool,
    ) -> Result<Self> {
        let mut pieces = region.part(offset, len);
        if let (Some(piece), None) = (pieces.next(), pieces.next()) {
            let reach = nic.reach(piece.addr, piece.len, access)?;
            return Ok(Self { reach, addr: piece.addr, copy: None });
        }
        let copy = Buf::alloc((len as usize).max(1))?;
        if filled {
            let mut bytes = vec![0; len as usize];
            memory::load(region, offset, &mut bytes);
            copy.write(0, &bytes)?;
        }
        let reach = nic.reach_buf(&copy, access)?;
        Ok(Self { reach, addr: copy.addr(), copy: Some(copy) })
    }

    /// What was written to it is the user's.
    fn finish(&self, region: &Region, offset: u64, len: u64) {
        if let Some(copy) = &self.copy
            && let Ok(bytes) = copy.to_vec(0..(len as usize).min(copy.len()))
        {
            memory::store(region, offset, &bytes);
        }
    }
}

/// An operation of this process that is under way.
#[derive(Debug)]
struct Pending {
    link: usize,
    window: Option<Window>,
    /// Nothing comes back; it is over when it has left.
    ends_when_left: bool,
}

/// Data that are being fetched for a message, or brought.
#[derive(Debug)]
struct Move {
    link: usize,
    interface: u8,
    delivery: Delivery,
    window: Window,
    remote: RemoteAddr,
    len: u64,
    done: u64,
    /// Bytes under way.
    step: u64,
}

/// All that a process has of Portals.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) carrier: Carrier,
    interfaces: [Option<Interface>; INTERFACES],
    pending: BTreeMap<(u8, u64), Pending>,
    moves: BTreeMap<u64, Move>,
    next_move: u64,
    /// Operations of this process on itself that have not been done.
    own: VecDeque<(u8, Outgoing)>,
    /// Messages of links that wait for a place at a patient interface, or behind one that does. Their slots stay taken, so that the
    /// peer stops when it has filled all of the link's.
    waiting: BTreeMap<usize, VecDeque<Vec<u8>>>,
    /// Something has happened that somebody may wait for.
    news: bool,
}

impl Exchange {
    pub(crate) fn new(device: &Device, address: Ipv4Addr, pid: Option<u32>) -> Result<Self> {
        Ok(Self {
            carrier: Carrier::new(device, address, pid)?,
            interfaces: [None, None, None, None],
            pending: BTreeMap::new(),
            moves: BTreeMap::new(),
            next_move: 0,
            own: VecDeque::new(),
            waiting: BTreeMap::new(),
            news: false,
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

    /// Closes an interface: what comes for it is dropped.
    pub(crate) fn close(&mut self, number: u8) {
        self.interfaces[usize::from(number)] = None;
        self.pending.retain(|(interface, _), _| *interface != number);
        let key = |(key, it): (&u64, &Move)| (it.interface == number).then_some(*key);
        let keys: Vec<u64> = self.moves.iter().filter_map(key).collect();
        keys.into_iter().for_each(|key| drop(self.moves.remove(&key)));
    }

    /// Something has happened that somebody may wait for.
    pub(crate) fn has_news(&mut self) {
        self.news = true;
    }

    /// Whether something has happened since the last time it was asked.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether no operation of an interface is under way, and no data of messages for it.
    pub(crate) fn is_idle(&self, number: u8) -> bool {
        self.pending.keys().all(|(interface, _)| *interface != number)
            && self.moves.values().all(|it| it.interface != number)
            && self.carrier.is_drained()
    }

    /// Looks for news, and does what follows.
    pub(crate) fn progress(&mut self) {
        self.carrier.poll();
        self.flush();
    }

    /// Carries what the interfaces have to say, and does what follows.
    pub(crate) fn flush(&mut self) {
        self.hear_waiting();
        loop {
            while let Some(event) = self.carrier.next_event() {
                self.news = true;
                self.handle(event);
            }
            for number in 0..INTERFACES as u8 {
                while let Some(outgoing) = self.interface(number).and_then(|it| it.engine.next_outgoing()) {
                    self.route(number, outgoing);
                }
            }
            let waits = match self.own.pop_front() {
                Some((number, outgoing)) => self.perform_here(number, outgoing).is_none(),
                None => false,
            };
            if (waits || self.own.is_empty()) && !self.carrier.has_events() && !self.has_outgoing() {
                return;
            }
        }
    }

    fn has_outgoing(&self) -> bool {
        self.interfaces.iter().flatten().any(|interface| interface.engine.has_outgoing())
    }

    /// Sends a request on its way.
    fn route(&mut self, number: u8, outgoing: Outgoing) {
        let Some(interface) = self.interface(number) else { return };
        let operation = outgoing.request.operation;
        let target = match &interface.map {
            None => Some(outgoing.target),
            Some(map) => map.get(outgoing.target.nid as usize).copied(),
        };
        if target == Some(self.carrier.me()) {
            self.own.push_back((number, outgoing));
            return;
        }
        let sent = target.and_then(|target| self.send(number, target, outgoing).ok());
        if sent.is_none() {
            self.undeliverable(number, operation);
        }
    }

    fn undeliverable(&mut self, number: u8, operation: u64) {
        self.pending.remove(&(number, operation));
        if let Some(interface) = self.interface(number) {
            interface.engine.undeliverable(operation);
            self.news = true;
        }
    }

    /// Sends a request to another process.
    fn send(&mut self, number: u8, target: Process, outgoing: Outgoing) -> Result<()> {
        let Outgoing { request, payload, is_volatile, .. } = outgoing;
        let link = self.carrier.link_to(target)?;
        let is_long = request.length > EAGER_MAX;
        let (mut data, mut told, mut window) = (Payload::Bytes(Vec::new()), None, None);
        match payload {
            Some((region, offset)) if is_long => {
                let part = (&region, offset, request.length);
                window = Some(Window::of(self.carrier.nic(), part, Access::REMOTE_READ, true)?);
            }
            Some((region, offset)) if is_volatile => {
                let mut bytes = vec![0; request.length as usize];
                memory::load(&region, offset, &mut bytes);
                (data, told) = (Payload::Bytes(bytes), Some((number, request.operation)));
            }
            Some((region, offset)) => {
                data = Payload::User(region, offset, request.length);
                told = Some((number, request.operation));
            }
            None if is_long => {
                let reply = self.interface(number).and_then(|it| it.engine.reply_to(request.operation));
                if let Some((region, offset, len)) = reply {
                    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                    window = Some(Window::of(self.carrier.nic(), (&region, offset, len), access, false)?);
                }
            }
            None => {}
        }
        let exposed = window.as_ref().map(|window| window.reach.remote(window.addr));
        let ends_when_left = exposed.is_none() && !request.is_answered();
        self.pending.insert((number, request.operation), Pending { link, window, ends_when_left });
        let message = Message::Request { interface: number, request, exposed };
        self.carrier.submit(link, Task::Say { message, payload: data, told });
        Ok(())
    }

    /// Does an operation of this process on itself; `None` if it has to wait.
    fn perform_here(&mut self, number: u8, outgoing: Outgoing) -> Option<()> {
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
                let (_, _, mlength) = delivery.place();
                let mut came = Vec::new();
                if let Some((region, offset)) = &outgoing.payload {
                    came.resize(mlength as usize, 0);
                    memory::load(region, *offset, &mut came);
                }
                let fetched = perform(&delivery, &came);
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
        self.news = true;
        Some(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Received(link, bytes) => match self.waiting.get_mut(&link) {
                Some(behind) => behind.push_back(bytes),
                None => self.take(link, bytes),
            },
            Event::Left(interface, operation) => {
                if self.pending.get(&(interface, operation)).is_some_and(|pending| pending.ends_when_left) {
                    self.pending.remove(&(interface, operation));
                }
                if let Some(interface) = self.interface(interface) {
                    interface.engine.sent(operation);
                }
            }
            Event::Moved(key) => self.moved(key),
            Event::Lost(link) => self.lost(link),
        }
    }

    /// Takes a message that has come; one without a place waits, and the next ones of its link with it.
    fn take(&mut self, link: usize, bytes: Vec<u8>) {
        let Some((message, credits, data)) = Message::parse(&bytes) else {
            self.carrier.lose(link);
            return self.carrier.recycle(bytes);
        };
        let is_credit = message == Message::Credit;
        if self.hear(link, message, data).is_none() {
            return self.waiting.entry(link).or_default().push_front(bytes);
        }
        self.carrier.credited(link, credits, is_credit);
        self.carrier.recycle(bytes);
    }

    /// Tries once more to find places for messages that wait.
    fn hear_waiting(&mut self) {
        let links: Vec<usize> = self.waiting.keys().copied().collect();
        for link in links {
            let Some(mut waiting) = self.waiting.remove(&link) else { continue };
            while let Some(bytes) = waiting.pop_front() {
                self.take(link, bytes);
                if let Some(first) = self.waiting.get_mut(&link) {
                    first.append(&mut waiting);
                }
            }
        }
    }

    /// Nothing goes by a link any more, and nothing comes.
    fn lost(&mut self, link: usize) {
        let operations: Vec<(u8, u64)> =
            self.pending.iter().filter(|(_, pending)| pending.link == link).map(|(key, _)| *key).collect();
        operations.into_iter().for_each(|(interface, operation)| self.undeliverable(interface, operation));
        let keys: Vec<u64> =
            self.moves.iter().filter(|(_, it)| it.link == link).map(|(key, _)| *key).collect();
        for it in keys.into_iter().filter_map(|key| self.moves.remove(&key)).collect::<Vec<_>>() {
            if let Some(interface) = self.interface(it.interface) {
                interface.engine.deliver(it.delivery, Fail::Undeliverable);
            }
        }
    }

    /// Does what a message asks for; `None` if it has to wait.
    fn hear(&mut self, link: usize, message: Message, data: &[u8]) -> Option<()> {
        match message {
            Message::Request { interface, request, exposed } if self.carrier.hears_requests(link) => {
                return self.requested(link, interface, request, exposed, data);
            }
            Message::Answer { interface, answer, is_asked } if !self.carrier.hears_requests(link) => {
                self.answered(link, interface, &answer, is_asked, data);
            }
            Message::Credit => {}
            // A process of this version never says that there.
            Message::Request { .. } | Message::Answer { .. } => self.carrier.lose(link),
        }
        Some(())
    }

    /// A request has come, with its data or with where they are; `None` if it has to wait.
    fn requested(
        &mut self,
        link: usize,
        number: u8,
        mut request: Request,
        exposed: Option<RemoteAddr>,
        data: &[u8],
    ) -> Option<()> {
        let came = if request.action.brings() && exposed.is_none() { request.length } else { 0 };
        let wants_short = request.action.fetches() && exposed.is_none();
        if data.len() as u64 != came || (wants_short && request.length > EAGER_MAX) {
            self.carrier.lose(link);
            return Some(());
        }
        let peer = self.carrier.peer(link);
        let Some(interface) = self.interface(number) else {
            let (operation, fail) = (request.operation, Fail::Dropped);
            let (is_quiet, list, mlength, offset) = (false, List::Priority, 0, 0);
            let answer = Answer { operation, fail, is_quiet, list, mlength, offset };
            self.answer(link, number, &request, exposed, Some(answer), Vec::new());
            return Some(());
        };
        if interface.map.is_none() {
            request.initiator = peer.unwrap_or_default();
        }
        match interface.engine.arrive(&request) {
            Arrival::Wait => return None,
            Arrival::Refused(answer) => self.answer(link, number, &request, exposed, answer, Vec::new()),
            Arrival::Deliver(delivery) => match exposed {
                Some(remote) if delivery.place().2 > 0 => self.begin_move(link, number, delivery, remote),
                _ => {
                    let fetched = perform(&delivery, data);
                    let answer = interface.engine.deliver(delivery, Fail::Ok);
                    self.answer(link, number, &request, exposed, answer, fetched);
                }
            },
        }
        Some(())
    }

    /// Tells the initiator, if it waits: for an answer, or for its memory.
    fn answer(
        &mut self,
        link: usize,
        interface: u8,
        request: &Request,
        exposed: Option<RemoteAddr>,
        answer: Option<Answer>,
        fetched: Vec<u8>,
    ) {
        let is_asked = request.is_answered();
        if !is_asked && exposed.is_none() {
            return;
        }
        let (operation, fail, is_quiet, list, mlength, offset) =
            (request.operation, Fail::Ok, true, List::Priority, 0, 0);
        let done = Answer { operation, fail, is_quiet, list, mlength, offset };
        let message = Message::Answer { interface, answer: answer.unwrap_or(done), is_asked };
        self.carrier.submit(link, Task::Say { message, payload: Payload::Bytes(fetched), told: None });
    }

    fn begin_move(&mut self, link: usize, interface: u8, delivery: Delivery, remote: RemoteAddr) {
        let (region, offset, len) = delivery.place();
        let is_get = delivery.request().action == Action::Get;
        let window = Window::of(self.carrier.nic(), (region, offset, len), Access::LOCAL_WRITE, is_get);
        match window {
            Ok(window) => {
                let key = self.next_move;
                self.next_move += 1;
                let it = Move { link, interface, delivery, window, remote, len, done: 0, step: 0 };
                self.moves.insert(key, it);
                self.advance(key);
            }
            Err(_) => self.end_move(link, interface, delivery, remote, Fail::Segv),
        }
    }

    /// Has the next bytes of a move carried.
    fn advance(&mut self, key: u64) {
        let most = self.carrier.nic().move_max();
        let Some(it) = self.moves.get_mut(&key) else { return };
        it.step = (it.len - it.done).min(most);
        let local = it.window.reach.sge(it.window.addr.wrapping_add(it.done), it.step as u32);
        let is_write = it.delivery.request().action == Action::Get;
        let task = Task::Move { is_write, remote: it.remote.offset(it.done), local, key };
        let link = it.link;
        self.carrier.submit(link, task);
    }

    fn moved(&mut self, key: u64) {
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
        self.answer(link, number, &request, Some(remote), answer, Vec::new());
    }

    /// An answer has come, perhaps with data.
    fn answered(&mut self, link: usize, number: u8, answer: &Answer, is_asked: bool, data: &[u8]) {
        let key = (number, answer.operation);
        if self.pending.get(&key).is_none_or(|pending| pending.link != link) {
            // Its interface was closed meanwhile, or it is nobody's.
            return;
        }
        let Some(Pending { window, .. }) = self.pending.remove(&key) else { return };
        let Some(Interface { engine, .. }) = self.interface(number) else { return };
        if let Some((region, offset, len)) = engine.reply_to(answer.operation) {
            match window {
                Some(window) => window.finish(&region, offset, answer.mlength.min(len)),
                None => memory::store(&region, offset, &data[..data.len().min(len as usize)]),
            }
        }
        if is_asked {
            engine.answered(answer);
        } else {
            engine.sent(answer.operation);
        }
    }
}

/// Does to the target's memory what a message asks for; what was there before, if it asks for that.
fn perform(delivery: &Delivery, came: &[u8]) -> Vec<u8> {
    let (region, offset, len) = delivery.place();
    let (len, action) = (len as usize, delivery.request().action);
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
