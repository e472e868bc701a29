//! The responder: requests of the peer, packet by packet. A packet is taken if it is the next one; it is looked at and
//! placed in its turn, and what it asks for is done when its data are in memory.

use std::sync::atomic::Ordering;

use host::{Span, Time};
use verbs::{Access, AsyncEvent, MemoryKind, RemoteAddr, SendOp, Wc, WcOpcode, WcStatus};

use super::event::Event;
use super::memory::Piece;
use super::packet::{Body, Packet};
use super::pair::{Answer, AnswerKind, Taken};
use super::send::has_address;
use super::state::State;
use super::tables::Slots;
use crate::parts::transport::Extra;

/// Every so many packets of a long message are acknowledged by a packet of their own; it tells the requester that it
/// need not be impatient.
const ACK_EVERY: u64 = 16;
/// Results of atomics that are kept for a peer that asks again.
const ATOMICS_KEPT: usize = 128;

/// How a request failed here.
pub(super) struct Failure {
    /// What the peer is told.
    pub(super) status: WcStatus,
    /// What the receive that it took is completed with, if it took one.
    receive: Option<WcStatus>,
    /// Whether it is the peer's fault, which this side's program then hears of.
    forbidden: bool,
}

impl Failure {
    /// The peer did what it may not.
    pub(super) fn forbidden(status: WcStatus) -> Self {
        Self { status, receive: None, forbidden: true }
    }

    fn of_receive(receive: WcStatus, status: WcStatus) -> Self {
        Self { status, receive: Some(receive), forbidden: false }
    }
}

/// The place in a peer's memory that a write's packet goes to.
fn target_of(op: SendOp) -> Option<RemoteAddr> {
    match op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => Some(remote),
        _ => None,
    }
}

/// Whether a request of this kind ends with a completion at the peer.
fn takes_receive(op: SendOp) -> bool {
    matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(..))
}

