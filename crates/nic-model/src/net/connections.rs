//! [`ConnectionManager`]: listeners, and the messages that make and end connections. Messages are delayed but
//! not lost, unless their path is cut for good.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use host::{Span, Time};
use verbs::provider::apply_screen;
use verbs::{CmFailure, ConnInfo, ConnParam, Depths, Error, QpState, Result, Screen, WcStatus};

use super::card::Cards;
use super::event::Event;
use super::event_queue::EventQueue;
use super::faults::Faults;
use super::packet::PortId;
use super::queue_pair::{Peer, QpCleanup, QueuePair};
use super::slab::Slab;
use crate::limits::PRIVATE_BYTES;
use crate::machine::Params;
use crate::parts::us;

/// A lost message is repeated after this multiple of its latency.
const REPEAT_AFTER: u64 = 4;
/// Maximum number of repeats of a message that are lost, too.
const REPEATS_LOST: usize = 8;
/// The first port that is chosen for port 0.
const FIRST_PORT: u16 = 49_152;

/// Messages between connection managers.
pub(super) enum Message {
    /// A connect request.
    Connect { request: u32 },
    /// No listener at the address (`None`), or the request was rejected.
    Reject { request: u32, private_data: Option<Vec<u8>> },
    /// The request was accepted.
    Accept { request: u32, passive: u32, private_data: Vec<u8>, terms: AcceptedParams },
    /// Both sides are ready; sent by the connecting side.
    Ready { passive: u32, active: u32 },
    /// The connecting side is gone.
    Gone { passive: u32, active: u32 },
    /// The connection of this queue pair to that one has ended; `nak` if one of its requests failed.
    Disconnect { qp: u32, from: u32, nak: Option<(u64, WcStatus)> },
}

/// The passive side's terms of a connection.
#[derive(Debug)]
pub(super) struct AcceptedParams {
    /// Reads that the active side may have in flight.
    reads: u8,
    depths: Depths,
    rnr_retry: u8,
}

/// The cards between which a message travels, and the port of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardPair {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) port: usize,
}

impl CardPair {
    /// The way back.
    fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, port: self.port }
    }

    /// The port at either end.
    pub(super) fn ports(self) -> [PortId; 2] {
        [self.from, self.to].map(|card| PortId { card, port: self.port })
    }
}

/// A message with its ends.
pub(super) struct Envelope {
    pub(super) ends: CardPair,
    pub(super) message: Message,
}

/// A connection event as it is queued in a channel.
#[derive(Debug)]
pub(crate) enum ChannelEvent {
    Request(u32),
    Established(u32, Vec<u8>, ConnInfo),
    Rejected(u32, Vec<u8>),
    Failed(u32, CmFailure),
    Disconnected(u32),
}

/// A channel of connection events.
struct Channel {
    card: usize,
    events: VecDeque<ChannelEvent>,
}

/// The result of a listener's screen for a request.
pub(crate) type ScreenResult = Box<dyn Any + Send>;

/// A listener at an address.
struct Listener {
    channel: u32,
    backlog: u32,
    screen: Option<Arc<dyn Screen>>,
    /// Unanswered requests.
    waiting: u32,
}

/// Card, port (or `None` for all), port number.
pub(crate) type ListenerKey = (usize, Option<usize>, u16);

/// A connect request.
struct ConnectRequest {
    /// The connecting queue pair, the number reported for it, its card, and its address.
    qp: u32,
    reported_qp_num: u32,
    from: usize,
    peer: SocketAddr,
    /// Its destination: node, and index of the card there; and the port of both ends.
    to: (usize, usize),
    port: usize,
    addr: SocketAddr,
    private_data: Vec<u8>,
    /// Reads that the connecting side will have in flight, and reads that it will answer.
    reads: (u8, u8),
    rnr_retry: u8,
    /// The listener, once the request has arrived.
    listener: Option<ListenerKey>,
    screened: Option<ScreenResult>,
    /// Whether it has ended for the connecting side: timed out, or its queue pair is gone.
    closed: bool,
}

