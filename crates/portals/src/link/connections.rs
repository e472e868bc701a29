//! [`Connections`]: ordered messages, reads and writes between this process and others. Reports what happens as
//! [`Event`]s.
//!
//! A process's address is the port where it listens, so no directory is needed. The first request of either
//! process connects a link, and both use it for requests and answers, so that a waiting process polls one
//! connection. If two processes connect to each other at the same time, the attempt of the higher one wins,
//! and the messages queued for the other attempt use that link.
//!
//! Connect requests without proof of their sender are refused before they get here ([`Trust`]): they create
//! no link, memory or event.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use auth::{Proved, Seed};
use transport::{Answer, Arrived, CROSSED, ConnEvent, ConnStage, Links, Nic, Outcome, answer, of_completion};
use verbs::{Buf, CmEvent, ConnParam, ConnectRequest, Device, Error, Result, SendOp, Sge, Wc};

use crate::link::connection::{Connection, Payload};
use crate::link::nic;
use crate::link::trust::{self, Trust};
use crate::link::wire::{Message, VirtualChannel};
use crate::objects::process::Process;

/// Something that happened, except that messages have arrived.
#[derive(Debug)]
pub(crate) enum Event {
    /// The message of an operation has left: interface and operation.
    Left(u8, u64),
    /// A read or write has completed; if it failed, `Lost` reports that.
    Accessed(u64),
    /// A link was lost. Operations queued on it get no further events; messages that arrived before can still
    /// be read.
    Lost(usize),
}

/// Where all peers may store messages, one of this many polls examines the queues.
const QUEUES_EVERY: u32 = 8;

/// Numbers up to this one are well known; a process without such a number gets that of its port.
const PID_MAX: u32 = 1024;
/// The port of process 0.
const PORT_BASE: u16 = 29_000;

/// The port where a process listens.
fn port_of(pid: u32) -> Option<u16> {
    if pid <= PID_MAX { Some(PORT_BASE + pid as u16) } else { u16::try_from(pid).ok() }
}

/// The process that listens at a port.
fn pid_of(port: u16) -> u32 {
    match port.checked_sub(PORT_BASE) {
        Some(pid) if u32::from(pid) <= PID_MAX => u32::from(pid),
        _ => u32::from(port),
    }
}

/// Where a process listens, and its canonical name: a well-known process can also be named by its port.
fn address_of(process: Process) -> Option<(SocketAddr, Process)> {
    let port = port_of(process.pid)?;
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(process.nid)), port);
    Some((address, Process { pid: pid_of(port), ..process }))
}

/// All links of a process.
#[derive(Debug)]
pub(crate) struct Connections {
    nic: Nic,
    me: Process,
    trust: Trust,
    links: Links<Connection>,
    /// The links for this process's requests: the latest to each process.
    to: BTreeMap<Process, usize>,
    /// The last link that was used.
    last: Option<(Process, usize)>,
    /// Links that may have messages: all into which peers can store, and others that have received some.
    readable: Vec<usize>,
    events: VecDeque<Event>,
    /// Attempts and the links to the same processes that replace them; reported before any message of the
    /// latter.
    replaced: VecDeque<(usize, usize)>,
    left: Vec<(u8, u64)>,
    /// Polls until the queues are examined again.
    polls: u32,
    /// Queued messages may have left.
    has_sent_queued: bool,
}

impl Connections {
    /// Listens as process `pid`, or as any.
    pub(crate) fn new(device: &Device, address: Ipv4Addr, pid: Option<u32>, trust: Trust) -> Result<Self> {
        let too_large = || Error::Invalid("a process number is at most 65535".into());
        let port = pid.map_or(Some(0), port_of).ok_or_else(too_large)?;
        let me_at = |port| Process { nid: address.to_bits(), pid: pid_of(port) };
        if port != 0 {
            // Peers know the port, and may connect as soon as this process listens there.
            trust.open(me_at(port));
        }
        let nic = nic::open(device, (IpAddr::V4(address), port), trust.wireup.admission().clone())?;
        let me = me_at(nic.addr().port());
        trust.open(me);
        let (links, to, events) = (Links::default(), BTreeMap::new(), VecDeque::new());
        let (readable, replaced, left) = (Vec::new(), VecDeque::new(), Vec::new());
        let (last, polls, has_sent_queued) = (None, 0, false);
        Ok(Self { nic, me, trust, links, to, last, readable, events, replaced, left, polls, has_sent_queued })
    }