impl State {
    /// A request's packet has arrived.
    pub(super) fn request_arrives(&mut self, now: Time, number: u32, op: SendOp) {
        let Packet { qp, psn, first, last, from, offset, total, .. } = self.packets[number];
        let Some(pair) = self.pairs.get_mut(qp) else { return self.release(now, number) };
        let mtu = pair.mtu;
        let known = pair.accepts() && pair.peer.is_some_and(|peer| peer.card == from.card);
        if !known || pair.responder.refusing {
            return self.release(now, number);
        }
        let card = pair.card;
        if psn != pair.responder.expected {
            self.cards[card].transport.receive(now, Extra::default());
            self.out_of_order(now, number, op);
            return self.release(now, number);
        }
        let takes = match op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => first,
            SendOp::WriteImm(..) => last,
            _ => false,
        };
        let Packet { head_at, merged, .. } = self.packets[number];
        let head = if self.cards[card].transport.whole { now } else { head_at };
        // What tells of a write that came within its descriptor comes along with it.
        let takes_time = takes && !(merged && matches!(op, SendOp::WriteImm(..)));
        let names_memory = first && has_address(Body::Request(op));
        let extra = Extra { takes: takes_time, names_memory, ..Extra::default() };
        let [begun, ready] = self.cards[card].transport.receive(head, extra);
        let Some(fetched) = (if takes { self.take_receive(head, qp) } else { Some(head) }) else {
            if let Some(pair) = self.pairs.get_mut(qp) {
                pair.responder.gap = true;
            }
            self.say(now, qp, psn, Body::NotReady);
            return self.release(now, number);
        };
        self.establish(qp);
        let Some(pair) = self.pairs.get_mut(qp) else { return self.release(now, number) };
        let r = &mut pair.responder;
        r.gap = false;
        r.expected += match op {
            SendOp::Read(_) => (total - offset).div_ceil(mtu).max(1),
            _ => 1,
        };
        self.packets[number].receive = (r.taken_first + r.taken.len() as u64).saturating_sub(1);
        // The receive that a write with immediate data takes holds up the completion, not the data.
        let data = if matches!(op, SendOp::WriteImm(..)) { begun } else { ready.max(fetched) };
        r.place_from = r.place_from.max(data);
        let from = r.place_from;
        self.packets[number].write_from = from;
        self.packets[number].complete_from = ready.max(fetched);
        self.at(from.max(now), Event::Place(number));
    }

    /// A packet that is not the next one: one is missing before it, or it has been here before.
    fn out_of_order(&mut self, now: Time, number: u32, op: SendOp) {
        let Packet { qp, psn, last, offset, total, .. } = self.packets[number];
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let r = &mut pair.responder;
        if psn > r.expected {
            let expected = r.expected;
            if !std::mem::replace(&mut r.gap, true) {
                self.say(now, qp, expected, Body::Missing);
            }
            return;
        }
        let done = r.done;
        match op {
            _ if psn >= done => {}
            SendOp::Read(remote) => {
                // The peer goes on from here: what else is to be sent, it will ask for again.
                r.answers.clear();
                let what = AnswerKind::Memory { remote: remote.offset(offset), offset, total };
                r.answers.push_back(Answer { psn, what });
                self.want_to_send(now, qp);
            }
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                if let Some(&(_, old)) = r.atomics.iter().find(|(known, _)| *known == psn) {
                    r.answers.push_back(Answer { psn, what: AnswerKind::Old(old) });
                    self.want_to_send(now, qp);
                }
            }
            _ if last => self.say(now, qp, done, Body::Ack),
            _ => {}
        }
    }

    /// Takes a receive for a message and fetches its descriptor; when that is there. `None` without a receive.
    fn take_receive(&mut self, now: Time, qp: u32) -> Option<Time> {
        let spare = self.spare.pop().unwrap_or_default();
        let pair = self.pairs.get_mut(qp)?;
        let (taken, limited) = match pair.srq {
            None => {
                let found = pair.receives.has_one(now).then(|| pair.receives.pop(spare))??;
                (
                    Taken { wr_id: found.0, sges: found.1, slots: Slots::Receive(qp), domain: pair.domain },
                    None,
                )
            }
            Some(key) => {
                let srq = self.shared.get_mut(key)?;
                let found = srq.receives.has_one(now).then(|| srq.receives.pop(spare))??;
                let limited = srq.receives.len() < u64::from(srq.limit);
                if limited {
                    srq.limit = 0;
                }
                let (slots, domain) = (Slots::SharedReceive(key), srq.domain);
                let event = limited.then_some((srq.context, AsyncEvent::SrqLimitReached { srq: key }));
                (Taken { wr_id: found.0, sges: found.1, slots, domain }, event)
            }
        };
        let most =
            pair.srq.and_then(|key| self.shared.get(key)).map_or(pair.cap.max_recv_sge, |srq| srq.max_sge);
        let c = &mut self.cards[pair.card];
        let bytes = c.descriptors.receive(taken.sges.len(), most);
        let pushed = c.descriptors.pushed;
        let fetched = if pushed { now } else { c.bus.read(now, bytes) + c.dma.read_latency };
        pair.responder.taken.push_back(taken);
        if let Some((context, event)) = limited {
            self.happens(context, event);
        }
        Some(fetched)
    }

    /// A packet is ready to be placed: it waits for the DMA engine, which writes one packet at a time.
    pub(super) fn place(&mut self, now: Time, number: u32) {
        let card = self.packets[number].to.card;
        let c = &mut self.cards[card];
        let wait = c.written_at > now || !c.writes.is_empty();
        if wait {
            c.writes.push_back(number);
            if c.writes.len() == 1 {
                let at = c.written_at;
                self.at(at, Event::WriteOn(card as u32));
            }
            return;
        }
        self.write(now, number);
    }

    /// The DMA engine has written a packet: the next one.
    pub(super) fn write_on(&mut self, now: Time, card: usize) {
        while self.cards[card].written_at <= now
            && let Some(number) = self.cards[card].writes.pop_front()
        {
            self.write(now, number);
        }
        let c = &self.cards[card];
        if !c.writes.is_empty() {
            let at = c.written_at;
            self.at(at, Event::WriteOn(card as u32));
        }
    }

    /// Writes a packet: takes the bus or the NIC memory. What had come in was written meanwhile, if the engine had nothing
    /// else to write: what is behind the last boundary is left.
    fn write(&mut self, now: Time, number: u32) {
        let mut pieces = std::mem::take(&mut self.pieces);
        // Memory that may not be used is refused when the packet is placed.
        self.find_target(number, &mut pieces);
        let Packet { to, qp, body, write_from, .. } = self.packets[number];
        let atomic = matches!(body, Body::Request(SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }));
        let slowness = self.rouse(to.card);
        let (mut end, mut latency) = (write_from.max(self.cards[to.card].written_at).min(now), Span::ZERO);
        for piece in &pieces {
            let place = self.place_in_pages(piece);
            let c = &mut self.cards[to.card];
            if piece.kind == MemoryKind::Nic {
                let rest = c.memory.time(piece.len.min(c.bus.boundary_bytes));
                end = c.memory.access(end, piece.len, to.port).max(now + rest);
                continue;
            }
            for _ in 0..c.translation.touch(piece.region, place, piece.len) {
                end = c.bus.read(end, c.translation.entry_bytes) + c.translation.miss;
            }
            if atomic {
                end = c.bus.read(end, piece.len) + c.dma.read_latency;
            }
            let rest = c.bus.time_of_write(piece.len.min(c.bus.boundary_bytes));
            let shared = self.chipsets[c.chipset].write(end, piece.len, slowness);
            end = c.bus.write(end, piece.len).max(now + rest).max(shared);
            latency = c.dma.write_latency;
        }
        self.pieces = pieces;
        if self.packets[number].last && matches!(body, Body::Request(op) if takes_receive(op)) {
            // The completion goes right behind the data, whatever these were written to.
            let c = &self.cards[to.card];
            latency = c.completion.latency(&c.dma);
        }
        self.cards[to.card].written_at = end;
        let mut seen = (end + latency).max(self.packets[number].complete_from);
        if let Some(pair) = self.pairs.get_mut(qp) {
            pair.responder.placed_at = pair.responder.placed_at.max(seen);
            seen = pair.responder.placed_at;
        }
        self.at(seen, Event::Placed(number));
    }

    /// Finds the memory that a packet's data go to; whether all of it may be used.
    pub(super) fn find_target(&self, number: u32, pieces: &mut Vec<Piece>) -> bool {
        let packet = &self.packets[number];
        pieces.clear();
        let Some(pair) = self.pairs.get(packet.qp).filter(|pair| pair.accepts()) else { return false };
        let range = (packet.offset, packet.len);
        match packet.body {
            Body::Request(SendOp::Write(remote) | SendOp::WriteImm(remote, _)) => {
                let need = Access::REMOTE_WRITE;
                self.peer_pieces(pair.domain, remote.offset(packet.offset), packet.len, need, pieces)
            }
            Body::Request(SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) => {
                self.peer_pieces(pair.domain, remote, 8, Access::REMOTE_ATOMIC, pieces)
            }
            Body::Request(SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_)) => {
                let index = packet.receive.checked_sub(pair.responder.taken_first);
                let taken = index.and_then(|index| pair.responder.taken.get(index as usize));
                taken.is_some_and(|t| self.own_pieces(t.domain, &t.sges, range, Access::LOCAL_WRITE, pieces))
            }
            Body::Fetched | Body::Old(_) => {
                let wqe = pair.send.at(packet.request, pair.cap.max_send_wr);
                self.own_pieces(pair.domain, &wqe.sges, range, Access::LOCAL_WRITE, pieces)
            }
            _ => true,
        }
    }

    /// A packet's data are in memory.
    pub(super) fn placed(&mut self, now: Time, number: u32) {
        let qp = self.packets[number].qp;
        let alive = self.pairs.get(qp).is_some_and(|pair| pair.accepts() && !pair.responder.refusing);
        match self.packets[number].body {
            Body::Request(op) if alive => {
                if let Err(failure) = self.carry_out(now, number, op) {
                    let psn = self.packets[number].psn;
                    self.fail_request(now, qp, psn, failure);
                }
            }
            Body::Fetched | Body::Old(_) => self.answer_placed(now, number),
            _ => {}
        }
        self.release(now, number);
    }

    /// Does what a packet asks for.
    fn carry_out(&mut self, now: Time, number: u32, op: SendOp) -> Result<(), Failure> {
        match op {
            SendOp::Read(remote) => self.answer_read(now, number, remote)?,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => self.carry_out_atomic(now, number, op)?,
            _ => self.write_data(now, number, op)?,
        }
        let Packet { qp, psn, last, offset, total, .. } = self.packets[number];
        let Some(pair) = self.pairs.get_mut(qp) else { return Ok(()) };
        let is_read = matches!(op, SendOp::Read(_));
        let packets = if is_read { (total - offset).div_ceil(pair.mtu).max(1) } else { 1 };
        let r = &mut pair.responder;
        r.done = r.done.max(psn + packets);
        let done = r.done;
        match op {
            SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {}
            _ if last || psn % ACK_EVERY == ACK_EVERY - 1 => self.say(now, qp, done, Body::Ack),
            _ => self.add_ack(now, qp),
        }
        Ok(())
    }

    /// The data of a write or a send, and at its end what its receive's completion says.
    fn write_data(&mut self, now: Time, number: u32, op: SendOp) -> Result<(), Failure> {
        self.check_message(number, op)?;
        let mut pieces = std::mem::take(&mut self.pieces);
        let found = self.find_target(number, &mut pieces);
        let packet = &self.packets[number];
        if found {
            self.scatter(&pieces, packet.offset, packet.total, &packet.data);
        }
        let (qp, card, last, any) = (packet.qp, packet.to.card, packet.last, packet.len > 0);
        let (total, solicited) = (packet.total, packet.solicited);
        self.pieces = pieces;
        if !found {
            return Err(match target_of(op) {
                Some(_) => Failure::forbidden(WcStatus::RemAccessErr),
                None => Failure::of_receive(WcStatus::LocProtErr, WcStatus::RemOpErr),
            });
        }
        if any {
            self.signal(card);
        }
        let mut wc = Wc { byte_len: total as u32, opcode: WcOpcode::Recv, ..Wc::default() };
        match op {
            _ if !last => return Ok(()),
            SendOp::Write(_) => return Ok(()),
            SendOp::WriteImm(_, imm) => (wc.opcode, wc.imm) = (WcOpcode::RecvWriteImm, Some(imm)),
            SendOp::SendImm(imm) => wc.imm = Some(imm),
            SendOp::SendInv(key) => {
                self.invalidate(qp, key)?;
                wc.invalidated = Some(key);
            }
            _ => {}
        }
        self.complete_receive(now, qp, wc, solicited);
        Ok(())
    }

    /// The first packet of a message is where all of the message is checked: nothing of a bad one is written.
    fn check_message(&self, number: u32, op: SendOp) -> Result<(), Failure> {
        let packet = &self.packets[number];
        let Some(pair) = self.pairs.get(packet.qp).filter(|_| packet.first) else { return Ok(()) };
        if let Some(remote) = target_of(op) {
            let allowed = self.peer_may_use(pair.domain, remote, packet.total, Access::REMOTE_WRITE);
            return if allowed { Ok(()) } else { Err(Failure::forbidden(WcStatus::RemAccessErr)) };
        }
        let index = packet.receive.saturating_sub(pair.responder.taken_first) as usize;
        let Some(taken) = pair.responder.taken.get(index) else { return Ok(()) };
        let room: u64 = taken.sges.iter().map(|sge| u64::from(sge.length)).sum();
        if packet.total > room {
            return Err(Failure::of_receive(WcStatus::LocLenErr, WcStatus::RemInvReqErr));
        }
        if !self.may_use(taken.domain, &taken.sges, Access::LOCAL_WRITE) {
            return Err(Failure::of_receive(WcStatus::LocProtErr, WcStatus::RemOpErr));
        }
        Ok(())
    }

    fn invalidate(&mut self, qp: u32, key: u32) -> Result<(), Failure> {
        let domain = self.pairs.get(qp).map(|pair| pair.domain);
        let region = self.regions.get_mut(key).filter(|r| Some(r.domain) == domain && !r.invalidated);
        match region {
            Some(region) => {
                region.invalidated = true;
                Ok(())
            }
            None => Err(Failure {
                receive: Some(WcStatus::LocProtErr),
                ..Failure::forbidden(WcStatus::RemAccessErr)
            }),
        }
    }

    fn answer_read(&mut self, now: Time, number: u32, remote: RemoteAddr) -> Result<(), Failure> {
        let Packet { qp, psn, offset, total, .. } = self.packets[number];
        let Some(pair) = self.pairs.get(qp) else { return Ok(()) };
        let remote = remote.offset(offset);
        if !self.peer_may_use(pair.domain, remote, total - offset, Access::REMOTE_READ) {
            return Err(Failure::forbidden(WcStatus::RemAccessErr));
        }
        self.answer(now, qp, psn, AnswerKind::Memory { remote, offset, total });
        Ok(())
    }

    fn answer(&mut self, now: Time, qp: u32, psn: u64, what: AnswerKind) {
        if let Some(pair) = self.pairs.get_mut(qp) {
            pair.responder.answers.push_back(Answer { psn, what });
        }
        self.want_to_send(now, qp);
    }

    fn carry_out_atomic(&mut self, now: Time, number: u32, op: SendOp) -> Result<(), Failure> {
        let Packet { qp, psn, to, .. } = self.packets[number];
        let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = op else {
            return Ok(());
        };
        if !remote.addr.is_multiple_of(8) {
            return Err(Failure::forbidden(WcStatus::RemInvReqErr));
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let found = self.find_target(number, &mut pieces);
        let piece = pieces.first().copied();
        self.pieces = pieces;
        let region = piece.filter(|_| found).and_then(|piece| self.regions.get(piece.region));
        let (Some(piece), Some(region)) = (piece, region) else {
            return Err(Failure::forbidden(WcStatus::RemAccessErr));
        };
        // An address that is aligned may lie in memory that is not, where its region is zero-based.
        let word =
            region.buf.word(piece.at as usize).map_err(|_| Failure::forbidden(WcStatus::RemInvReqErr))?;
        let change = |old: u64| match op {
            SendOp::CompareSwap { compare, swap, .. } if old == compare => swap,
            SendOp::FetchAdd { add, .. } => old.wrapping_add(add),
            _ => old,
        };
        let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        let old = changed.unwrap_or_else(|old| old);
        self.signal(to.card);
        if let Some(pair) = self.pairs.get_mut(qp) {
            let kept = &mut pair.responder.atomics;
            if kept.len() == ATOMICS_KEPT {
                kept.pop_front();
            }
            kept.push_back((psn, old));
        }
        self.answer(now, qp, psn, AnswerKind::Old(old));
        Ok(())
    }

    /// A request fails here: its receive says so, the peer is told, and the connection is over. What was asked before is
    /// answered first.
    pub(super) fn fail_request(&mut self, now: Time, qp: u32, psn: u64, failure: Failure) {
        if let Some(status) = failure.receive {
            self.complete_receive(now, qp, Wc { status, opcode: WcOpcode::Recv, ..Wc::default() }, false);
        }
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let Failure { status, forbidden, .. } = failure;
        if pair.responder.answers.is_empty() {
            return self.refuse(now, qp, psn, status, forbidden);
        }
        pair.responder.refusing = true;
        self.answer(now, qp, psn, AnswerKind::Refusal { status, forbidden });
    }

    /// Tells the peer that its request failed, and ends the connection.
    pub(super) fn refuse(&mut self, now: Time, qp: u32, psn: u64, status: WcStatus, forbidden: bool) {
        self.say(now, qp, psn, Body::Nak(status));
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        pair.responder.nak = Some((psn, status));
        let context = pair.context;
        if forbidden {
            self.happens(context, AsyncEvent::QpAccessError { qp_num: qp });
        }
        self.fail(now, qp);
    }
}
