//! The path of a packet to the wire: doorbell, descriptor, scheduler, data read, transport engine, port.
//!
//! In each step the responsible module returns how long it takes; an event then starts the next step.

use host::Time;
use verbs::{QpState, WcStatus};

use super::event::Event;
use super::network::Network;
use super::packet::{Body, Outgoing, Packet, PortId, Source};
use super::responder::RequestError;
use crate::parts::transport::PacketWork;

/// How the card learns of a request.
impl Network {
    /// A request was posted: its doorbell crosses the bus.
    pub(super) fn on_doorbell_rung(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get(qp) else { return };
        let card = &mut self.cards[found.card];
        if !card.dead {
            let known = card.ring(now);
            self.event_queue.schedule(known, Event::DoorbellSeen(qp));
        }
    }

    /// The card learns of another request.
    pub(super) fn on_doorbell_seen(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        if found.state() == QpState::Error {
            return self.flush(now, qp);
        }
        found.requester.count_doorbell();
        let card = found.card;
        self.queue_descriptor_fetch(qp);
        self.fetch(now, card);
    }

    /// Queues a queue pair for descriptor fetches, if it has any to fetch.
    fn queue_descriptor_fetch(&mut self, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        let descriptors = &mut self.cards[found.card].descriptors;
        if found.requester.queue_descriptor(descriptors.ahead) {
            descriptors.waiting.push_back(qp);
        }
    }

    /// Requests descriptors, as many as may be in flight.
    fn fetch(&mut self, now: Time, card: usize) {
        // While the engine streams, descriptors that are not needed immediately wait.
        let streams = self.cards[card].is_streaming();
        loop {
            let qps = &self.qps;
            let may = |qp| !streams || qps.get(qp).is_none_or(|qp| !qp.requester.is_ahead());
            let next = self.cards[card].descriptors.next(may);
            let Some(qp) = next.filter(|_| !self.cards[card].dead) else { return };
            let Some(found) = self.qps.get_mut(qp) else { continue };
            let Some((sges, inline)) = found.requester.next_descriptor() else { continue };
            let max_sge = found.requester.max_sge();
            let descriptors = &mut self.cards[card].descriptors;
            let bytes = descriptors.send(sges, max_sge, inline);
            descriptors.fetching.push_back(qp);
            let done = self.cards[card].fetch(now, bytes);
            self.queue_descriptor_fetch(qp);
            self.event_queue.schedule(done, Event::DescriptorFetched(card as u32));
        }
    }

    /// Requests descriptors that have waited for the engine's reads.
    fn fetch_when_idle(&mut self, now: Time, card: usize) {
        if self.cards[card].descriptors.idle {
            self.fetch(now, card);
        }
    }

    /// A descriptor has arrived.
    pub(super) fn on_descriptor_fetched(&mut self, now: Time, card: usize) {
        let Some(qp) = self.cards[card].descriptors.fetching.pop_front() else { return };
        if self.qps.get_mut(qp).is_some_and(|qp| qp.requester.on_descriptor_fetched()) {
            self.queue_descriptor_fetch(qp);
            self.schedule_send(now, qp);
        }
        self.fetch(now, card);
    }
}

/// How the card selects the next packet.
impl Network {
    /// Adds a queue pair to those of its card that have something to send, and starts sending.
    pub(super) fn schedule_send(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        let PortId { card, port } = found.port();
        if found.activate() {
            self.cards[card].scheduler.activate(port, qp);
        }
        self.send_pending(now, card);
    }

