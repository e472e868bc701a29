//! [`Carrier`]: ordered messages, reads and writes between this process and others. What it learns comes out as [`Event`]s.
//!
//! A process's address is where it listens, so nobody has to be asked where a process is. Links are made with the first request, and
//! each goes one way: whoever asked for it makes requests by it, the other end answers. So nothing is to be decided when two processes
//! connect to each other at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use verbs::{CmEvent, ConnParam, ConnectRequest, Device, Error, Result, Wc};

use crate::link::{Link, Task, of_completion};
use crate::nic::Nic;
use crate::process::Process;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message has come by a link; its bytes are to be given back by [`Carrier::recycle`].
    Received(usize, Vec<u8>),
    /// The message of an operation has left: interface and operation.
    Left(u8, u64),
    /// A move is over; whether all went well, a loss tells.
    Moved(u64),
    /// A link is no more. Nothing that it was to carry is told of any more.
    Lost(usize),
}

/// What a side that connects says first: who it is.
const HELLO: &[u8; 8] = b"ptl4-v1\0";
/// Completions that are taken at once.
const BATCH: usize = 16;

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
    events: VecDeque<Event>,
    /// Buffers of messages that were done with.
    spare: Vec<Vec<u8>>,
    told: Vec<(u8, u64)>,
}

impl Carrier {
    /// Listens as a process: one of this number, or any.
    pub(crate) fn new(device: &Device, address: Ipv4Addr, pid: Option<u32>) -> Result<Self> {
        let no_port = || Error::Invalid("no port belongs to this process number".into());
        let port = pid.map_or(Some(0), port_of).ok_or_else(no_port)?;
        let nic = Nic::open(device, IpAddr::V4(address), port)?;
        let me = Process { nid: address.to_bits(), pid: pid_of(nic.addr().port()) };
        let (links, active, events) = (Vec::new(), BTreeMap::new(), VecDeque::new());
        Ok(Self { nic, me, links, active, events, spare: Vec::new(), told: Vec::new() })
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
        let mut hello = HELLO.to_vec();
        hello.extend(self.me.nid.to_le_bytes());
        hello.extend(self.me.pid.to_le_bytes());
        let asked = self.nic.cm.connect(&link.qp, address, &ConnParam::with_private_data(hello));
        self.links.push(Some(link));
        if let Err(error) = asked {
            self.forget(number);
            return Err(error);
        }
        self.active.insert(process, number);
        Ok(number)
    }

    /// Has something go by a link as soon as it can; not, if the link is lost.
    pub(crate) fn submit(&mut self, number: usize, task: Task) {
        if let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) {
            link.push(task);
            self.pump(number);
        }
    }

    /// A message has been understood: what it says of credits.
    pub(crate) fn credited(&mut self, number: usize, credits: u16, is_grant: bool) {
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        match link.credited(credits, is_grant) {
            Ok(true) => self.pump(number),
            Ok(false) | Err(_) => self.lose(number),
        }
    }

    /// Gives a message's buffer back.
    pub(crate) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < BATCH {
            self.spare.push(bytes);
        }
    }

    /// The next event that the last poll has brought.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is another one.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Looks for news.
    pub(crate) fn poll(&mut self) {
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
                    (0..self.links.len()).for_each(|number| self.lose(number));
                    return;
                }
            }
        }
    }

    fn completed(&mut self, wc: &Wc) {
        let (number, slot) = of_completion(wc);
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        if !wc.is_ok() {
            return self.lose(number);
        }
        let done = match slot {
            Some(slot) => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                let received = link.received(slot, wc.byte_len, &mut bytes);
                received.map(|()| self.events.push_back(Event::Received(number, bytes)))
            }
            None => link.sent().map(|key| self.events.extend(key.map(Event::Moved))),
        };
        match done {
            Ok(()) => self.pump(number),
            Err(_) => self.lose(number),
        }
    }

    fn pump(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(number).and_then(Option::as_mut) else { return };
        let pumped = link.pump(&mut self.told);
        self.events
            .extend(self.told.drain(..).map(|(interface, operation)| Event::Left(interface, operation)));
        if pumped.is_err() {
            self.lose(number);
        }
    }

    /// Gives a link up.
    pub(crate) fn lose(&mut self, number: usize) {
        if self.forget(number) {
            self.events.push_back(Event::Lost(number));
        }
    }

    fn forget(&mut self, number: usize) -> bool {
        let Some(link) = self.links.get_mut(number).and_then(Option::take) else { return false };
        link.qp.to_error();
        self.nic.give_back();
        if self.active.get(&link.peer) == Some(&number) {
            self.active.remove(&link.peer);
        }
        true
    }

    fn connection_event(&mut self, event: CmEvent) {
        let (qp_num, is_open) = match event {
            CmEvent::ConnectRequest(request) => return self.asked(request),
            CmEvent::Established { qp_num, .. } => (qp_num, true),
            CmEvent::Rejected { qp_num, .. }
            | CmEvent::ConnectFailed { qp_num, .. }
            | CmEvent::Disconnected { qp_num } => (qp_num, false),
        };
        let is_it = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.qp.num() == qp_num);
        let Some(number) = self.links.iter().position(is_it) else { return };
        if !is_open {
            // What it sent before that counts.
            self.poll_completions();
            return self.lose(number);
        }
        let Some(link) = self.links[number].as_mut() else { return };
        match link.opened() {
            Ok(()) => self.pump(number),
            Err(_) => self.lose(number),
        }
    }

    /// Somebody wants to make requests.
    fn asked(&mut self, request: ConnectRequest) {
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        let peer = request.private_data.strip_prefix(HELLO).and_then(|rest| {
            let (nid, pid) = rest.split_at_checked(4)?;
            Some(Process { nid: word(nid)?, pid: word(pid.get(..4)?)? })
        });
        let number = self.links.len();
        let made = peer.and_then(|peer| Link::new(&mut self.nic, number, peer, false).ok());
        // A refusal that cannot be sent is a connection that has ended, which the peer learns of.
        let Some(link) = made else { return drop(request.reject(b"no")) };
        let accepted = self.nic.cm.accept(request, &link.qp, &ConnParam::default());
        self.links.push(Some(link));
        if accepted.is_err() {
            self.forget(number);
        }
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.links.iter().flatten().all(Link::is_drained)
    }

    /// Asks to hear when everything has arrived.
    pub(crate) fn ask_idle(&mut self) {
        for number in 0..self.links.len() {
            if let Some(link) = self.links[number].as_mut()
                && link.ask_idle().is_err()
            {
                self.lose(number);
            }
        }
    }

    /// Whether everything that was asked for is over.
    pub(crate) fn is_idle(&self) -> bool {
        self.links.iter().flatten().all(Link::is_idle)
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