impl ConnectRequest {
    /// What the listening program learns about the connection.
    fn seen_by_listener(&self) -> ConnInfo {
        let (initiator_depth, responder_resources) = self.reads;
        let depths = Some(Depths { responder_resources, initiator_depth });
        let (qp_num, rnr_retry) = (Some(self.reported_qp_num), Some(self.rnr_retry));
        ConnInfo { depths, qp_num, rnr_retry, ..ConnInfo::of_ends(self.addr, self.peer) }
    }
}

/// The state that a connection manager borrows for one call.
pub(super) struct CmContext<'a> {
    pub(super) now: Time,
    pub(super) event_queue: &'a EventQueue,
    pub(super) faults: &'a mut Faults,
    pub(super) cards: &'a Cards,
    pub(super) qps: &'a mut Slab<QueuePair>,
}

/// The connection managers of all machines.
pub(super) struct ConnectionManager {
    channels: Slab<Channel>,
    requests: Slab<ConnectRequest>,
    messages: Slab<Envelope>,
    listeners: BTreeMap<ListenerKey, Listener>,
    /// Queue pairs that have accepted and are not established, with the information to report then.
    accepted: BTreeMap<u32, ConnInfo>,
    last_port: u16,
    /// One-way latency of a message.
    latency: Span,
    /// Ports of all cards of a machine.
    rails: usize,
    /// Maximum number of reads of a queue pair in flight.
    reads_max: u8,
    /// Maximum data in a packet.
    mtu: u64,
}

/// The port of a connecting queue pair.
fn client_port(qp: u32) -> u16 {
    FIRST_PORT + (qp % u32::from(u16::MAX - FIRST_PORT)) as u16
}

/// The address of a node's rail, both counted from 0: node 0 has 10.1.0.1 and 10.2.0.1.
pub(crate) fn address(node: usize, rail: usize) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, rail as u8 + 1, (number / 256) as u8, (number % 256) as u8)
}