    /// This process's address.
    pub(crate) fn me(&self) -> Process {
        self.me
    }

    /// The seed of this process's challenges; `None` where others can derive it.
    pub(crate) fn seed(&self) -> Option<Seed> {
        self.trust.seed()
    }

    /// Learns the seed of another process's challenges.
    pub(crate) fn learn(&mut self, process: Process, seed: Seed) {
        self.trust.learn(process, seed);
    }

    /// The device, and the resources that all links share.
    pub(crate) fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The peer of a link.
    pub(crate) fn peer(&self, link: usize) -> Option<Process> {
        self.links.get(link).map(|link| link.peer)
    }

    /// The link for requests to a process; connects if there is none.
    #[inline]
    pub(crate) fn link_to(&mut self, process: Process) -> Result<usize> {
        match self.known(process) {
            Some(link) => Ok(link),
            None => self.connect(process),
        }
    }

    /// The link for requests to a process, if there is one.
    #[inline]
    fn known(&mut self, process: Process) -> Option<usize> {
        if let Some((last, number)) = self.last
            && last == process
        {
            return Some(number);
        }
        self.last = self.to.get(&process).map(|number| (process, *number));
        self.last.map(|(_, number)| number)
    }

    /// Sets the link for requests to a process.
    fn set_known(&mut self, process: Process, number: Option<usize>) {
        self.last = None;
        match number {
            Some(number) => self.to.insert(process, number),
            None => self.to.remove(&process),
        };
    }

    #[cold]
    fn connect(&mut self, process: Process) -> Result<usize> {
        let link = self.new_link(process, true)?;
        let number = self.add(link);
        if let Err(error) = self.request_link(number) {
            self.forget(number);
            return Err(error);
        }
        self.set_known(process, Some(number));
        Ok(number)
    }

    /// Sends the connect request of a link.
    fn request_link(&mut self, number: usize) -> Result<()> {
        let Some(link) = self.links.get(number) else { return Ok(()) };
        let no_address = || {
            Error::Invalid("no process can listen at this address: a process number is at most 65535".into())
        };
        let (address, peer) = address_of(link.peer).ok_or_else(no_address)?;
        let target = self.trust.target(self.me, peer);
        let own = (number, &link.endpoint);
        self.trust.wireup.connect(&self.nic, own, (address, target), ConnParam::default())
    }

    /// Creates a link for the next free place.
    fn new_link(&mut self, peer: Process, is_active: bool) -> Result<Connection> {
        let full = || Error::Invalid("this process has the most links that are possible".into());
        let number = self.links.vacancy().ok_or_else(full)?;
        Connection::new(&mut self.nic, number, peer, is_active)
    }

    /// Adds a new link; returns its place.
    fn add(&mut self, link: Connection) -> usize {
        let is_mapped = link.is_mapped();
        let number = self.links.insert(link);
        if is_mapped {
            self.mark_readable(number);
        }
        number
    }

    /// Adds a link to the list of links with messages.
    fn mark_readable(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(number)
            && !std::mem::replace(&mut link.is_readable, true)
        {
            self.readable.push(number);
        }
    }

    /// A link that is not lost.
    #[inline]
    pub(crate) fn link(&mut self, number: usize) -> Option<&mut Connection> {
        self.links.get_mut(number).filter(|link| !link.is_lost)
    }

    /// Sends a message on a link now, or queues it; drops it if the link is lost. Returns whether it has
    /// left; otherwise `report` is reported when it has.
    #[inline]
    pub(crate) fn send(
        &mut self,
        number: usize,
        message: Message,
        payload: Payload<'_>,
        report: Option<(u8, u64)>,
    ) -> bool {
        self.act(number, |link| link.send(message, payload, report)).unwrap_or(false)
    }

