//! [`Network`]: the state of all cards of a world, behind one lock; dispatches events and calls to its
//! modules.
//!
//! Each module owns its fields and has a file of its own. No module knows this one: each borrows what
//! it needs for one call, and returns what other modules have to do. `outbound` and `inbound` follow the path
//! of a packet; this file handles the ends: objects, posted requests, completions, connections, failures.

use std::net::SocketAddr;
use std::sync::Arc;

use host::world::{HandlerId, Node, Timeline};
use host::{Span, Time};
use verbs::provider::QpParts;
use verbs::{
    Access, AsyncEvent, Buf, ConnInfo, ConnParam, Error, QpState, RecvWr, Result, Screen, SendWr, Sge,
    SrqInit, Wc, WcOpcode, WcStatus,
};

use super::card::Cards;
use super::completions::{Completions, CqOwner, Entry, ShownEntry, Slots};
use super::connections::{
    CardPair, ChannelEvent, CmContext, ConnectionManager, Envelope, ListenerKey, Message, ScreenResult,
};
use super::context::Context;
use super::event::Event;
use super::event_queue::EventQueue;
use super::faults::Faults;
use super::packet::{Packets, PortId};
use super::ports::PortTable;
use super::protection::{Extent, Protection};
use super::queue_pair::{QueuePair, QueuePairParts};
use super::receives::{ReceiveQueue, SharedReceiveQueue};
use super::requester::TransportSettings;
use super::slab::Slab;
use crate::config::Payload;
use crate::limits::ObjectKind;
use crate::machine::Params;
use crate::parts::us;

/// The modules of a network. Objects are named by keys, cards by index.
pub(crate) struct Network {
    pub(super) params: Params,
    pub(super) rules: TransportSettings,
    pub(super) event_queue: EventQueue,
    pub(super) faults: Faults,
    pub(super) cards: Cards,
    pub(super) ports: PortTable,
    pub(super) packets: Packets,
    pub(super) protection: Protection,
    pub(super) completions: Completions,
    pub(super) qps: Slab<QueuePair>,
    pub(super) srqs: Slab<SharedReceiveQueue>,
    connections: ConnectionManager,
    contexts: Slab<Context>,
    /// Extents of the packet that is being processed; reused.
    pub(super) extents: Vec<Extent>,
    /// Unused lists of SGEs.
    pub(super) spare: Vec<Vec<Sge>>,
}

