//! The path of an arriving packet: switch, transport engine, sequence check, memory, and the consequences:
//! responses and acknowledgements here, completions at either end.

use host::{Span, Time};
use verbs::{AsyncEvent, QpState, RemoteAddr, SendOp, Wc, WcOpcode, WcStatus};

use super::card::Write;
use super::completions::Slots;
use super::event::Event;
use super::network::Network;
use super::packet::{Body, Packet, PortId};
use super::requester::{AnswerStatus, Response, ResponseProgress, Rnr};
use super::responder::{Acknowledgement, OutOfOrder, RequestError, Responder, TakenReceive};
use crate::parts::transport::PacketWork;

/// Whether a packet of a request takes the single receive of its message.
fn takes_receive(op: SendOp, first: bool, last: bool) -> bool {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => first,
        SendOp::WriteImm(..) => last,
        _ => false,
    }
}

/// Whether a request of this kind completes a receive at the responder.
fn completes_there(op: SendOp) -> bool {
    matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(..))
}

/// Arrival of packets.
impl Network {
    /// A packet's head is ready to leave the switch.
    pub(super) fn on_head_at_switch(&mut self, now: Time, number: u32) {
        if self.is_lost(number) {
            return self.release(now, number);
        }
        let delay = self.faults.delay();
        let at = self.ports.forward(now, delay, &mut self.packets[number]);
        self.event_queue.schedule(at, Event::PacketArrived(number));
    }

    /// Whether a packet in the switch is lost.
    fn is_lost(&mut self, number: u32) -> bool {
        let Packet { from, to, .. } = self.packets[number];
        let cut = self.ports.is_cut(from) || self.ports.is_cut(to);
        let dead = self.cards[from.card].dead || self.cards[to.card].dead;
        cut || dead || self.faults.loses_packet()
    }

    /// A packet has arrived completely.
    pub(super) fn on_packet_arrived(&mut self, now: Time, number: u32) {
        let card = self.packets[number].to.card;
        if self.is_silent(now, card) {
            return self.release(now, number);
        }
        if let Some(stall) = self.faults.receiver_stall() {
            self.cards[card].transport.stall(now, stall);
        }
        match self.packets[number].body {
            Body::Request(op) => self.on_request(now, number, op),
            Body::ReadResponse | Body::AtomicResponse(_) => self.on_response(now, number),
            Body::Ack | Body::Nak(_) | Body::RnrNak(_) | Body::SequenceNak => {
                self.cards[card].transport.acknowledge(now);
                self.on_acknowledgement(now, number);
                self.release(now, number);
            }
        }
    }

    /// A request's packet has arrived. It is accepted if it is the next in sequence, and placed in order.
    fn on_request(&mut self, now: Time, number: u32, op: SendOp) {
        let packet = &self.packets[number];
        let &Packet { qp, psn, first, last, merged, head_at, from, to, .. } = packet;
        let known = self.qps.get(qp).filter(|qp| qp.accepts() && qp.is_peer_card(from.card));
        let Some(found) = known.filter(|qp| !qp.responder.is_refusing()) else {
            return self.release(now, number);
        };
        let card = &mut self.cards[to.card];
        if !found.responder.expects(psn) {
            card.transport.receive(now, PacketWork::default());
            self.out_of_order(now, number, op);
            return self.release(now, number);
        }
        let (takes, head) = (takes_receive(op, first, last), card.works_from(now, head_at));
        // The notice of a write whose data were in the descriptor arrives with it, and takes no extra time.
        let takes_time = takes && !(merged && matches!(op, SendOp::WriteImm(..)));
        let names_memory = first && packet.body.has_address();
        let finishes = takes_time && card.transport.ends_behind();
        let extra = PacketWork { takes: takes_time, names_memory, ..PacketWork::default() };
        let [begun, ready] = card.transport.receive(head, extra);
        let Some(fetched) = (if takes { self.take_receive(head, qp) } else { Some(head) }) else {
            if let Some(found) = self.qps.get_mut(qp) {
                found.responder.not_ready();
                let pause = found.rnr_pause;
                self.send_control(now, qp, psn, Body::RnrNak(pause));
            }
            return self.release(now, number);
        };
        let (connections, mut cx) = self.connecting(now);
        connections.establish(&mut cx, qp);
        let Some(found) = self.qps.get_mut(qp) else { return self.release(now, number) };
        let (packet, mtu) = (&mut self.packets[number], found.mtu());
        packet.receive = found.responder.accept(packet, op, mtu);
        // Fetching the receive of a write with immediate data delays the completion, not the data.
        let data = if matches!(op, SendOp::WriteImm(..)) { begun } else { ready.max(fetched) };
        let turn = self.cards[to.card].message_turn();
        let data = match turn > Span::ZERO && first {
            true => data.max(found.requester.reserve_begin(now, turn)),
            false => data,
        };
        packet.write_from = found.responder.place_from(data);
        packet.complete_from = ready.max(fetched);
        packet.finishes = finishes;
        self.event_queue.schedule(packet.write_from.max(now), Event::PacketReadyToPlace(number));
    }