    /// Acts on a link that is not lost; an error loses it.
    #[inline]
    fn act<T>(&mut self, number: usize, act: impl FnOnce(&mut Connection) -> Result<T>) -> Option<T> {
        act(self.link(number)?).map_err(|_| self.lose(number, true)).ok()
    }

    /// Sends a message to a process, if there is a link on which it can leave now; returns whether it did.
    #[inline]
    pub(crate) fn try_send(&mut self, process: Process, message: &Message, payload: &Payload<'_>) -> bool {
        let Some(number) = self.known(process) else { return false };
        self.act(number, |link| link.try_send(message, payload)).unwrap_or(false)
    }

    /// The link by which a process's requests arrive, if it stores them into this process's memory.
    #[inline]
    pub(crate) fn stored_by(&mut self, process: Process) -> Option<usize> {
        let number = self.known(process)?;
        self.links.get(number)?.is_mapped().then_some(number)
    }

    /// Whether a request may have been stored by a link.
    #[inline]
    pub(crate) fn has_record(&self, number: usize) -> bool {
        self.links.get(number).is_some_and(Connection::has_record)
    }

    /// Reads or writes the peer's memory now, or queues that; does nothing if the link is lost. `key` is reported
    /// when it has completed.
    pub(crate) fn start_access(&mut self, number: usize, op: SendOp, local: Sge, key: u64) {
        // Ordered with the answers, as an answer follows it.
        let channel = VirtualChannel::Answer as usize;
        self.act(number, |link| link.endpoint.start_access(channel, op, local, key));
    }

    /// The link at a position of the list of links with messages.
    #[inline]
    pub(crate) fn readable_at(&self, place: usize) -> Option<usize> {
        self.readable.get(place).copied()
    }

    /// Decodes the next message of one virtual channel of a link into `message`; it stays the next one until
    /// [`Connections::release`].
    #[inline]
    pub(crate) fn peek(
        &mut self,
        number: usize,
        channel: VirtualChannel,
        message: &mut Message,
    ) -> Option<Arrived> {
        if self.links.get(number)?.endpoint.has_backlog() {
            // No completion reports space in a ring.
            self.pump(number);
        }
        self.links.get_mut(number)?.peek(channel, message).unwrap_or_else(|_| {
            self.lose(number, false);
            None
        })
    }

    /// The memory that holds a message.
    #[inline]
    pub(crate) fn memory(&self, number: usize, arrived: &Arrived) -> Option<&Buf> {
        Some(self.links.get(number)?.memory(arrived))
    }

    /// Releases the message that [`Connections::peek`] returned.
    #[inline]
    pub(crate) fn release(&mut self, number: usize, arrived: &Arrived) {
        let Some(link) = self.links.get_mut(number) else { return };
        match link.release(arrived) {
            Ok(()) if link.endpoint.has_backlog() => self.pump(number),
            Ok(()) => {}
            Err(_) => self.lose(number, false),
        }
    }

    /// All messages of the link at a position were read. Returns whether more may arrive without a
    /// completion; otherwise removes the link from the position.
    #[inline]
    pub(crate) fn keep_readable(&mut self, place: usize, number: usize) -> bool {
        let link = self.links.get_mut(number);
        if link.as_ref().is_some_and(|link| link.is_mapped() && !link.is_lost) {
            return true;
        }
        self.readable.swap_remove(place);
        if let Some(link) = link {
            link.is_readable = false;
            if link.is_lost {
                self.forget(number);
            }
        }
        false
    }

    /// An attempt that the last poll has replaced, and the link that carries its messages now.
    #[inline]
    pub(crate) fn next_replaced(&mut self) -> Option<(usize, usize)> {
        self.replaced.pop_front()
    }

    /// The next event of the last poll.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether queued messages may have left since the last call.
    #[inline]
    pub(crate) fn take_sent_queued(&mut self) -> bool {
        std::mem::take(&mut self.has_sent_queued)
    }