/// The node and the rail of an address, if machines have `rails` rails. A rail is a port of one of a
/// machine's cards, counted from the first card.
fn rail_at(addr: SocketAddr, own: (usize, usize), rails: usize) -> Result<(usize, Option<usize>)> {
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

impl ConnectionManager {
    /// Managers of machines of this kind, without connections.
    pub(super) fn new(params: &Params) -> Self {
        Self {
            channels: Slab::default(),
            requests: Slab::default(),
            messages: Slab::default(),
            listeners: BTreeMap::new(),
            accepted: BTreeMap::new(),
            last_port: 0,
            latency: us(params.connection.message_us),
            rails: params.host.card_count as usize * params.link.port_count as usize,
            reads_max: params.transport.reads_requests as u8,
            mtu: params.link.mtu_bytes as u64,
        }
    }
}

/// Channels and their events.
impl ConnectionManager {
    /// Creates a channel of connection events for a card.
    pub(super) fn create_channel(&mut self, card: usize) -> u32 {
        self.channels.insert(Channel { card, events: VecDeque::new() })
    }

    /// The next event of a channel.
    pub(super) fn poll(&mut self, channel: u32) -> Option<ChannelEvent> {
        self.channels.get_mut(channel)?.events.pop_front()
    }

    /// Destroys a channel.
    pub(super) fn drop_channel(&mut self, cx: &mut CmContext<'_>, channel: u32) {
        self.reject_untaken(cx, channel, |_| true);
        self.channels.remove(channel);
    }

    /// Queues an event of a channel, if that still exists, and wakes its users.
    fn notify(&mut self, cx: &CmContext<'_>, channel: Option<u32>, event: ChannelEvent) {
        let Some(channel) = channel.and_then(|channel| self.channels.get_mut(channel)) else { return };
        channel.events.push_back(event);
        cx.cards.signal(channel.card);
    }

    /// Whether the connecting side still waits for the answer to a request.
    pub(super) fn is_asked(&self, key: u32) -> bool {
        self.requests.get(key).is_some_and(|request| !request.closed)
    }

    /// The private data of a connect request, its addresses and the initiator's depths, and the result of the
    /// listener's screen.
    pub(super) fn request(&mut self, key: u32) -> Option<(Vec<u8>, ConnInfo, Option<ScreenResult>)> {
        let request = self.requests.get_mut(key)?;
        Some((request.private_data.clone(), request.seen_by_listener(), request.screened.take()))
    }
}

/// Processing of messages that arrive.
impl ConnectionManager {
    /// Sends a message to the other card; each loss delays it until it is repeated.
    fn send(&mut self, cx: &mut CmContext<'_>, ends: CardPair, message: Message) {
        let mut latency = self.latency;
        for _ in 0..REPEATS_LOST {
            if !cx.faults.loses_packet() {
                break;
            }
            latency += self.latency * REPEAT_AFTER;
        }
        let key = self.messages.insert(Envelope { ends, message });
        cx.event_queue.schedule(cx.now + latency, Event::CmMessage(key));
    }

    /// Removes and returns a message that arrives.
    pub(super) fn open(&mut self, key: u32) -> Option<Envelope> {
        self.messages.remove(key)
    }

    /// The node and index of the card that a connect request goes to, and the port there.
    pub(super) fn target(&self, request: u32) -> Option<((usize, usize), usize)> {
        self.requests.get(request).map(|request| (request.to, request.port))
    }

    /// A connect request arrives at a card, or at none (`None`).
    pub(super) fn on_connect_request(&mut self, cx: &mut CmContext<'_>, key: u32, to: Option<usize>) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let (port, number, from) = (request.port, request.addr.port(), request.from);
        let refused = Message::Reject { request: key, private_data: None };
        let Some(to) = to else {
            return self.send(cx, CardPair { from, to: from, port }, refused);
        };
        let ends = CardPair { from: to, to: from, port };
        let found = [(to, Some(port), number), (to, None, number)].into_iter().find(|listener| {
            let listener = self.listeners.get(listener);
            listener.is_some_and(|listener| self.channels.get(listener.channel).is_some())
        });
        let Some((place, listener)) = found.and_then(|key| Some((key, self.listeners.get_mut(&key)?))) else {
            return self.send(cx, ends, refused);
        };
        let (said, info) = (&request.private_data, request.seen_by_listener());
        match apply_screen(listener.screen.as_ref(), said, info, PRIVATE_BYTES as usize) {
            Ok(screened) => request.screened = screened,
            Err(words) => {
                let rejected = Message::Reject { request: key, private_data: Some(words) };
                return self.send(cx, ends, rejected);
            }
        }
        if listener.waiting >= listener.backlog {
            let full = Message::Reject { request: key, private_data: Some(Vec::new()) };
            return self.send(cx, ends, full);
        }
        listener.waiting += 1;
        let channel = listener.channel;
        request.listener = Some(place);
        self.notify(cx, Some(channel), ChannelEvent::Request(key));
    }

    /// A connect request was rejected.
    pub(super) fn on_reject(&mut self, cx: &mut CmContext<'_>, key: u32, private_data: Option<Vec<u8>>) {
        let Some(request) = self.requests.remove(key).filter(|request| !request.closed) else { return };
        let Some(qp) = cx.qps.get_mut(request.qp) else { return };
        qp.clear_request();
        let (channel, qp) = (qp.channel, request.qp);
        let event = match private_data {
            Some(data) => ChannelEvent::Rejected(qp, data),
            None => ChannelEvent::Failed(qp, CmFailure::Refused(request.addr)),
        };
        self.notify(cx, channel, event);
    }

    /// A connect request was accepted by the queue pair `passive`.
    pub(super) fn on_accept(
        &mut self,
        cx: &mut CmContext<'_>,
        ends: CardPair,
        (key, passive): (u32, u32),
        private_data: Vec<u8>,
        terms: &AcceptedParams,
    ) {
        let Some(request) = self.requests.remove(key) else { return };
        let (back, active) = (ends.reversed(), request.qp);
        let mtu = cx.qps.get(passive).map_or(self.mtu, QueuePair::mtu);
        let reported_qp_num = cx.qps.get(passive).and_then(|qp| qp.reported_qp_num).unwrap_or(passive);
        let open = |qp: &&mut QueuePair| qp.state() == QpState::Init && !request.closed;
        let Some(qp) = cx.qps.get_mut(active).filter(open) else {
            return self.send(cx, back, Message::Gone { passive, active });
        };
        let port = if back.from == back.to { cx.cards[back.from].loopback() } else { request.port };
        qp.set_connected(Peer { qp: passive, card: back.to }, port, mtu);
        qp.requester.set_reads_max(terms.reads.min(self.reads_max));
        qp.requester.set_peer_rnr_retry(terms.rnr_retry);
        let channel = qp.channel;
        let info = ConnInfo {
            depths: Some(terms.depths),
            qp_num: Some(reported_qp_num),
            rnr_retry: Some(terms.rnr_retry),
            ..ConnInfo::of_ends(request.peer, request.addr)
        };
        self.notify(cx, channel, ChannelEvent::Established(active, private_data, info));
        self.send(cx, back, Message::Ready { passive, active });
    }

    /// The connecting side reports that it is ready.
    pub(super) fn ready_arrives(
        &mut self,
        cx: &mut CmContext<'_>,
        ends: CardPair,
        passive: u32,
        active: u32,
    ) {
        let knows = |qp: &QueuePair| qp.accepts() && qp.peer().is_some_and(|peer| peer.qp == active);
        if cx.qps.get(passive).is_some_and(knows) {
            return self.establish(cx, passive);
        }
        let over = Message::Disconnect { qp: active, from: passive, nak: None };
        self.send(cx, ends.reversed(), over);
    }

    /// The passive side is connected: the connecting side has reported it, or has sent data.
    pub(super) fn establish(&mut self, cx: &mut CmContext<'_>, qp: u32) {
        let Some(found) = cx.qps.get_mut(qp) else { return };
        let (is_new, channel) = (found.establish(), found.channel);
        let info = self.accepted.remove(&qp);
        if let Some(info) = info.filter(|_| is_new) {
            self.notify(cx, channel, ChannelEvent::Established(qp, Vec::new(), info));
        }
    }

    /// A queue pair has entered the error state: notifies its channel and its peer.
    pub(super) fn on_qp_ended(&mut self, cx: &mut CmContext<'_>, qp: u32, ended: QpCleanup) {
        self.accepted.remove(&qp);
        let Some(found) = cx.qps.get(qp) else { return };
        let (channel, from) = (found.channel, found.port());
        match ended.before {
            _ if ended.established => self.notify(cx, channel, ChannelEvent::Disconnected(qp)),
            QpState::ReadyToReceive => {
                self.notify(cx, channel, ChannelEvent::Failed(qp, CmFailure::PeerGone));
            }
            _ => {}
        }
        if let Some(request) = ended.request.and_then(|request| self.requests.get_mut(request)) {
            request.closed = true;
        }
        if let Some(peer) = ended.peer {
            let message = Message::Disconnect { qp: peer.qp, from: qp, nak: ended.nak };
            self.send(cx, CardPair { from: from.card, to: peer.card, port: from.port }, message);
        }
    }
}

/// Connect requests and their answers.
impl ConnectionManager {
    /// Starts to connect a queue pair of this device.
    pub(super) fn connect(
        &mut self,
        cx: &mut CmContext<'_>,
        (channel, qp): (u32, u32),
        own_port: Option<usize>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let Some(found) = cx.qps.get_mut(qp) else { return Ok(()) };
        found.check_idle("connect")?;
        let (from, card) = (found.card, &cx.cards[found.card]);
        let (to, port) = self.route(cx.cards, from, own_port, addr)?;
        let port = port.unwrap_or(own_port.unwrap_or(0));
        let request = ConnectRequest {
            qp,
            reported_qp_num: found.reported_qp_num.unwrap_or(qp),
            from,
            peer: SocketAddr::from((address(card.node.index(), card.first_rail() + port), client_port(qp))),
            to,
            port,
            addr,
            private_data: param.private_data.clone(),
            reads: (param.initiator_depth, param.responder_resources),
            rnr_retry: param.rnr_retry,
            listener: None,
            screened: None,
            closed: false,
        };
        let key = self.requests.insert(request);
        found.set_request(key, channel);
        self.send(cx, CardPair { from, to: from, port }, Message::Connect { request: key });
        cx.event_queue.schedule(cx.now + param.timeout, Event::ConnectTimeout(key));
        Ok(())
    }

    /// A connect request has timed out.
    pub(super) fn on_connect_timeout(&mut self, cx: &mut CmContext<'_>, key: u32) {
        let Some(request) = self.requests.get_mut(key).filter(|request| !request.closed) else { return };
        request.closed = true;
        let qp = request.qp;
        let Some(found) = cx.qps.get_mut(qp) else { return };
        found.clear_request();
        let channel = found.channel;
        self.notify(cx, channel, ChannelEvent::Failed(qp, CmFailure::TimedOut));
    }

    /// A request was answered, which leaves room for another in the backlog.
    fn free_backlog_slot(&mut self, key: u32) {
        let listener = self.requests.get_mut(key).and_then(|request| request.listener.take());
        if let Some(listener) = listener.and_then(|listener| self.listeners.get_mut(&listener)) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Rejects a connect request.
    pub(super) fn reject(&mut self, cx: &mut CmContext<'_>, key: u32, private_data: Vec<u8>) {
        self.free_backlog_slot(key);
        let Some(request) = self.requests.get(key) else { return };
        let (to, port) = (request.from, request.port);
        let Some(from) = cx.cards.find(request.to.0, request.to.1) else { return };
        let message = Message::Reject { request: key, private_data: Some(private_data) };
        self.send(cx, CardPair { from, to, port }, message);
    }

    /// Accepts a connect request with an idle queue pair. Returns the ends of the connection, unless the
    /// connecting side is gone for good together with its card.
    pub(super) fn accept(
        &mut self,
        cx: &mut CmContext<'_>,
        (channel, qp): (u32, u32),
        key: u32,
        param: &ConnParam,
    ) -> Option<CardPair> {
        self.free_backlog_slot(key);
        let request = self.requests.get(key)?;
        let (active, to, port, reads) = (request.qp, request.from, request.port, request.reads);
        let rnr_retry = request.rnr_retry;
        let info = request.seen_by_listener();
        let mtu = cx.qps.get(active).map_or(self.mtu, QueuePair::mtu);
        let found = cx.qps.get_mut(qp)?;
        let from = found.card;
        let own = if from == to { cx.cards[from].loopback() } else { port };
        found.set_accepted(Peer { qp: active, card: to }, own, mtu);
        found.channel = Some(channel);
        found.requester.set_peer_rnr_retry(rnr_retry);
        found.requester.set_reads_max(param.initiator_depth.min(reads.1).min(self.reads_max));
        let message = Message::Accept {
            request: key,
            passive: qp,
            private_data: param.private_data.clone(),
            terms: AcceptedParams {
                reads: reads.0.min(param.responder_resources),
                depths: Depths::of(param),
                rnr_retry: param.rnr_retry,
            },
        };
        self.accepted.insert(qp, info);
        let ends = CardPair { from, to, port };
        self.send(cx, ends, message);
        Some(ends)
    }
}

/// Routing and listening.
impl ConnectionManager {
    /// The node and the index of the card that an address leads to from this card, and the port of both, if
    /// it names one. Equal rails are connected: a card reaches the card of its own index in other machines,
    /// and a single-port device reaches that port.
    fn route(
        &self,
        cards: &Cards,
        card: usize,
        own_port: Option<usize>,
        addr: SocketAddr,
    ) -> Result<((usize, usize), Option<usize>)> {
        let card = &cards[card];
        let own = (card.node.index(), card.first_rail() + own_port.unwrap_or(0));
        let (node, rail) = rail_at(addr, own, self.rails)?;
        let Some(rail) = rail else { return Ok(((node, card.number), own_port)) };
        let port = rail % card.ports;
        if rail / card.ports != card.number || own_port.is_some_and(|own| own != port) {
            let why = "it is another rail's: each reaches its likes, as rail 1 those at 10.2.x.y".to_owned();
            return Err(Error::Address { addr, why });
        }
        Ok(((node, card.number), Some(port)))
    }

    /// Listens at an address of this card, or of a single port if the device is one; port 0 chooses a number.
    pub(super) fn listen(
        &mut self,
        cards: &Cards,
        (card, own_port): (usize, Option<usize>),
        channel: u32,
        addr: SocketAddr,
        (backlog, screen): (u32, Option<Arc<dyn Screen>>),
    ) -> Result<(ListenerKey, SocketAddr)> {
        let refuse = |why: &str| Error::Address { addr, why: why.to_owned() };
        let ((node, _), port) = self.route(cards, card, own_port, addr)?;
        if node != cards[card].node.index() {
            return Err(refuse("this is another machine's address"));
        }
        let number = match addr.port() {
            0 => self.free_port(card).ok_or_else(|| refuse("all ports are in use"))?,
            number => number,
        };
        let ports = (0..cards[card].ports).map(Some).chain([None]);
        let mut clash = ports.filter(|other| port.is_none() || other.is_none() || *other == port);
        if clash.any(|other| self.listeners.contains_key(&(card, other, number))) {
            return Err(refuse("another listener uses this port"));
        }
        let key = (card, port, number);
        self.listeners.insert(key, Listener { channel, backlog, screen, waiting: 0 });
        Ok((key, SocketAddr::new(addr.ip(), number)))
    }

    /// A port number of a card without a listener; numbers are used in turn.
    fn free_port(&mut self, card: usize) -> Option<u16> {
        let taken = |number| self.listeners.keys().any(|&(c, _, taken)| c == card && taken == number);
        let span = u16::MAX - FIRST_PORT;
        let mut numbers = (0..=span).map(|i| FIRST_PORT + (self.last_port + i) % (span + 1));
        let found = numbers.find(|&number| !taken(number))?;
        self.last_port = (found - FIRST_PORT + 1) % (span + 1);
        Some(found)
    }

    /// Stops listening; requests that no one has taken are rejected.
    pub(super) fn stop_listening(&mut self, cx: &mut CmContext<'_>, key: ListenerKey) {
        let Some(listener) = self.listeners.remove(&key) else { return };
        self.reject_untaken(cx, listener.channel, |request| request.listener == Some(key));
    }

    /// Rejects the requests in a channel that no one has taken.
    fn reject_untaken(
        &mut self,
        cx: &mut CmContext<'_>,
        channel: u32,
        which: impl Fn(&ConnectRequest) -> bool,
    ) {
        let (requests, mut untaken) = (&self.requests, Vec::new());
        let Some(channel) = self.channels.get_mut(channel) else { return };
        channel.events.retain(|event| match event {
            ChannelEvent::Request(key) if requests.get(*key).is_none_or(&which) => {
                untaken.push(*key);
                false
            }
            _ => true,
        });
        for key in untaken {
            self.reject(cx, key, Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_node_and_port() {
        for (node, port) in [(0, 0), (1, 1), (254, 0), (255, 1), (65_534, 0)] {
            let addr = SocketAddr::from((address(node, port), 7));
            assert_eq!(rail_at(addr, (3, 1), 2), Ok((node, Some(port))));
        }
        let at = |text: &str| rail_at(text.parse().expect("an address"), (3, 1), 2);
        assert_eq!(at("127.0.0.1:1"), Ok((3, Some(1))));
        assert_eq!(at("0.0.0.0:1"), Ok((3, None)));
        for wrong in ["10.0.0.1:1", "10.1.0.0:1", "10.3.0.1:1", "192.168.1.1:1", "[::1]:1"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
