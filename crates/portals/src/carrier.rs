//! [`Carrier`]: ordered messages, reads and writes between this process and others. What it learns comes out as [`Event`]s.
//!
//! A process's address is where it listens, so nobody has to be asked where a process is. Links are made with the first request, and
//! each goes one way: whoever asked for it makes requests by it, the other end answers. So nothing is to be decided when two processes
//! connect to each other at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use verbs::{Buf, CmEvent, ConnParam, ConnectRequest, Device, Error, Result, Wc};

use crate::link::{Arrived, Link, Move, Payload, of_completion};
use crate::nic::Nic;
use crate::process::Process;
use crate::wire::{Message, Offer, hello, parse_hello};

/// Something that happened, beside messages that have come.
#[derive(Debug)]
pub(crate) enum Event {
    /// The message of an operation has left: interface and operation.
    Left(u8, u64),
    /// A move is over; whether all went well, a loss tells.
    Moved(u64),
    /// A link is no more. Nothing that it was to carry is told of any more; what has come by it before can be taken.
    Lost(usize),
}

/// Completions that are taken at once.
const BATCH: usize = 16;
/// Of so many polls where all peers may store messages, one looks at queues.
const QUEUES_EVERY: u32 = 8;

/// Numbers up to this one are well known; a process that wants none of them gets the number of its port.
const PID_MAX: u32 = 1024;
/// The port of the process 0.
const PORT_BASE: u16 = 29_000;

/// The port at which a process listens.
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

/// Where a process listens.
fn address_of(process: Process) -> Option<SocketAddr> {
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(process.nid)), port_of(process.pid)?))
}

/// All links of a process.
#[derive(Debug)]
pub(crate) struct Carrier {
    nic: Nic,
    me: Process,
    /// By number; what is over leaves a gap, as completions of its may still come.
    links: Vec<Option<Link>>,
    /// Those by which this process makes requests.
    active: BTreeMap<Process, usize>,
    /// Those by which messages may have come: all that peers may store in, and others that have got some.
    heard: Vec<usize>,
    events: VecDeque<Event>,
    told: Vec<(u8, u64)>,
    /// Polls until the next that looks at queues.
    polls: u32,
}

impl Carrier {
    /// Listens as a process: one of this number, or any.
    pub(crate) fn new(device: &Device, address: Ipv4Addr, pid: Option<u32>) -> Result<Self> {
        let no_port = || Error::Invalid("no port belongs to this process number".into());
        let port = pid.map_or(Some(0), port_of).ok_or_else(no_port)?;
        let nic = Nic::open(device, IpAddr::V4(address), port)?;
        let me = Process { nid: address.to_bits(), pid: pid_of(nic.addr().port()) };
        let (links, active, events) = (Vec::new(), BTreeMap::new(), VecDeque::new());
        let (heard, told) = (Vec::new(), Vec::new());
        Ok(Self { nic, me, links, active, heard, events, told, polls: 0 })
    }

    /// Who this process is.
    pub(crate) fn me(&self) -> Process {
        self.me
    }

    /// The device, and what all links share.
    pub(crate) fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The process at the other end of a link.
    pub(crate) fn peer(&self, link: usize) -> Option<Process> {
        self.links.get(link)?.as_ref().map(|link| link.peer)
    }

    /// Whether requests may come by a link.
    pub(crate) fn hears_requests(&self, link: usize) -> bool {
        self.links.get(link).and_then(Option::as_ref).is_some_and(|link| !link.is_active)
    }

    /// The link by which requests go to a process, connecting if there is none.
    pub(crate) fn link_to(&mut self, process: Process) -> Result<usize> {
        if let Some(link) = self.active.get(&process) {
            return Ok(*link);
        }
        let address = address_of(process).ok_or_else(|| Error::Invalid("nobody can listen there".into()))?;
        let number = self.links.len();
        let link = Link::new(&mut self.nic, number, process, true)?;
        let said = hello(self.me, link.offer());
        let asked = self.nic.cm.connect(&link.qp, address, &ConnParam::with_private_data(said));
        self.add(link);
        if let Err(error) = asked {
            self.forget(number);
            return Err(error);
        }
        self.active.insert(process, number);
        Ok(number)
    }