    /// Whether there are more events.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Polls the queues; with `brief`, where peers store their messages, only periodically. Returns whether
    /// there were completions or events.
    #[inline]
    pub(crate) fn poll(&mut self, brief: bool) -> bool {
        if brief && self.polls > 0 && self.nic.maps_peers() {
            self.polls -= 1;
            return false;
        }
        self.polls = QUEUES_EVERY;
        self.poll_queues()
    }

    fn poll_queues(&mut self) -> bool {
        let mut took = self.poll_completions();
        while let Some(event) = self.nic.cm.poll_event() {
            took = true;
            self.connection_event(event);
        }
        took
    }

    fn poll_completions(&mut self) -> bool {
        let mut took = false;
        loop {
            match self.nic.next_completion() {
                Ok(Some(wc)) => {
                    took = true;
                    self.completed(&wc);
                }
                Ok(None) => return took,
                Err(_) => {
                    self.numbers().into_iter().for_each(|number| self.lose(number, true));
                    return true;
                }
            }
        }
    }

    fn completed(&mut self, wc: &Wc) {
        let (number, slot) = of_completion(wc);
        let Some(number) = self.links.place_of(number) else { return };
        let link = &mut self.links[number];
        if !wc.is_ok() {
            return self.lose(number, true);
        }
        match slot {
            Some(slot) => match link.received(slot, wc.byte_len) {
                Ok(()) => {
                    if link.endpoint.has_backlog() {
                        self.pump(number);
                    }
                    self.mark_readable(number);
                }
                Err(_) => self.lose(number, false),
            },
            None => match link.endpoint.completed() {
                Ok(key) => {
                    self.events.extend(key.map(Event::Accessed));
                    self.pump(number);
                }
                Err(_) => self.lose(number, true),
            },
        }
    }

    fn pump(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(number) else { return };
        let pumped = link.pump(&mut self.left);
        self.has_sent_queued = true;
        self.events
            .extend(self.left.drain(..).map(|(interface, operation)| Event::Left(interface, operation)));
        if pumped.is_err() {
            self.lose(number, true);
        }
    }

    /// Gives up a link. Messages that have arrived can still be read if `keep_received`.
    #[cold]
    pub(crate) fn lose(&mut self, number: usize, keep_received: bool) {
        let Some(link) = self.link(number) else { return };
        link.end(keep_received);
        let peer = link.peer;
        self.events.push_back(Event::Lost(number));
        if self.to.get(&peer) == Some(&number) {
            self.set_known(peer, None);
        }
        // It is dropped when all its messages have been read.
        self.mark_readable(number);
    }

    fn forget(&mut self, number: usize) {
        let Some(link) = self.links.remove(number) else { return };
        self.readable.retain(|other| *other != number);
        self.trust.wireup.forget(number);
        link.endpoint.destroy(&mut self.nic, !link.is_given_up);
    }

    fn connection_event(&mut self, event: CmEvent) {
        let (qp_num, event) = match ConnEvent::of(event) {
            Ok(event) => event,
            Err(request) => return self.handle_request(*request),
        };
        let found = self.links.iter().find(|(_, link)| link.endpoint.qp().num() == qp_num);
        let Some(number) = found.map(|(number, _)| number) else { return };
        let link = &mut self.links[number];
        if link.is_given_up {
            return self.forget(number);
        }
        if link.is_lost {
            return;
        }
        match self.trust.wireup.outcome(number, &mut link.endpoint, event) {
            Outcome::Established => self.opened(number),
            Outcome::Again if self.request_link(number).is_ok() => {}
            Outcome::Unproved => self.lose(number, false),
            Outcome::Again | Outcome::Refused(_) | Outcome::Ended(_) => {
                // Messages that arrived before the loss still count.
                self.poll_completions();
                self.lose(number, true);
            }
        }
    }

    fn opened(&mut self, number: usize) {
        let link = &mut self.links[number];
        if link.endpoint.open().is_err() {
            return self.lose(number, true);
        }
        if link.is_mapped() {
            self.mark_readable(number);
        }
        self.pump(number);
    }