impl Network {
    /// A network for cards with these parameters, without any card yet.
    pub(super) fn new(params: &Params, payload: Payload, timeline: Timeline) -> Self {
        Self {
            params: *params,
            rules: TransportSettings::new(params),
            faults: Faults::new(timeline.seed(), params),
            event_queue: EventQueue::new(timeline),
            cards: Cards::default(),
            ports: PortTable::default(),
            packets: Packets::default(),
            protection: Protection::new((params.nic_memory.size_mib as u64) << 20, payload),
            completions: Completions::default(),
            qps: Slab::default(),
            srqs: Slab::default(),
            connections: ConnectionManager::new(params),
            contexts: Slab::default(),
            extents: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The network has become an event handler of its world.
    pub(super) fn set_handler(&mut self, handler: HandlerId) {
        self.event_queue.set_handler(handler);
        self.faults.begin(&self.event_queue);
    }

    /// Maximum data in a packet, unless a connection uses less.
    pub(crate) fn mtu(&self) -> u64 {
        self.params.link.mtu_bytes as u64
    }

    /// Handles an event.
    pub(super) fn handle_event(&mut self, now: Time, event: Event) {
        match event {
            Event::DoorbellRung(qp) => self.on_doorbell_rung(now, qp),
            Event::DoorbellSeen(qp) => self.on_doorbell_seen(now, qp),
            Event::DescriptorFetched(card) => self.on_descriptor_fetched(now, card as usize),
            Event::BeginDue(qp) => self.on_begin_due(now, qp),
            Event::CardNotified(card) => drop(self.cards[card as usize].ring(now)),
            Event::LastReceive(qp) => self.on_last_receive(qp),
            Event::DmaReadDone(card) => self.on_dma_read_done(now, card as usize),
            Event::PacketLoaded(packet) => self.on_packet_loaded(now, packet),
            Event::LinkReady(port) => self.on_link_ready(now, port),
            Event::HeadAtSwitch(packet) => self.on_head_at_switch(now, packet),
            Event::PacketArrived(packet) => self.on_packet_arrived(now, packet),
            Event::PacketReadyToPlace(packet) => self.on_ready_to_place(now, packet),
            Event::DmaWriteDone(card) => self.on_dma_write_done(now, card as usize),
            Event::PacketPlaced(packet) => self.on_packet_placed(now, packet),
            Event::RnrPauseEnded(qp) => self.on_rnr_pause_ended(now, qp),
            Event::AnswerCheck(qp) => self.on_answer_check(now, qp),
            Event::EntryVisible(queue) => self.on_entry_visible(now, queue),
            Event::ChannelNotified(queue) => self.on_channel_event(queue),
            Event::Flush(qp) => self.flush(now, qp),
            Event::CmMessage(message) => self.on_cm_message(now, message),
            Event::ConnectTimeout(request) => {
                let (connections, mut cx) = self.connecting(now);
                connections.on_connect_timeout(&mut cx, request);
            }
            Event::PeerLost(qp) => self.on_peer_lost(now, qp),
            Event::CableCut => self.on_cable_cut(now),
            Event::CableRepaired => self.on_cable_repaired(),
            Event::MachineDeath => self.on_machine_death(now),
        }
    }
}

/// Objects that programs create and destroy.
impl Network {
    /// Opens a card of a node, or one port of it; returns the numbers of the opened device and of the card.
    pub(crate) fn open(&mut self, node: &Node, number: usize, port: Option<usize>) -> (u32, usize) {
        let card = self.cards.find(node.index(), number).unwrap_or_else(|| {
            self.ports.plug_in(&self.params);
            self.cards.add(node, number, &self.params)
        });
        (self.contexts.insert(Context::new(card, port)), card)
    }

    /// Closes a device.
    pub(crate) fn close(&mut self, context: u32) {
        self.contexts.remove(context);
    }

    /// The card of an opened device, which owns the device's objects.
    fn card_of(&self, context: u32) -> Result<usize> {
        self.contexts.get(context).map(Context::card).ok_or(Error::Foreign { what: "the device" })
    }

    /// The next asynchronous event of a device.
    pub(crate) fn poll_async_event(&mut self, context: u32) -> Option<AsyncEvent> {
        self.contexts.get_mut(context)?.poll()
    }

    /// Reports an asynchronous event to the user of a device.
    pub(super) fn report_event(&mut self, context: u32, event: AsyncEvent) {
        let Some(context) = self.contexts.get_mut(context) else { return };
        context.push(event);
        self.cards.signal(context.card());
    }

    /// The number of a new protection domain.
    pub(crate) fn domain(&mut self) -> u32 {
        self.protection.domain()
    }

    /// Allocates memory of the card.
    pub(crate) fn alloc_dm(&mut self, context: u32, len: usize) -> Result<Buf> {
        let card = self.card_of(context)?;
        self.protection.alloc_dm(context, card, len)
    }

    /// Registers memory; returns its key, and its address in requests.
    pub(crate) fn register(
        &mut self,
        context: u32,
        domain: u32,
        buf: &Buf,
        access: Access,
    ) -> Result<(u32, u64)> {
        let card = self.card_of(context)?;
        self.cards[card].add(ObjectKind::Region)?;
        let registered = self.protection.register((context, card), domain, buf, access);
        registered.inspect_err(|_| self.cards[card].remove(ObjectKind::Region))
    }

    /// Deregisters memory, if the key is valid.
    pub(crate) fn deregister(&mut self, key: u32) {
        if let Some(card) = self.protection.deregister(key) {
            self.cards[card].remove(ObjectKind::Region);
        }
    }

    /// Creates a completion channel.
    pub(crate) fn create_channel(&mut self) -> u32 {
        self.completions.create_channel()
    }

    /// Removes a completion channel.
    pub(crate) fn drop_channel(&mut self, channel: u32) {
        self.completions.drop_channel(channel);
    }

    /// The next completion queue that has notified a channel.
    pub(crate) fn poll_channel(&mut self, channel: u32) -> Option<u32> {
        self.completions.poll_channel(channel)
    }

    /// Creates a completion queue, if the card may have another.
    pub(crate) fn create_cq(&mut self, context: u32, cqe: u32, channel: Option<u32>) -> Result<u32> {
        let card = self.card_of(context)?;
        self.cards[card].add(ObjectKind::CompletionQueue)?;
        Ok(self.completions.create(CqOwner { context, card }, cqe, channel))
    }

    /// Removes a completion queue.
    pub(crate) fn drop_cq(&mut self, cq: u32) {
        if let Some(owner) = self.completions.remove(cq) {
            self.cards[owner.card].remove(ObjectKind::CompletionQueue);
        }
    }

    /// Arms a completion queue.
    pub(crate) fn arm(&mut self, cq: u32, solicited_only: bool) -> Result<()> {
        self.completions.arm(cq, solicited_only)
    }

    /// Creates a shared receive queue, if the card may have another.
    pub(crate) fn create_srq(&mut self, context: u32, domain: u32, init: SrqInit) -> Result<u32> {
        let card = self.card_of(context)?;
        self.cards[card].add(ObjectKind::SharedReceiveQueue)?;
        let receives = ReceiveQueue::new("shared receive", init.max_wr, init.max_sge);
        Ok(self.srqs.insert(SharedReceiveQueue::new(context, card, domain, receives)))
    }

    /// Removes a shared receive queue.
    pub(crate) fn drop_srq(&mut self, srq: u32) {
        if let Some(srq) = self.srqs.remove(srq) {
            self.cards[srq.card].remove(ObjectKind::SharedReceiveQueue);
        }
    }

    /// Arms the limit of a shared receive queue: fewer receives are reported once.
    pub(crate) fn arm_limit(&mut self, srq: u32, limit: u32) {
        if let Some(srq) = self.srqs.get_mut(srq) {
            srq.arm_limit(limit);
        }
    }

    /// The limit of a shared receive queue; 0 once it was passed.
    pub(crate) fn limit(&self, srq: u32) -> u32 {
        self.srqs.get(srq).map_or(0, SharedReceiveQueue::limit)
    }

    /// Creates a queue pair, if the card may have another.
    pub(crate) fn create_qp(&mut self, parts: QueuePairParts, init: &QpParts) -> Result<u32> {
        let card = self.card_of(parts.context)?;
        self.cards[card].add(ObjectKind::QueuePair)?;
        Ok(self.qps.insert(QueuePair::new(card, parts, init, self.mtu())))
    }

    /// The state of a queue pair; Error once it was destroyed.
    pub(crate) fn qp_state(&self, qp: u32) -> QpState {
        self.qps.get(qp).map_or(QpState::Error, QueuePair::state)
    }

    /// Sets the receiver-not-ready retry limit of a queue pair.
    pub(crate) fn set_rnr_retry(&mut self, qp: u32, retries: u8) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.requester.set_rnr_retry(retries);
        }
    }