    fn add(&mut self, link: Link) {
        let (number, is_mapped) = (self.links.len(), link.is_mapped());
        self.links.push(Some(link));
        if is_mapped {
            self.hear(number);
        }
    }

    /// Has a link looked at for messages until there are none.
    fn hear(&mut self, number: usize) {
        if let Some(link) = self.links[number].as_mut()
            && !std::mem::replace(&mut link.is_heard, true)
        {
            self.heard.push(number);
        }
    }

    /// A link by which something can go.
    #[inline]
    fn link(&mut self, number: usize) -> Option<&mut Link> {
        self.links.get_mut(number)?.as_mut().filter(|link| !link.is_lost)
    }

    /// Says something by a link, now or as soon as it can; not, if the link is lost. Whether it has left; else what is `told` comes
    /// back when it has.
    #[inline]
    pub(crate) fn say(
        &mut self,
        number: usize,
        message: Message,
        payload: Payload<'_>,
        told: Option<(u8, u64)>,
    ) -> bool {
        let Some(link) = self.link(number) else { return false };
        link.say(message, payload, told).unwrap_or_else(|_| {
            self.lose(number, true);
            false
        })
    }

    /// Says something to a process, if there is a link by which it can leave now; whether it has.
    #[inline]
    pub(crate) fn say_now(&mut self, process: Process, message: &Message, payload: &Payload<'_>) -> bool {
        let Some(number) = self.active.get(&process).copied() else { return false };
        let Some(link) = self.link(number) else { return false };
        link.say_now(message, payload).unwrap_or_else(|_| {
            self.lose(number, true);
            false
        })
    }

    /// Has the peer's memory read or written as soon as that can be; not, if the link is lost.
    pub(crate) fn carry(&mut self, number: usize, it: Move) {
        if self.link(number).is_some_and(|link| link.carry(it).is_err()) {
            self.lose(number, true);
        }
    }

    /// The link at a place among those by which messages may have come.
    #[inline]
    pub(crate) fn heard_at(&self, place: usize) -> Option<usize> {
        self.heard.get(place).copied()
    }

    /// The next message that has come by a link; it stays the next one until [`Carrier::pass`].
    #[inline]
    pub(crate) fn look(&mut self, number: usize) -> Option<(Message, Arrived)> {
        let link = self.links.get_mut(number)?.as_mut()?;
        if link.has_queue() {
            // No completion tells of room in a ring.
            self.pump(number);
        }
        self.links[number].as_mut()?.look().unwrap_or_else(|_| {
            self.lose(number, false);
            None
        })
    }

    /// The memory that a message lies in.
    #[inline]
    pub(crate) fn memory(&self, number: usize, arrived: &Arrived) -> Option<&Buf> {
        Some(self.links.get(number)?.as_ref()?.memory(arrived))
    }

    /// The message that [`Carrier::look`] has found is no more needed.
    #[inline]
    pub(crate) fn pass(&mut self, number: usize, arrived: &Arrived) {
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        match link.pass(arrived) {
            Ok(()) if link.has_queue() => self.pump(number),
            Ok(()) => {}
            Err(_) => self.lose(number, false),
        }
    }

    /// All messages of the link at a place were taken; whether more may come without being told of. Otherwise the place is another's.
    #[inline]
    pub(crate) fn is_mapped(&mut self, place: usize, number: usize) -> bool {
        let link = self.links[number].as_mut();
        if link.as_ref().is_some_and(|link| link.is_mapped() && !link.is_lost) {
            return true;
        }
        self.heard.swap_remove(place);
        if let Some(link) = link {
            link.is_heard = false;
            if link.is_lost {
                self.forget(number);
            }
        }
        false
    }

    /// The next event that the last poll has brought.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is another one.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Looks for news at queues; with `brief`, where peers store their messages, only once in a while.
    #[inline]
    pub(crate) fn poll(&mut self, brief: bool) {
        if brief && self.polls > 0 && self.nic.maps_peers {
            self.polls -= 1;
            return;
        }
        self.polls = QUEUES_EVERY;
        self.poll_completions();
        while let Some(event) = self.nic.cm.poll_event() {
            self.connection_event(event);
        }
    }