    /// Answers a packet that is not the expected one: a repeated one, or one after a loss.
    fn out_of_order(&mut self, now: Time, number: u32, op: SendOp) {
        let packet = &self.packets[number];
        let qp = packet.qp;
        let Some(found) = self.qps.get_mut(qp) else { return };
        match found.responder.out_of_order(packet, op) {
            OutOfOrder::Ignore => {}
            OutOfOrder::Missing(psn) => self.send_control(now, qp, psn, Body::SequenceNak),
            OutOfOrder::Acknowledge(psn) => self.send_control(now, qp, psn, Body::Ack),
            OutOfOrder::Respond => self.schedule_send(now, qp),
        }
    }

    /// Takes a receive for a message and fetches its descriptor; returns when it has arrived. `None` without
    /// a receive.
    fn take_receive(&mut self, now: Time, qp: u32) -> Option<Time> {
        let found = self.qps.get_mut(qp)?;
        let (receives, slots, domain) = match found.parts.srq {
            None => (&mut found.receives, Slots::Receive(qp), found.parts.domain),
            Some(key) => {
                let srq = self.srqs.get_mut(key)?;
                (&mut srq.receives, Slots::SharedReceive(key, qp), srq.domain)
            }
        };
        let (wr_id, sges) = receives.take(now, &mut self.spare)?;
        let max_sge = receives.max_sge();
        let card = &mut self.cards[found.card];
        let fetched = card.fetch(now, card.descriptors.receive(sges.len(), max_sge));
        found.responder.take_receive(TakenReceive { wr_id, sges, slots, domain });
        if let Slots::SharedReceive(key, _) = slots
            && let Some(srq) = self.srqs.get_mut(key)
            && srq.take_limit_passed()
        {
            let context = srq.context;
            self.report_event(context, AsyncEvent::SrqLimitReached { srq: key });
        }
        Some(fetched)
    }
}

/// Placement of packets.
impl Network {
    /// A packet is ready to be placed: it waits for the DMA engine, which writes one packet at a time.
    pub(super) fn on_ready_to_place(&mut self, now: Time, number: u32) {
        let card = self.packets[number].to.card;
        let (begins, retry_at) = self.cards[card].writer.begin(now, number);
        if let Some(at) = retry_at {
            self.event_queue.schedule(at, Event::DmaWriteDone(card as u32));
        }
        if begins {
            self.write(now, number);
        }
    }

    /// The DMA engine has written a packet, and starts the next one.
    pub(super) fn on_dma_write_done(&mut self, now: Time, card: usize) {
        while let Some(number) = self.cards[card].writer.next(now) {
            self.write(now, number);
        }
        if let Some(at) = self.cards[card].writer.next_at() {
            self.event_queue.schedule(at, Event::DmaWriteDone(card as u32));
        }
    }