    /// Sets the pause of a peer that finds this queue pair not ready.
    pub(crate) fn set_rnr_pause(&mut self, qp: u32, pause: Span) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.rnr_pause = pause;
        }
    }

    /// Destroys a queue pair: its requests do not complete, and its unpolled completions are dropped.
    pub(crate) fn drop_qp(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        let card = found.card;
        found.detach();
        let QueuePairParts { send_cq, recv_cq, .. } = found.parts;
        self.fail(now, qp);
        let Self { completions, qps, srqs, .. } = self;
        for cq in [send_cq, recv_cq] {
            completions.discard_of_qp(cq, qp, |slots| free(slots, qps, srqs));
        }
        self.qps.remove(qp);
        self.cards[card].remove(ObjectKind::QueuePair);
    }
}

/// Posting and polling.
impl Network {
    /// How long the processor waits before it can ring a card's doorbell again.
    pub(crate) fn wait_for_doorbell(&mut self, now: Time, card: usize) -> Span {
        let slowness = self.cards.update_slowness(card);
        self.cards[card].doorbell.wait(now, slowness)
    }

    /// Checks whether a send request may be posted.
    pub(crate) fn check_send(&self, qp: u32, wr: &SendWr<'_>) -> Result<()> {
        self.qps.get(qp).map_or(Ok(()), |qp| qp.check_send(wr))
    }