    /// The start time of a queue pair's next request may have come.
    pub(super) fn on_begin_due(&mut self, now: Time, qp: u32) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.requester.begin_due();
        }
        self.schedule_send(now, qp);
    }

    /// Sends while there are packets, the engine is free and the wire's queue has room.
    pub(super) fn send_pending(&mut self, now: Time, card: usize) {
        loop {
            let c = &self.cards[card];
            if c.dead || !c.scheduler.is_free() {
                return;
            }
            let begun = c.scheduler.ports_from_next().any(|port| self.send_from(now, PortId { card, port }));
            if !begun {
                return;
            }
        }
    }

    /// Starts the next packet of a port; returns whether there is one.
    fn send_from(&mut self, now: Time, port: PortId) -> bool {
        while let Some(qp) = self.cards[port.card].scheduler.next_to_send(port.port) {
            let wire = self.qps.get(qp).map_or(port.port, |qp| qp.port().port);
            if !self.cards[port.card].scheduler.has_room(wire) {
                return false;
            }
            let Some(Outgoing { packet, source, ends }) = self.next_packet(now, qp) else {
                self.cards[port.card].scheduler.deactivate(port.port);
                if let Some(found) = self.qps.get_mut(qp) {
                    found.deactivate();
                }
                continue;
            };
            if ends {
                self.cards[port.card].scheduler.next_qp(port.port, qp);
            }
            if self.read(now, qp, packet, source) {
                self.cards[port.card].scheduler.end_turn(port.port);
                return true;
            }
        }
        false
    }

    /// The next packet of a queue pair: responses to its peer come before its own requests.
    fn next_packet(&mut self, now: Time, qp: u32) -> Option<Outgoing> {
        let found = self.qps.get_mut(qp).filter(|qp| qp.accepts())?;
        let (base, mtu) = (found.packet()?, found.mtu());
        match found.responder.next_packet(base.clone(), mtu) {
            Some(Ok(outgoing)) => Some(outgoing),
            Some(Err((psn, refusal))) => {
                self.reject_request(now, qp, psn, refusal);
                None
            }
            None => self.next_of_request(now, qp, base),
        }
    }

    /// The next packet of a queue pair's requests, if one may leave now.
    fn next_of_request(&mut self, now: Time, qp: u32, base: Packet) -> Option<Outgoing> {
        let found = self.qps.get_mut(qp).filter(|qp| qp.state() == QpState::ReadyToSend)?;
        let memory = (&self.protection, found.parts.domain);
        let (card, mtu) = (found.card, found.mtu());
        if let Some((at, look)) = found.requester.next_begin(now) {
            if look {
                self.event_queue.schedule(at, Event::BeginDue(qp));
            }
            return None;
        }
        let (next, skipped) = found.requester.next_packet(now, &self.rules, memory, (base, mtu));
        if skipped {
            self.queue_descriptor_fetch(qp);
        }
        let Ok(next) = next else {
            self.advance(now, qp);
            return None;
        };
        let outgoing = next?;
        if outgoing.ends {
            self.queue_descriptor_fetch(qp);
            if !self.cards[card].descriptors.idle {
                self.fetch(now, card);
            }
        }
        let looks = self.qps.get_mut(qp).and_then(|qp| qp.requester.expect_answer(now, &self.rules));
        if let Some(at) = looks {
            self.event_queue.schedule(at, Event::AnswerCheck(qp));
        }
        Some(outgoing)
    }
}

/// Reading a packet's data and passing it to its port.
impl Network {
    /// Reads a packet's data; returns whether they are accessible. Their arrival is an event.
    fn read(&mut self, now: Time, qp: u32, mut packet: Packet, source: Source) -> bool {
        let Some(found) = self.qps.get(qp) else { return false };
        let mut extents = std::mem::take(&mut self.extents);
        extents.clear();
        if found.source(&packet, source, &self.protection, &mut extents) {
            let PortId { card, port } = packet.from;
            let fits_in_descriptor = |op| self.cards[card].descriptors.fits_in_descriptor(op, packet.total);
            packet.merged = matches!(packet.body, Body::Request(op) if fits_in_descriptor(op));
            packet.sges = extents.len() as u64;
            packet.data = self.packets.data();
            self.protection.gather(&extents, packet.offset, packet.total, &mut packet.data);
            if let Source::Request(number) = source {
                let range = (packet.offset, packet.len, packet.total);
                self.protection.gather_inline(found.requester.inline(number), range, &mut packet.data);
            }
            let read = if packet.merged { &[] } else { &extents[..] };
            let begun = (packet.begins && packet.first).then(|| now + self.cards.message_gap(card, read));
            if let Some((at, found)) = begun.zip(self.qps.get_mut(qp)) {
                found.requester.on_begun(at);
            }
            let (end, loaded) = self.cards.read(now, card, (read, port, packet.first), &self.protection);
            let loaded = self.cards[card].scheduler.read(now, port, end, loaded);
            let number = self.packets.insert(packet);
            self.event_queue.schedule(loaded, Event::PacketLoaded(number));
            if !self.cards[card].scheduler.is_free() {
                self.event_queue.schedule(end, Event::DmaReadDone(card as u32));
            }
            self.fetch_when_idle(now, card);
            self.extents = extents;
            return true;
        }
        self.extents = extents;
        self.fail_missing_source(now, qp, packet.psn, source);
        false
    }