    fn poll_completions(&mut self) {
        let mut wcs = [Wc::default(); BATCH];
        loop {
            match self.nic.cq.poll(&mut wcs) {
                Ok(count) => {
                    wcs[..count].iter().for_each(|wc| self.completed(wc));
                    if count < BATCH {
                        return;
                    }
                }
                Err(_) => {
                    (0..self.links.len()).for_each(|number| self.lose(number, true));
                    return;
                }
            }
        }
    }

    fn completed(&mut self, wc: &Wc) {
        let (number, slot) = of_completion(wc);
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        if !wc.is_ok() {
            return self.lose(number, true);
        }
        match slot {
            Some(slot) => {
                link.received(slot, wc.byte_len);
                self.hear(number);
            }
            None => match link.sent() {
                Ok(key) => {
                    self.events.extend(key.map(Event::Moved));
                    self.pump(number);
                }
                Err(_) => self.lose(number, true),
            },
        }
    }

    fn pump(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        let pumped = link.pump(&mut self.told);
        self.events
            .extend(self.told.drain(..).map(|(interface, operation)| Event::Left(interface, operation)));
        if pumped.is_err() {
            self.lose(number, true);
        }
    }

    /// Gives a link up. What has come by it can still be taken, if it is to be `heard`.
    pub(crate) fn lose(&mut self, number: usize, heard: bool) {
        let Some(link) = self.link(number) else { return };
        link.end(heard);
        let peer = link.peer;
        self.events.push_back(Event::Lost(number));
        if self.active.get(&peer) == Some(&number) {
            self.active.remove(&peer);
        }
        // It is forgotten when all that has come by it is taken.
        self.hear(number);
    }

    fn forget(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(number).and_then(Option::take) else { return };
        self.nic.give_back(link.into_inbox());
    }

    fn connection_event(&mut self, event: CmEvent) {
        let (qp_num, said) = match event {
            CmEvent::ConnectRequest(request) => return self.asked(request),
            CmEvent::Established { qp_num, private_data, .. } => (qp_num, Some(private_data)),
            CmEvent::Rejected { qp_num, .. }
            | CmEvent::ConnectFailed { qp_num, .. }
            | CmEvent::Disconnected { qp_num } => (qp_num, None),
        };
        let is_it = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.qp.num() == qp_num);
        let Some(number) = self.links.iter().position(is_it) else { return };
        let Some(said) = said else {
            // What it sent before that counts.
            self.poll_completions();
            return self.lose(number, true);
        };
        let Some(link) = self.link(number) else { return };
        if link.is_active {
            link.is_offered(Offer::parse(&said));
        }
        match link.opened() {
            Ok(()) => {
                if link.is_mapped() {
                    self.hear(number);
                }
                self.pump(number);
            }
            Err(_) => self.lose(number, true),
        }
    }

    /// Somebody wants to make requests.
    fn asked(&mut self, request: ConnectRequest) {
        let number = self.links.len();
        let made = parse_hello(&request.private_data).and_then(|(peer, offer)| {
            let mut link = Link::new(&mut self.nic, number, peer, false).ok()?;
            link.is_offered(offer);
            Some(link)
        });
        // A refusal that cannot be sent is a connection that has ended, which the peer learns of.
        let Some(link) = made else { return drop(request.reject(b"no")) };
        let said = link.offer().map_or(Vec::new(), |offer| offer.bytes().to_vec());
        let accepted = self.nic.cm.accept(request, &link.qp, &ConnParam::with_private_data(said));
        self.add(link);
        if accepted.is_err() {
            self.forget(number);
        }
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        !self.links.iter().flatten().any(Link::has_queue)
    }

    /// Asks to hear when everything has arrived.
    pub(crate) fn ask_idle(&mut self) {
        for number in 0..self.links.len() {
            if let Some(link) = self.link(number)
                && link.ask_idle().is_err()
            {
                self.lose(number, true);
            }
        }
    }

    /// Whether everything that was asked for is over.
    pub(crate) fn is_idle(&self) -> bool {
        self.links.iter().flatten().all(|link| link.is_lost || link.is_idle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ports_belong_together() {
        for pid in (0..=PID_MAX).chain([1025, 28_999, 30_025, 65_535]) {
            assert_eq!(port_of(pid).map(pid_of), Some(pid));
        }
        assert_eq!(port_of(65_536), None);
        let at = address_of(Process::physical(0x7f00_0001, 3));
        assert_eq!(at, Some("127.0.0.1:29003".parse().expect("an address")));
    }
}