    /// Posts a send request that has been checked.
    pub(crate) fn post_send(&mut self, now: Time, qp: u32, wr: &SendWr<'_>) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.requester.post(wr);
            self.event_queue.schedule(now, Event::DoorbellRung(qp));
        }
    }

    /// Checks whether a receive may be posted.
    pub(crate) fn check_receive(&self, qp: u32, wr: &RecvWr<'_>) -> Result<()> {
        self.qps.get(qp).map_or(Ok(()), |qp| qp.check_receive(wr))
    }

    /// Posts a receive that has been checked.
    pub(crate) fn post_receive(&mut self, now: Time, qp: u32, wr: &RecvWr<'_>) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        found.receives.post(wr, now);
        if found.state() == QpState::Error {
            self.event_queue.schedule(now, Event::Flush(qp));
        }
    }

    /// Posts a receive to a shared receive queue.
    pub(crate) fn post_shared(&mut self, now: Time, srq: u32, wr: &RecvWr<'_>) -> Result<()> {
        let Some(srq) = self.srqs.get_mut(srq) else { return Ok(()) };
        srq.receives.check(wr)?;
        srq.receives.post(wr, now);
        Ok(())
    }

    /// The processor notifies a card of polled completions or posted receives, which occupies the bus.
    pub(crate) fn notify_card(&mut self, now: Time, card: usize) {
        self.event_queue.schedule(now, Event::CardNotified(card as u32));
    }

    /// Polls completions; returns their number.
    pub(crate) fn poll(&mut self, cq: u32, wcs: &mut [Wc]) -> Result<usize> {
        let Self { completions, qps, srqs, .. } = self;
        completions.poll(cq, wcs, |slots| free(slots, qps, srqs))
    }

    /// Records a rank's poll of a completion queue; see [`Completions::record_poll`].
    pub(crate) fn record_poll(&mut self, rank: usize, cq: u32, found: bool) -> bool {
        self.completions.record_poll(rank, cq, found)
    }
}

/// Completion of requests, and the end of queue pairs.
impl Network {
    /// A card writes a completion entry.
    fn complete(&mut self, now: Time, cq: u32, entry: Entry) {
        let Some(owner) = self.completions.owner(cq) else { return };
        let card = &mut self.cards[owner.card];
        if card.dead || !self.completions.accepts_entries(cq) {
            return;
        }
        self.completions.write(cq, entry);
        let follows_data = entry.wc.opcode.is_recv();
        let visible_at = card.complete(now, follows_data);
        self.event_queue.schedule(visible_at, Event::EntryVisible(cq));
    }

    /// The processor sees the next entry of a completion queue. An overrun fails all queue pairs of the
    /// queue.
    fn on_entry_visible(&mut self, now: Time, cq: u32) {
        let Some(owner) = self.completions.owner(cq) else { return };
        match self.completions.show_next(cq) {
            ShownEntry::Nothing => {}
            ShownEntry::Entry { notify } => {
                if notify {
                    self.event_queue
                        .schedule(now + self.cards[owner.card].interrupt.latency, Event::ChannelNotified(cq));
                }
                self.cards.signal(owner.card);
            }
            ShownEntry::Overrun => {
                self.report_event(owner.context, AsyncEvent::CqError { cq });
                let dead = self.qps.iter().filter(|(_, qp)| qp.parts.send_cq == cq || qp.parts.recv_cq == cq);
                let dead: Vec<u32> = dead.map(|(qp, _)| qp).collect();
                dead.into_iter().for_each(|qp| self.fail(now, qp));
            }
        }
    }

    /// The event of a completion queue reaches its channel.
    fn on_channel_event(&mut self, cq: u32) {
        if let Some(owner) = self.completions.owner(cq)
            && self.completions.notify(cq)
        {
            self.cards.signal(owner.card);
        }
    }

    /// Completes finished requests in the order of posting. A failed one ends the connection.
    pub(super) fn advance(&mut self, now: Time, qp: u32) {
        while let Some(found) = self.qps.get_mut(qp)
            && let Some(retired) = found.requester.retire_oldest()
        {
            let cq = found.parts.send_cq;
            if let Some(completion) = retired.completion {
                self.complete_send(now, (qp, cq), completion);
            }
            if retired.failed {
                return self.fail(now, qp);
            }
        }
    }

    /// The number that programs see for a queue pair.
    pub(super) fn reported_qp_num(&self, qp: u32) -> u32 {
        self.qps.get(qp).and_then(|found| found.reported_qp_num).unwrap_or(qp)
    }