    /// Handles the connect request of a process that has proved its identity.
    fn handle_request(&mut self, mut request: ConnectRequest) {
        // If a refusal cannot be sent, the connection has failed, which the peer detects.
        let Some(proved) = request.take_screened::<Proved>() else {
            return drop(request.reject(b"no"));
        };
        let peer = trust::process(proved.from());
        let own = self.to.get(&peer).copied().filter(|own| self.is_active(*own));
        let stage = if own.is_some() { ConnStage::Connecting } else { ConnStage::None };
        if answer(stage, self.me, peer) == Answer::Crossed {
            return drop(request.reject(CROSSED));
        }
        let Ok(mut link) = self.new_link(peer, false) else {
            return drop(request.reject(b"no"));
        };
        let accepted = self.trust.wireup.accept(&self.nic, (request, &proved), &mut link.endpoint);
        // An own link that is open is left to fail: its peer has lost it, or it would not connect again.
        let given_up = own.filter(|own| accepted.is_ok() && !self.links[*own].endpoint.is_open);
        if let Some(own) = given_up {
            let own_link = &mut self.links[own];
            link.endpoint.inherit(&mut own_link.endpoint);
            (own_link.is_given_up, own_link.is_lost, own_link.is_readable) = (true, true, false);
            self.readable.retain(|number| *number != own);
        }
        let number = self.add(link);
        if accepted.is_err() {
            return self.forget(number);
        }
        self.set_known(peer, Some(number));
        self.replaced.extend(given_up.map(|own| (own, number)));
    }

    fn is_active(&self, number: usize) -> bool {
        self.links.get(number).is_some_and(|link| link.is_active)
    }

    /// Whether no message is queued.
    pub(crate) fn is_drained(&self) -> bool {
        !self.links.values().any(|link| link.endpoint.has_backlog())
    }

    /// Requests a completion for when everything sent has arrived.
    pub(crate) fn request_idle(&mut self) {
        for number in self.numbers() {
            self.act(number, |link| link.endpoint.request_idle());
        }
    }