    /// Writes a packet, which occupies the bus or the NIC memory.
    fn write(&mut self, now: Time, number: u32) {
        let mut extents = std::mem::take(&mut self.extents);
        // Placement checks access later, and refuses the packet there.
        self.find_target(number, &mut extents);
        let packet = &self.packets[number];
        let (qp, PortId { card, port }) = (packet.qp, packet.to);
        let is = |what: fn(SendOp) -> bool| matches!(packet.body, Body::Request(op) if what(op));
        let copied = if is(|op| matches!(op, SendOp::Write(_))) { packet.len } else { 0 };
        let write = Write {
            extents: &extents,
            port,
            from: packet.write_from,
            reads: is(SendOp::is_atomic),
            completes: packet.last && is(completes_there),
        };
        let (from, finishes) = (packet.complete_from, packet.finishes);
        let (end, latency) = self.cards.write(now, card, write, &self.protection);
        let done = if finishes { self.cards[card].transport.finish(end.max(from)) } else { end };
        let data_at = (done + latency).max(from);
        let loopback = self.ports.is_loopback(PortId { card, port });
        let kernel = &mut self.cards[card].kernel;
        let seen = match loopback {
            true => kernel.process_local(data_at, copied),
            false => kernel.process_arrival(data_at, copied),
        };
        let seen = self.qps.get_mut(qp).map_or(seen, |qp| qp.responder.placed_at(seen));
        self.extents = extents;
        self.event_queue.schedule(seen, Event::PacketPlaced(number));
    }

    /// Finds the destination of a packet's data; returns whether all of it is accessible.
    fn find_target(&self, number: u32, extents: &mut Vec<super::protection::Extent>) -> bool {
        let packet = &self.packets[number];
        extents.clear();
        self.qps.get(packet.qp).is_some_and(|qp| qp.target_extents(packet, &self.protection, extents))
    }

    /// Copies a packet's data, or `instead`, to their destination; returns whether all of it is accessible.
    fn scatter(&mut self, number: u32, instead: Option<u64>) -> bool {
        let mut extents = std::mem::take(&mut self.extents);
        let found = self.find_target(number, &mut extents);
        if found {
            let packet = &self.packets[number];
            match instead {
                Some(word) => self.protection.scatter(&extents, 0, 8, &word.to_ne_bytes()),
                None => self.protection.scatter(&extents, packet.offset, packet.total, &packet.data),
            }
        }
        self.extents = extents;
        found
    }

    /// A packet's data are in memory.
    pub(super) fn on_packet_placed(&mut self, now: Time, number: u32) {
        let Packet { qp, psn, body, .. } = self.packets[number];
        let found = self.qps.get(qp);
        let takes = found.is_some_and(|qp| qp.accepts() && !qp.responder.is_refusing());
        match body {
            Body::Request(op) if takes => {
                if let Err(refusal) = self.carry_out(now, number, op) {
                    self.fail_request(now, qp, psn, refusal);
                }
            }
            Body::ReadResponse => self.on_response_placed(now, number, None),
            Body::AtomicResponse(old) => self.on_response_placed(now, number, Some(old)),
            _ => {}
        }
        self.release(now, number);
    }
}

/// The responder's queue pair.
impl Network {
    /// Executes the request of a packet, and acknowledges it.
    fn carry_out(&mut self, now: Time, number: u32, op: SendOp) -> Result<(), RequestError> {
        match op {
            SendOp::Read(remote) => self.answer_read(number, remote)?,
            op if op.is_atomic() => self.carry_out_atomic(number, op)?,
            _ => self.write_data(now, number, op)?,
        }
        let packet = &self.packets[number];
        let qp = packet.qp;
        let Some(found) = self.qps.get_mut(qp) else { return Ok(()) };
        let (port, mtu) = (found.port(), found.mtu());
        match found.responder.on_executed(packet, op, mtu) {
            Acknowledgement::Response => self.schedule_send(now, qp),
            Acknowledgement::Packet(psn) => self.send_control(now, qp, psn, Body::Ack),
            Acknowledgement::Along => self.ports.add_ack(now, port),
        }
        Ok(())
    }