    /// Completes a send request; `freed` is how many slots of the send queue that frees.
    fn complete_send(&mut self, now: Time, (qp, cq): (u32, u32), (wc, freed): (Wc, u32)) {
        let qp_num = self.reported_qp_num(qp);
        let (wc, slots) = (Wc { qp_num, ..wc }, Slots::Send(qp, freed));
        self.complete(now, cq, Entry { wc, slots, solicited: false });
    }

    /// Completes the oldest receive that a message has taken; returns whether there was one.
    pub(super) fn complete_receive(&mut self, now: Time, qp: u32, wc: Wc, solicited: bool) -> bool {
        let Some(found) = self.qps.get_mut(qp) else { return false };
        let Some(taken) = found.responder.complete() else { return false };
        let (cq, wc) = (
            found.parts.recv_cq,
            Wc { wr_id: taken.wr_id, qp_num: found.reported_qp_num.unwrap_or(qp), ..wc },
        );
        self.spare.push(taken.sges);
        self.complete(now, cq, Entry { wc, slots: taken.slots, solicited });
        true
    }

    /// Moves a queue pair to the error state, once: flushes it, and notifies its channel and its peer.
    pub(crate) fn fail(&mut self, now: Time, qp: u32) {
        let Some(ended) = self.qps.get_mut(qp).and_then(QueuePair::fail) else { return };
        self.flush(now, qp);
        if self.qps.get(qp).is_some_and(|found| found.parts.srq.is_some()) {
            self.write_last_receive(now, qp);
        }
        let (connections, mut cx) = self.connecting(now);
        connections.on_qp_ended(&mut cx, qp, ended);
    }

    /// A card reports, after the completions of a failed queue pair, that it holds no more shared receives.
    fn write_last_receive(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get(qp) else { return };
        let card = &mut self.cards[found.card];
        if !card.dead {
            // The event follows the data of the last receive.
            let follows_data = true;
            let visible_at = card.complete(now, follows_data);
            self.event_queue.schedule(visible_at, Event::LastReceive(qp));
        }
    }

    /// Reports that a queue pair in the error state has used its last receive of a shared queue.
    fn on_last_receive(&mut self, qp: u32) {
        if let Some(found) = self.qps.get(qp) {
            self.report_event(found.parts.context, AsyncEvent::LastWqeReached { qp_num: qp });
        }
    }

    /// Completes everything posted to a queue pair in the error state.
    pub(super) fn flush(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get_mut(qp).filter(|qp| qp.state() == QpState::Error) else { return };
        let QueuePairParts { send_cq, recv_cq, .. } = found.parts;
        let sends: Vec<(Wc, u32)> = found.requester.flush().collect();
        for completion in sends {
            self.complete_send(now, (qp, send_cq), completion);
        }
        let flushed = Wc { status: WcStatus::WrFlushErr, opcode: WcOpcode::Recv, ..Wc::default() };
        while self.complete_receive(now, qp, flushed, false) {}
        let whenever = Time::from_ps(u64::MAX);
        while let Some(found) = self.qps.get_mut(qp)
            && let Some((wr_id, sges)) = found.receives.take(whenever, &mut self.spare)
        {
            self.spare.push(sges);
            let wc = Wc { wr_id, qp_num: self.reported_qp_num(qp), ..flushed };
            self.complete(now, recv_cq, Entry { wc, slots: Slots::Receive(qp), solicited: false });
        }
    }
}

/// Frees the slots of a polled completion.
fn free(slots: Slots, qps: &mut Slab<QueuePair>, srqs: &mut Slab<SharedReceiveQueue>) {
    match slots {
        Slots::Send(qp, count) => drop(qps.get_mut(qp).map(|qp| qp.requester.free(count))),
        Slots::Receive(qp) => drop(qps.get_mut(qp).map(|qp| qp.receives.free())),
        Slots::SharedReceive(srq, _) => drop(srqs.get_mut(srq).map(|srq| srq.receives.free())),
        Slots::Void => {}
    }
}

/// Connections.
impl Network {
    /// The connection managers, and the state that they borrow for a call.
    pub(super) fn connecting(&mut self, now: Time) -> (&mut ConnectionManager, CmContext<'_>) {
        let Self { connections, event_queue, faults, cards, qps, .. } = self;
        (connections, CmContext { now, event_queue, faults, cards, qps })
    }

    /// Creates a channel of the connection manager.
    pub(crate) fn create_cm(&mut self, card: usize) -> u32 {
        self.connections.create_channel(card)
    }

