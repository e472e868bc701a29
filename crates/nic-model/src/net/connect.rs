//! Connection managers: listening, and messages that make and end connections. They are not lost, only late, unless
//! their way is cut for good.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use host::Time;
use verbs::{CmFailure, ConnParam, Error, QpState, Result, WcStatus};

use super::event::Event;
use super::pair::Peer;
use super::state::State;
use super::tables::{Listener, ListenerKey, Request, Told};
use crate::parts::us;

/// A message is repeated after so many times its own way when it is lost.
const REPEAT_AFTER: u64 = 4;
/// Repeats of a message that are lost, too.
const REPEATS_LOST: usize = 8;
/// The first port that is chosen for port 0.
const FIRST_PORT: u16 = 49_152;

/// What managers say to each other.
pub(super) enum Message {
    /// Somebody wants to connect.
    Connect { request: u32 },
    /// Nobody listens there (`None`), or the answer is no.
    Reject { request: u32, private_data: Option<Vec<u8>> },
    /// The answer is yes.
    Accept { request: u32, passive: u32, private_data: Vec<u8>, reads: u8 },
    /// Both sides are ready: from the connecting side.
    Ready { passive: u32, active: u32 },
    /// The connecting side is gone.
    Gone { passive: u32, active: u32 },
    /// The connection of this queue pair to that one is over; perhaps because of one of its requests.
    Disconnect { pair: u32, from: u32, nak: Option<(u64, WcStatus)> },
}

/// A message with its way: cards, and port.
pub(super) struct Envelope {
    ends: (usize, usize, usize),
    message: Message,
}

/// The address of a node's rail, both counted from 0: node 0 has 10.1.0.1 and 10.2.0.1.
pub(crate) fn address(node: usize, rail: usize) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, rail as u8 + 1, (number / 256) as u8, (number % 256) as u8)
}

/// The node and the rail of an address, of which machines have `rails`. A rail is a port of one of a machine's cards:
/// those of the first card come first.
fn place_of(addr: SocketAddr, own: (usize, usize), rails: usize) -> Result<(usize, Option<usize>)> {
    let refuse = |why: &str| Err(Error::Address { addr, why: why.to_owned() });
    let IpAddr::V4(ip) = addr.ip() else { return refuse("modelled cards have IPv4 addresses only") };
    if ip.is_loopback() {
        return Ok((own.0, Some(own.1)));
    }
    if ip.is_unspecified() {
        return Ok((own.0, None));
    }
    let [net, port, high, low] = ip.octets();
    let number = usize::from(high) * 256 + usize::from(low);
    if net != 10 || port == 0 || usize::from(port) > rails || number == 0 {
        return refuse("modelled cards are at 10.PORT.x.y; the addresses of a device are in its attributes");
    }
    Ok((number - 1, Some(usize::from(port) - 1)))
}

impl State {
    /// Tells a channel.
    pub(super) fn tell(&mut self, manager: u32, told: Told) {
        let Some(manager) = self.managers.get_mut(manager) else { return };
        manager.events.push_back(told);
        let card = manager.card;
        self.signal(card);
    }

    /// Sends a message from one card to another, by this port.
    pub(super) fn send_message(&mut self, now: Time, ends: (usize, usize, usize), message: Message) {
        let way = us(self.params.connection.message_us);
        let mut latency = way;
        for _ in 0..REPEATS_LOST {
            if !self.chance.ppm(self.params.faults.loss_ppm) {
                break;
            }
            latency += way * REPEAT_AFTER;
        }
        let key = self.messages.insert(Envelope { ends, message });
        self.after(now, latency, Event::Message(key));
    }

    /// A message arrives.
    pub(super) fn message(&mut self, now: Time, key: u32) {
        let Some(Envelope { ends, message }) = self.messages.remove(key) else { return };
        if self.is_unreachable(now, ends) {
            return;
        }
        let back = (ends.1, ends.0, ends.2);
        match message {
            Message::Connect { request } => self.connect_arrives(now, request),
            Message::Reject { request, private_data } => self.reject_arrives(request, private_data),
            Message::Accept { request, passive, private_data, reads } => {
                self.accept_arrives(now, back, request, passive, private_data, reads);
            }
            Message::Ready { passive, active } => {
                let pair = self.pairs.get(passive);
                if pair.is_some_and(|pair| pair.accepts() && pair.peer.is_some_and(|peer| peer.qp == active))
                {
                    self.establish(passive);
                } else {
                    let over = Message::Disconnect { pair: active, from: passive, nak: None };
                    self.send_message(now, back, over);
                }
            }
            Message::Gone { passive: pair, active: from } => self.disconnected(now, pair, from, None),
            Message::Disconnect { pair, from, nak } => self.disconnected(now, pair, from, nak),
        }
    }