    /// Places the data of a write or a send, and completes its receive at the end.
    fn write_data(&mut self, now: Time, number: u32, op: SendOp) -> Result<(), RequestError> {
        let packet = &self.packets[number];
        let &Packet { qp, to, last, len, total, solicited, .. } = packet;
        let Some(found) = self.qps.get(qp) else { return Ok(()) };
        let domain = found.parts.domain;
        found.responder.check_message(packet, op, (&self.protection, domain))?;
        if !self.scatter(number, None) {
            return Err(Responder::target_is_gone(op));
        }
        if len > 0 {
            self.cards.signal(to.card);
        }
        let mut wc = Wc { byte_len: total as u32, opcode: WcOpcode::Recv, ..Wc::default() };
        match op {
            _ if !last => return Ok(()),
            SendOp::Write(_) => return Ok(()),
            SendOp::WriteImm(_, imm) => (wc.opcode, wc.imm) = (WcOpcode::RecvWriteImm, Some(imm)),
            SendOp::SendImm(imm) => wc.imm = Some(imm),
            SendOp::SendInv(key) => {
                if !self.protection.invalidate(domain, key) {
                    return Err(RequestError::of_invalidation());
                }
                wc.invalidated = Some(key);
            }
            _ => {}
        }
        self.complete_receive(now, qp, wc, solicited);
        Ok(())
    }

    /// Queues the response to a read, if its memory may be read.
    fn answer_read(&mut self, number: u32, remote: RemoteAddr) -> Result<(), RequestError> {
        let packet = &self.packets[number];
        let Some(found) = self.qps.get_mut(packet.qp) else { return Ok(()) };
        let (remote, left) = (remote.offset(packet.offset), packet.total - packet.offset);
        let need = verbs::Access::REMOTE_READ;
        if !self.protection.peer_may_use(found.parts.domain, remote, left, need) {
            return Err(RequestError::access_violation(WcStatus::RemAccessErr));
        }
        found.responder.queue_read_response(packet, remote);
        Ok(())
    }

    /// Carries out an atomic operation, and queues its response.
    fn carry_out_atomic(&mut self, number: u32, op: SendOp) -> Result<(), RequestError> {
        let Packet { qp, psn, to, .. } = self.packets[number];
        let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = op else {
            return Ok(());
        };
        if !remote.addr.is_multiple_of(8) {
            return Err(RequestError::access_violation(WcStatus::RemInvReqErr));
        }
        let mut extents = std::mem::take(&mut self.extents);
        let found = self.find_target(number, &mut extents);
        let extent = extents.first().copied().filter(|_| found);
        self.extents = extents;
        let extent = extent.ok_or(RequestError::access_violation(WcStatus::RemAccessErr))?;
        let change = |old: u64| match op {
            SendOp::CompareSwap { compare, swap, .. } if old == compare => swap,
            SendOp::FetchAdd { add, .. } => old.wrapping_add(add),
            _ => old,
        };
        let old = self.protection.change_word(&extent, change).map_err(RequestError::access_violation)?;
        self.cards.signal(to.card);
        if let Some(found) = self.qps.get_mut(qp) {
            found.responder.queue_atomic_response(psn, old);
        }
        Ok(())
    }

    /// A request fails here: completes its receive with an error, notifies the peer, and ends the connection.
    /// Earlier requests are answered first.
    fn fail_request(&mut self, now: Time, qp: u32, psn: u64, refusal: RequestError) {
        if let Some(status) = refusal.receive {
            self.complete_receive(now, qp, Wc { status, opcode: WcOpcode::Recv, ..Wc::default() }, false);
        }
        let Some(found) = self.qps.get_mut(qp) else { return };
        match found.responder.queue_refusal(psn, refusal) {
            true => self.schedule_send(now, qp),
            false => self.reject_request(now, qp, psn, refusal),
        }
    }

    /// Notifies the peer that its request failed, and ends the connection.
    pub(super) fn reject_request(&mut self, now: Time, qp: u32, psn: u64, refusal: RequestError) {
        self.send_control(now, qp, psn, Body::Nak(refusal.status));
        let Some(found) = self.qps.get_mut(qp) else { return };
        found.responder.failed(psn, refusal.status);
        let context = found.parts.context;
        if refusal.is_access_violation {
            self.report_event(context, AsyncEvent::QpAccessError { qp_num: qp });
        }
        self.fail(now, qp);
    }
}