    /// Removes a channel of the connection manager, and rejects the requests that nobody has taken from it.
    pub(crate) fn drop_cm(&mut self, now: Time, channel: u32) {
        let (connections, mut cx) = self.connecting(now);
        connections.drop_channel(&mut cx, channel);
    }

    /// The next event of a channel; a request is given by its number.
    pub(crate) fn poll_cm(&mut self, channel: u32) -> Option<ChannelEvent> {
        self.connections.poll(channel)
    }

    /// The private data of a connect request, its addresses, and the result of the listener's screen.
    pub(crate) fn connect_request(&mut self, key: u32) -> Option<(Vec<u8>, ConnInfo, Option<ScreenResult>)> {
        self.connections.request(key)
    }

    /// Whether the connecting side still waits for the answer to a connect request.
    pub(crate) fn is_asked(&self, key: u32) -> bool {
        self.connections.is_asked(key)
    }

    /// Listens at an address of this card, or of a single port if the device is one; port 0 chooses a number.
    pub(crate) fn listen(
        &mut self,
        own: (usize, Option<usize>),
        channel: u32,
        addr: SocketAddr,
        (backlog, screen): (u32, Option<Arc<dyn Screen>>),
    ) -> Result<(ListenerKey, SocketAddr)> {
        self.connections.listen(&self.cards, own, channel, addr, (backlog, screen))
    }

    /// Removes a listener.
    pub(crate) fn stop_listening(&mut self, now: Time, key: ListenerKey) {
        let (connections, mut cx) = self.connecting(now);
        connections.stop_listening(&mut cx, key);
    }

    /// Whether a queue pair may start a connection.
    pub(crate) fn check_idle(&self, qp: u32, call: &'static str) -> Result<()> {
        let gone = Err(Error::WrongState { call, state: QpState::Error });
        self.qps.get(qp).map_or(gone, |qp| qp.check_idle(call))
    }

    /// Starts to connect; the caller has checked that the queue pair and the channel are its own.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        channel: u32,
        qp: u32,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        self.check_idle(qp, "connect")?;
        let context = self.qps.get(qp).map(|qp| qp.parts.context);
        let own_port = context.and_then(|context| self.contexts.get(context)?.port());
        let (connections, mut cx) = self.connecting(now);
        connections.connect(&mut cx, (channel, qp), own_port, addr, param)
    }

    /// Accepts a connect request with an idle queue pair.
    pub(crate) fn accept(&mut self, now: Time, channel: u32, key: u32, qp: u32, param: &ConnParam) {
        let (connections, mut cx) = self.connecting(now);
        let Some(ends) = connections.accept(&mut cx, (channel, qp), key, param) else {
            return self.fail(now, qp);
        };
        if self.is_unreachable(now, ends) {
            self.event_queue.schedule(now + us(self.params.connection.lost_after_us), Event::PeerLost(qp));
        }
    }

    /// Rejects a connect request.
    pub(crate) fn reject(&mut self, now: Time, key: u32, private_data: Vec<u8>) {
        let (connections, mut cx) = self.connecting(now);
        connections.reject(&mut cx, key, private_data);
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, now: Time, qp: u32) -> Result<()> {
        match self.qp_state(qp) {
            QpState::ReadyToSend | QpState::ReadyToReceive | QpState::Error => self.fail(now, qp),
            state => return Err(Error::WrongState { call: "disconnect", state }),
        }
        Ok(())
    }

    /// A message between connection managers arrives.
    fn on_cm_message(&mut self, now: Time, key: u32) {
        let Some(Envelope { ends, message }) = self.connections.open(key) else { return };
        if self.is_unreachable(now, ends) {
            return;
        }
        match message {
            Message::Connect { request } => self.on_connect_request(now, request),
            Message::Gone { passive, active } => self.on_disconnect(now, passive, active, None),
            Message::Disconnect { qp, from, nak } => self.on_disconnect(now, qp, from, nak),
            Message::Reject { request, private_data } => {
                let (connections, mut cx) = self.connecting(now);
                connections.on_reject(&mut cx, request, private_data);
            }
            Message::Accept { request, passive, private_data, terms } => {
                let (connections, mut cx) = self.connecting(now);
                connections.on_accept(&mut cx, ends, (request, passive), private_data, &terms);
            }
            Message::Ready { passive, active } => {
                let (connections, mut cx) = self.connecting(now);
                connections.ready_arrives(&mut cx, ends, passive, active);
            }
        }
    }

    /// A connect request arrives, if its card exists and is reachable.
    fn on_connect_request(&mut self, now: Time, request: u32) {
        let Some(((node, number), port)) = self.connections.target(request) else { return };
        let to = self.cards.find(node, number);
        if to.is_some_and(|card| self.is_silent(now, card) || self.ports.is_cut(PortId { card, port })) {
            return;
        }
        let (connections, mut cx) = self.connecting(now);
        connections.on_connect_request(&mut cx, request, to);
    }

    /// The peer `from` of a queue pair has ended the connection.
    fn on_disconnect(&mut self, now: Time, qp: u32, from: u32, nak: Option<(u64, WcStatus)>) {
        let Some(found) = self.qps.get_mut(qp).filter(|qp| qp.peer().is_some_and(|peer| peer.qp == from))
        else {
            return;
        };
        // Repeats the reason, in case the packet with it was lost.
        if let Some((psn, status)) = nak.filter(|_| found.state() == QpState::ReadyToSend) {
            found.requester.reject(psn, status);
            self.advance(now, qp);
        }
        if let Some(found) = self.qps.get_mut(qp) {
            found.forget_peer();
        }
        self.fail(now, qp);
    }
}