    fn disconnected(&mut self, now: Time, qp: u32, from: u32, nak: Option<(u64, WcStatus)>) {
        let Some(pair) = self.pairs.get(qp).filter(|pair| pair.peer.is_some_and(|peer| peer.qp == from))
        else {
            return;
        };
        // The reason, in case that the packet which said so was lost.
        if let Some((psn, status)) = nak.filter(|_| pair.state == QpState::ReadyToSend) {
            self.request_failed(now, qp, psn, status);
        }
        if let Some(pair) = self.pairs.get_mut(qp) {
            pair.peer = None;
        }
        self.fail(now, qp);
    }

    /// Begins to connect; the caller has found the queue pair and the channel to be its own.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        manager: u32,
        qp: u32,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        self.is_idle(qp, "connect")?;
        let Some(pair) = self.pairs.get(qp) else { return Ok(()) };
        let own_port = self.contexts.get(pair.context).and_then(|context| context.port);
        let (to, port) = self.way_to(pair.card, own_port, addr)?;
        let port = port.unwrap_or(own_port.unwrap_or(0));
        let Some(pair) = self.pairs.get_mut(qp) else { return Ok(()) };
        let card = &self.cards[pair.card];
        let request = Request {
            pair: qp,
            from: pair.card,
            peer: SocketAddr::from((address(card.node.index(), card.first_rail() + port), 0)),
            to,
            port,
            addr,
            private_data: param.private_data.clone(),
            reads: (param.initiator_depth, param.responder_resources),
            listener: None,
            closed: false,
        };
        let (from, key) = (pair.card, self.requests.insert(request));
        (pair.manager, pair.request, pair.rnr_retry) = (Some(manager), Some(key), param.rnr_retry);
        self.send_message(now, (from, from, port), Message::Connect { request: key });
        self.after(now, param.timeout, Event::Timeout(key));
        Ok(())
    }

    /// Whether a queue pair may begin a connection.
    pub(crate) fn is_idle(&self, qp: u32, call: &'static str) -> Result<()> {
        match self.pairs.get(qp) {
            Some(pair) if pair.state == QpState::Init && pair.request.is_none() => Ok(()),
            Some(pair) => Err(Error::WrongState { call, state: pair.state }),
            None => Err(Error::WrongState { call, state: QpState::Error }),
        }
    }

    fn connect_arrives(&mut self, now: Time, key: u32) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let (port, number, from) = (request.port, request.addr.port(), request.from);
        let Some(&to) = self.nodes.get(&request.to) else {
            let ends = (from, from, port);
            return self.send_message(now, ends, Message::Reject { request: key, private_data: None });
        };
        if self.is_silent(now, to) || self.cards[to].ports[port].cut {
            return;
        }
        let found = [(to, Some(port), number), (to, None, number)].into_iter();
        let found = found
            .filter(|place| self.listeners.contains_key(place))
            .find(|place| self.listeners.get(place).is_some_and(|l| self.managers.get(l.manager).is_some()));
        let Some((place, listener)) = found.and_then(|place| Some((place, self.listeners.get_mut(&place)?)))
        else {
            return self.send_message(
                now,
                (to, from, port),
                Message::Reject { request: key, private_data: None },
            );
        };
        if listener.waiting >= listener.backlog {
            let full = Message::Reject { request: key, private_data: Some(Vec::new()) };
            return self.send_message(now, (to, from, port), full);
        }
        listener.waiting += 1;
        let manager = listener.manager;
        if let Some(request) = self.requests.get_mut(key) {
            request.listener = Some(place);
        }
        self.tell(manager, Told::Request(key));
    }

    /// A request has been answered: another may wait in its place.
    fn answered(&mut self, key: u32) {
        let place = self.requests.get_mut(key).and_then(|request| request.listener.take());
        if let Some(listener) = place.and_then(|place| self.listeners.get_mut(&place)) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Says no.
    pub(crate) fn reject(&mut self, now: Time, key: u32, private_data: Vec<u8>) {
        self.answered(key);
        let Some(request) = self.requests.get(key) else { return };
        let (from, port) = (request.from, request.port);
        let Some(&to) = self.nodes.get(&request.to) else { return };
        let message = Message::Reject { request: key, private_data: Some(private_data) };
        self.send_message(now, (to, from, port), message);
    }

    fn reject_arrives(&mut self, key: u32, private_data: Option<Vec<u8>>) {
        let Some(request) = self.requests.remove(key).filter(|request| !request.closed) else { return };
        let qp = request.pair;
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        pair.request = None;
        if let Some(manager) = pair.manager {
            self.tell(
                manager,
                match private_data {
                    Some(data) => Told::Rejected(qp, data),
                    None => Told::Failed(qp, CmFailure::Refused(request.addr)),
                },
            );
        }
    }

    /// Says yes, with a queue pair that [`State::is_idle`].
    pub(crate) fn accept(&mut self, now: Time, manager: u32, key: u32, qp: u32, param: &ConnParam) {
        self.answered(key);
        let Some(request) = self.requests.get(key) else {
            // The connecting side is gone for good, and its card with it.
            return self.fail(now, qp);
        };
        let (active, from, port, reads) = (request.pair, request.from, request.port, request.reads);
        let mtu = self.pairs.get(active).map_or(self.mtu, |pair| pair.mtu);
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let to = pair.card;
        pair.mtu = pair.mtu.min(mtu);
        pair.state = QpState::ReadyToReceive;
        pair.peer = Some(Peer { qp: active, card: from });
        (pair.manager, pair.rnr_retry) = (Some(manager), param.rnr_retry);
        let limit = self.params.transport.reads_requests as u8;
        pair.reads_max = usize::from(param.initiator_depth.min(reads.1).min(limit).max(1));
        pair.port = if from == to { self.cards[to].way_back() } else { port };
        let message = Message::Accept {
            request: key,
            passive: qp,
            private_data: param.private_data.clone(),
            reads: reads.0.min(param.responder_resources),
        };
        self.send_message(now, (to, from, port), message);
        if self.is_unreachable(now, (to, from, port)) {
            self.after(now, us(self.params.connection.lost_after_us), Event::Lost(qp));
        }
    }

    fn accept_arrives(
        &mut self,
        now: Time,
        back: (usize, usize, usize),
        key: u32,
        passive: u32,
        private_data: Vec<u8>,
        reads: u8,
    ) {
        let Some(request) = self.requests.remove(key) else { return };
        let active = request.pair;
        let limit = self.params.transport.reads_requests as u8;
        let mtu = self.pairs.get(passive).map_or(self.mtu, |pair| pair.mtu);
        let open = |state: QpState| state == QpState::Init && !request.closed;
        let Some(pair) = self.pairs.get_mut(active).filter(|pair| open(pair.state)) else {
            return self.send_message(now, back, Message::Gone { passive, active });
        };
        (pair.state, pair.request) = (QpState::ReadyToSend, None);
        pair.mtu = pair.mtu.min(mtu);
        (pair.established, pair.peer) = (true, Some(Peer { qp: passive, card: back.1 }));
        pair.reads_max = usize::from(reads.min(limit).max(1));
        pair.port = if back.0 == back.1 { self.cards[back.0].way_back() } else { request.port };
        if let Some(manager) = pair.manager {
            self.tell(manager, Told::Established(active, private_data));
        }
        self.send_message(now, back, Message::Ready { passive, active });
    }

    /// The passive side is connected: the connecting side said so, or sent something.
    pub(super) fn establish(&mut self, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        if pair.state != QpState::ReadyToReceive {
            return;
        }
        (pair.state, pair.established) = (QpState::ReadyToSend, true);
        if let Some(manager) = pair.manager {
            self.tell(manager, Told::Established(qp, Vec::new()));
        }
    }

    /// A connect request has waited as long as it may.
    pub(super) fn timeout(&mut self, _now: Time, key: u32) {
        let Some(request) = self.requests.get_mut(key).filter(|request| !request.closed) else { return };
        request.closed = true;
        let qp = request.pair;
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        pair.request = None;
        if let Some(manager) = pair.manager {
            self.tell(manager, Told::Failed(qp, CmFailure::TimedOut));
        }
    }

    /// The node and the number of the card that an address leads to from this card, and the port of both, if it names one.
    /// Rails reach their likes: a card reaches the card of its own number in other machines, a device that is a single
    /// port reaches that port.
    fn way_to(
        &self,
        card: usize,
        own_port: Option<usize>,
        addr: SocketAddr,
    ) -> Result<((usize, usize), Option<usize>)> {
        let card = &self.cards[card];
        let (ports, first) = (card.way_back(), card.first_rail());
        let rails = self.params.host.card_count as usize * ports;
        let (node, rail) = place_of(addr, (card.node.index(), first + own_port.unwrap_or(0)), rails)?;
        let Some(rail) = rail else { return Ok(((node, card.number), own_port)) };
        let port = rail % ports;
        if rail / ports != card.number || own_port.is_some_and(|own| own != port) {
            let why = "it is another rail's: each reaches its likes, as rail 1 those at 10.2.x.y".to_owned();
            return Err(Error::Address { addr, why });
        }
        Ok(((node, card.number), Some(port)))
    }

    /// Listens at an address of this card, or of its only port that this device is; port 0 chooses a number.
    pub(crate) fn listen(
        &mut self,
        (card, own_port): (usize, Option<usize>),
        manager: u32,
        addr: SocketAddr,
        backlog: u32,
    ) -> Result<(ListenerKey, SocketAddr)> {
        let refuse = |why: &str| Error::Address { addr, why: why.to_owned() };
        let (own_node, way_back) = (self.cards[card].node.index(), self.cards[card].way_back());
        let ((node, _), port) = self.way_to(card, own_port, addr)?;
        if node != own_node {
            return Err(refuse("this is another machine's address"));
        }
        let number = match addr.port() {
            0 => self.free_port(card).ok_or_else(|| refuse("all ports are taken"))?,
            number => number,
        };
        let ports = (0..way_back).map(Some).chain([None]);
        let clash = ports.filter(|other| port.is_none() || other.is_none() || *other == port);
        if clash.map(|other| (card, other, number)).any(|place| self.listeners.contains_key(&place)) {
            return Err(refuse("somebody listens there"));
        }
        let place = (card, port, number);
        self.listeners.insert(place, Listener { manager, backlog, waiting: 0 });
        Ok((place, SocketAddr::new(addr.ip(), number)))
    }

    fn free_port(&mut self, card: usize) -> Option<u16> {
        let taken = |number| self.listeners.keys().any(|&(c, _, taken)| c == card && taken == number);
        let span = u16::MAX - FIRST_PORT;
        let numbers = (0..=span).map(|i| FIRST_PORT + (self.last_port + i) % (span + 1));
        let found = numbers.into_iter().find(|&number| !taken(number))?;
        self.last_port = (found - FIRST_PORT + 1) % (span + 1);
        Some(found)
    }

    /// Stops listening; requests that nobody has taken are rejected.
    pub(crate) fn stop_listening(&mut self, now: Time, place: ListenerKey) {
        let Some(listener) = self.listeners.remove(&place) else { return };
        self.reject_untaken(now, listener.manager, |request| request.listener == Some(place));
    }

    /// Rejects the requests in a channel that nobody has taken.
    fn reject_untaken(&mut self, now: Time, manager: u32, which: impl Fn(&Request) -> bool) {
        let (requests, mut untaken) = (&self.requests, Vec::new());
        let Some(manager) = self.managers.get_mut(manager) else { return };
        manager.events.retain(|told| match told {
            Told::Request(key) if requests.get(*key).is_none_or(&which) => {
                untaken.push(*key);
                false
            }
            _ => true,
        });
        for key in untaken {
            self.reject(now, key, Vec::new());
        }
    }

    /// A channel goes away.
    pub(crate) fn drop_manager(&mut self, now: Time, manager: u32) {
        self.reject_untaken(now, manager, |_| true);
        self.managers.remove(manager);
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, now: Time, qp: u32) -> Result<()> {
        match self.pairs.get(qp).map_or(QpState::Error, |pair| pair.state) {
            QpState::ReadyToSend | QpState::ReadyToReceive | QpState::Error => self.fail(now, qp),
            state => return Err(Error::WrongState { call: "disconnect", state }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_node_and_port() {
        for (node, port) in [(0, 0), (1, 1), (254, 0), (255, 1), (65_534, 0)] {
            let addr = SocketAddr::from((address(node, port), 7));
            assert_eq!(place_of(addr, (3, 1), 2), Ok((node, Some(port))));
        }
        let place = |text: &str| place_of(text.parse().expect("an address"), (3, 1), 2);
        assert_eq!(place("127.0.0.1:1"), Ok((3, Some(1))));
        assert_eq!(place("0.0.0.0:1"), Ok((3, None)));
        for wrong in ["10.0.0.1:1", "10.1.0.0:1", "10.3.0.1:1", "192.168.1.1:1", "[::1]:1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