    /// Whether all requested transfers have completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.links.values().all(|link| link.is_lost || link.endpoint.is_idle())
    }

    /// The places of all links.
    fn numbers(&self) -> Vec<usize> {
        self.links.iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::event::{Fail, List};
    use crate::objects::message::Answer;

    fn connections(device: &str) -> Connections {
        connections_with(device, 1)
    }

    /// A process whose key consists of this byte.
    fn connections_with(device: &str, key: u8) -> Connections {
        let host = host::real::host();
        let device = fabric::open(device, &host).expect("a device");
        let address = match device.attr().port_addrs.first() {
            Some(IpAddr::V4(address)) => *address,
            _ => Ipv4Addr::LOCALHOST,
        };
        let trust = Trust::new(&auth::Key::from_bytes([key; 16]), &host, &device).expect("random numbers");
        Connections::new(&device, address, None, trust).expect("a port")
    }

    fn numbered(operation: u64) -> Message {
        let (fail, list, is_quiet, mlength, offset) = (Fail::Ok, List::Priority, true, 0, 0);
        let answer = Answer { operation, fail, is_quiet, list, mlength, offset };
        Message::Answer { interface: 0, answer, is_asked: true }
    }

    /// Reads one message of any link.
    fn take(connections: &mut Connections) -> Option<Message> {
        connections.poll(false);
        let numbers: Vec<usize> = connections.readable.clone();
        let (number, message, arrived) = numbers.into_iter().find_map(|number| {
            let mut message = Message::Credit;
            let arrived = connections.peek(number, VirtualChannel::Answer, &mut message)?;
            Some((number, message, arrived))
        })?;
        connections.release(number, &arrived);
        Some(message)
    }

    /// Goal: two processes that connect to each other at the same time end with one link, which carries the
    /// messages queued for either attempt, in order.
    fn crossed_attempts_end_with_one_link(device: &str) {
        const COUNT: u64 = 40;
        let mut both = [0, 1].map(|_| connections(device));
        let [a, b] = both.each_ref().map(Connections::me);
        for number in 0..COUNT {
            for (connections, to) in both.iter_mut().zip([b, a]) {
                let link = connections.link_to(to).expect("a link");
                connections.send(link, numbered(number), Payload::NONE, None);
            }
        }
        let mut received = [0; 2];
        while received != [COUNT; 2] {
            for (connections, received) in both.iter_mut().zip(&mut received) {
                if let Some(message) = take(connections) {
                    assert_eq!(message, numbered(*received));
                    *received += 1;
                }
            }
        }
        for (mut connections, to) in both.into_iter().zip([b, a]) {
            let numbers = connections.numbers();
            let open: Vec<usize> =
                numbers.into_iter().filter(|link| connections.link(*link).is_some()).collect();
            assert_eq!(open, [connections.link_to(to).expect("a link")]);
            let lost = connections.events.iter().filter(|event| matches!(event, Event::Lost(_))).count();
            assert_eq!(lost, 0);
        }
    }

    #[test]
    fn crossed_attempts_end_with_one_link_on_shm() {
        crossed_attempts_end_with_one_link("shm");
    }

    #[test]
    fn crossed_attempts_end_with_one_link_on_iwarp() {
        crossed_attempts_end_with_one_link("iwarp");
    }

    /// Goal: a process that claims to be another one is refused, and the other one keeps its link.
    fn a_stranger_that_claims_to_be_another_process_is_refused(device: &str) {
        let [mut victim, mut honest, mut stranger] = [1, 1, 2].map(|key| connections_with(device, key));
        let link = honest.link_to(victim.me()).expect("a link");
        honest.send(link, numbered(0), Payload::NONE, None);
        while take(&mut victim).is_none() {
            honest.poll(false);
        }
        let (links, known) = (victim.numbers(), victim.known(honest.me()));
        stranger.me = honest.me();
        let attempt = stranger.link_to(victim.me()).expect("an attempt");
        stranger.send(attempt, numbered(7), Payload::NONE, None);
        while stranger.link(attempt).is_some() {
            assert_eq!(take(&mut victim), None, "a message of the stranger");
            stranger.poll(false);
        }
        assert_eq!((victim.numbers(), victim.known(honest.me())), (links, known));
        let back = victim.link_to(honest.me()).expect("the link");
        victim.send(back, numbered(1), Payload::NONE, None);
        loop {
            victim.poll(false);
            if let Some(message) = take(&mut honest) {
                break assert_eq!(message, numbered(1));
            }
        }
        assert_eq!(take(&mut stranger), None);
    }

    #[test]
    fn a_stranger_that_claims_to_be_another_process_is_refused_on_iwarp() {
        a_stranger_that_claims_to_be_another_process_is_refused("iwarp");
    }

    #[test]
    fn a_stranger_that_claims_to_be_another_process_is_refused_on_shm() {
        a_stranger_that_claims_to_be_another_process_is_refused("shm");
    }

    /// The number of requests that a process refuses while another one connects to it.
    fn refused(knows_seed: bool) -> u64 {
        let [mut from, mut to] = [0; 2].map(|_| connections("iwarp"));
        if knows_seed {
            from.learn(to.me(), to.seed().expect("a random seed"));
        }
        let link = from.link_to(to.me()).expect("a link");
        from.send(link, numbered(0), Payload::NONE, None);
        while take(&mut to).is_none() {
            from.poll(false);
        }
        to.trust.wireup.admission().refused()
    }

    #[test]
    fn first_request_is_refused_on_iwarp_unless_the_seed_is_known() {
        assert_eq!([false, true].map(refused), [1, 0]);
    }

    #[test]
    fn numbers_and_ports_belong_together() {
        for pid in (0..=PID_MAX).chain([1025, 28_999, 30_025, 65_535]) {
            assert_eq!(port_of(pid).map(pid_of), Some(pid));
        }
        assert_eq!(port_of(65_536), None);
        let (by_number, by_port) =
            (Process::physical(0x7f00_0001, 3), Process::physical(0x7f00_0001, 29_003));
        let there = "127.0.0.1:29003".parse().expect("an address");
        assert_eq!([by_number, by_port].map(address_of), [Some((there, by_number)); 2]);
    }
}