/// Faults.
impl Network {
    /// Whether a card does not answer, because its machine is dead. The machine may also have been killed
    /// from outside.
    pub(super) fn is_silent(&mut self, now: Time, card: usize) -> bool {
        if !self.cards[card].dead && self.cards[card].node.is_dead() {
            self.mark_dead(now, card);
        }
        self.cards[card].dead
    }

    /// Whether messages between two cards are lost.
    fn is_unreachable(&mut self, now: Time, ends: CardPair) -> bool {
        let cut = ends.ports().into_iter().any(|port| self.ports.is_cut(port));
        self.is_silent(now, ends.from) || self.is_silent(now, ends.to) || cut
    }

    /// The port whose cable the faults cut.
    fn cut_port(&self) -> Option<PortId> {
        let (node, number, port) = self.faults.cut_at();
        Some(PortId { card: self.cards.find(node, number)?, port })
    }

    /// Cuts the cable that the faults name: connections by its port are lost after a timeout.
    fn on_cable_cut(&mut self, now: Time) {
        let Some(port) = self.cut_port() else { return };
        self.ports.set_cut(port, true);
        self.schedule_peer_lost(now, port.card, Some(port.port));
        if let Some(at) = self.faults.repaired_at(now) {
            self.event_queue.schedule(at, Event::CableRepaired);
        }
    }

    /// Repairs the cut cable: connections can use it again.
    fn on_cable_repaired(&mut self) {
        if let Some(port) = self.cut_port() {
            self.ports.set_cut(port, false);
        }
    }

    /// Kills the machine that the faults name.
    fn on_machine_death(&mut self, now: Time) {
        for card in self.cards.of_node(self.faults.dying_node()) {
            self.cards[card].node.kill();
            self.mark_dead(now, card);
        }
    }

    /// Makes a card unreachable: its connections are lost after a timeout.
    fn mark_dead(&mut self, now: Time, card: usize) {
        self.cards[card].dead = true;
        self.schedule_peer_lost(now, card, None);
    }

    /// Ends the connections to an unreachable card, or by one of its ports, after a timeout even if nothing
    /// is sent: connection managers exchange keepalives. Successful keepalives cost nothing and are not
    /// simulated.
    fn schedule_peer_lost(&mut self, now: Time, card: usize, port: Option<usize>) {
        let patience = us(self.params.connection.lost_after_us);
        let affected = self.qps.iter().filter(|(_, qp)| {
            let ends = qp.card == card || qp.is_peer_card(card);
            qp.peer().is_some() && ends && port.is_none_or(|port| qp.port().port == port)
        });
        for (qp, _) in affected {
            self.event_queue.schedule(now + patience, Event::PeerLost(qp));
        }
    }

    /// A peer has been silent for too long.
    fn on_peer_lost(&mut self, now: Time, qp: u32) {
        if self.qps.get(qp).is_some_and(|qp| !self.cards[qp.card].dead) {
            self.fail(now, qp);
        }
    }
}