    /// Memory was deregistered in the middle of a message.
    fn fail_missing_source(&mut self, now: Time, qp: u32, psn: u64, source: Source) {
        match source {
            Source::Request(number) => {
                if let Some(found) = self.qps.get_mut(qp) {
                    found.requester.fail(number, WcStatus::LocProtErr);
                }
                self.advance(now, qp);
            }
            _ => self.reject_request(now, qp, psn, RequestError::access_violation(WcStatus::RemAccessErr)),
        }
    }

    /// The DMA engine has read a packet.
    pub(super) fn on_dma_read_done(&mut self, now: Time, card: usize) {
        self.cards[card].scheduler.read_on();
        self.send_pending(now, card);
        self.fetch_when_idle(now, card);
    }

    /// A packet has its data: it passes the transport engine and goes to its port.
    pub(super) fn on_packet_loaded(&mut self, now: Time, number: u32) {
        let packet = &mut self.packets[number];
        let (from, card) = (packet.from, &mut self.cards[packet.from.card]);
        if card.dead {
            return self.release(now, number);
        }
        let names_memory = packet.first && packet.body.has_address();
        let extra =
            PacketWork { sges: packet.sges, begins: packet.begins, names_memory, ..PacketWork::default() };
        let ready = card.transport.send(now, extra);
        if self.ports.is_loopback(from) {
            (packet.credit, packet.head_at) = (true, ready);
            return self.event_queue.schedule(ready, Event::PacketArrived(number));
        }
        packet.ready_at = card.transport.move_to_port(ready, packet.len);
        if self.ports.send(now, number, &mut self.packets, &self.event_queue) {
            self.on_packet_left(now, from);
        }
    }

    /// A link may continue sending.
    pub(super) fn on_link_ready(&mut self, now: Time, port: PortId) {
        if self.ports.link(now, port, &mut self.packets, &self.event_queue) {
            self.on_packet_left(now, port);
        }
    }

    /// A data packet has left by a port: another one may be read.
    fn on_packet_left(&mut self, now: Time, port: PortId) {
        self.cards[port.card].scheduler.packet_left(port.port);
        self.send_pending(now, port.card);
    }

    /// Drops a packet and the room that it held.
    pub(super) fn release(&mut self, now: Time, number: u32) {
        let packet = self.packets.remove(number);
        if !packet.credit {
            return;
        }
        if self.ports.is_loopback(packet.to) {
            return self.on_packet_left(now, packet.to);
        }
        if let Some(waiter) = self.ports.free_slot(now, packet.to, &mut self.packets, &self.event_queue) {
            self.on_packet_left(now, waiter);
        }
    }

    /// Sends an acknowledgement, or another packet without data, from a queue pair to its peer.
    pub(super) fn send_control(&mut self, now: Time, qp: u32, psn: u64, body: Body) {
        let packet = self.qps.get(qp).and_then(|qp| qp.packet());
        if let Some(packet) = packet.filter(|packet| !self.cards[packet.from.card].dead) {
            self.ports.send_control(
                now,
                Packet { psn, body, ..packet },
                &mut self.packets,
                &self.event_queue,
            );
        }
    }
}