/// The requester's queue pair.
impl Network {
    /// An acknowledgement, positive or negative, has arrived.
    fn on_acknowledgement(&mut self, now: Time, number: u32) {
        let Packet { qp, psn, body, from, .. } = self.packets[number];
        let known = self
            .qps
            .get_mut(qp)
            .filter(|qp| qp.state() == QpState::ReadyToSend && qp.is_peer_card(from.card));
        let Some(found) = known.filter(|qp| qp.requester.has_sent(psn)) else { return };
        let requester = &mut found.requester;
        match body {
            Body::Ack if requester.acknowledge(now, psn) => {
                let oldest = requester.oldest();
                self.advance(now, qp);
                // Further requests may begin in place of the completed ones.
                let more = |requester: &super::requester::Requester| {
                    requester.oldest() > oldest && requester.has_more()
                };
                if self.qps.get(qp).is_some_and(|qp| more(&qp.requester)) {
                    self.schedule_send(now, qp);
                }
            }
            Body::Nak(status) => {
                requester.reject(psn, status);
                self.advance(now, qp);
            }
            Body::RnrNak(pause) => match requester.receiver_not_ready(now, psn) {
                Rnr::Stale => {}
                Rnr::Pause => self.event_queue.schedule(now + pause, Event::RnrPauseEnded(qp)),
                Rnr::Failed => self.advance(now, qp),
            },
            Body::SequenceNak if requester.on_missing(now, psn) => self.schedule_send(now, qp),
            _ => {}
        }
    }

    /// The pause after a receiver-not-ready answer has ended.
    pub(super) fn on_rnr_pause_ended(&mut self, now: Time, qp: u32) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.requester.resume(now);
            self.schedule_send(now, qp);
        }
    }

    /// A packet of a response has arrived.
    fn on_response(&mut self, now: Time, number: u32) {
        let packet = &mut self.packets[number];
        let qp = packet.qp;
        let Some(found) = self.qps.get_mut(qp) else { return self.release(now, number) };
        let known = found.is_peer_card(packet.from.card) && found.state() == QpState::ReadyToSend;
        let card = &mut self.cards[found.card];
        let head = card.works_from(now, packet.head_at);
        let [ready, _] = card.transport.receive(head, PacketWork::default());
        match found.requester.on_response(now, packet.psn, known) {
            Response::Take(request) => {
                packet.request = request;
                packet.write_from = found.responder.place_from(ready);
                self.event_queue.schedule(packet.write_from.max(now), Event::PacketReadyToPlace(number));
            }
            Response::Drop { resend } => {
                if resend {
                    self.schedule_send(now, qp);
                }
                self.release(now, number);
            }
        }
    }

    /// A packet of a response is in memory; `old` is the result of an atomic.
    fn on_response_placed(&mut self, now: Time, number: u32, old: Option<u64>) {
        let Packet { qp, psn, request, to, .. } = self.packets[number];
        let found = self.qps.get(qp).filter(|qp| qp.state() == QpState::ReadyToSend);
        if !found.is_some_and(|qp| qp.requester.awaits(request)) {
            return;
        }
        let placed = self.scatter(number, old);
        self.cards.signal(to.card);
        let Some(found) = self.qps.get_mut(qp) else { return };
        match found.requester.on_response_placed(request, psn, placed) {
            ResponseProgress::Part => {}
            ResponseProgress::Failed => self.advance(now, qp),
            ResponseProgress::Whole => {
                self.advance(now, qp);
                self.schedule_send(now, qp);
            }
        }
    }

    /// Checks whether answers are overdue, and retransmits the requests that wait for them.
    pub(super) fn on_answer_check(&mut self, now: Time, qp: u32) {
        let Some(found) = self.qps.get_mut(qp) else { return };
        let alive = found.state() == QpState::ReadyToSend && !self.cards[found.card].dead;
        match found.requester.check_answers(now, &self.rules, alive) {
            AnswerStatus::Idle => {}
            AnswerStatus::CheckAt(at) => self.event_queue.schedule(at, Event::AnswerCheck(qp)),
            AnswerStatus::Failed => self.advance(now, qp),
            AnswerStatus::Resend(at) => {
                self.event_queue.schedule(at, Event::AnswerCheck(qp));
                self.schedule_send(now, qp);
            }
        }
    }
}
