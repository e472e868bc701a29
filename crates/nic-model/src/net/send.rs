//! The sending half of a card: which packet is next, reading its data, the transport engine.
//!
//! Ports take turns by packets, queue pairs of one port by messages: the engine finishes a message before it turns to
//! another connection of the same port. One packet is read at a time, and only so many are read ahead of a wire.

use host::{Span, Time};
use verbs::{Access, MemoryKind, QpState, RemoteAddr, SendOp, WcStatus};

use super::event::Event;
use super::memory::{Piece, moved};
use super::packet::{Body, Packet, PortId};
use super::pair::{Answer, AnswerKind, Pair};
use super::state::State;
use crate::parts::transport::Extra;

/// A packet to send, where its data are, and whether it is its message's last.
type Next = (Packet, Source, bool);

/// Where a packet's data come from.
#[derive(Clone, Copy)]
enum Source {
    Nowhere,
    /// The pieces of the request with this number.
    Request(u64),
    /// Memory that the peer named.
    Peer(RemoteAddr),
}

impl State {
    /// Whether a write with immediate data is a write and a message behind it.
    fn splits_notice(&self) -> bool {
        self.params.api.write_imm_requests == 2.0
    }

    /// Puts a queue pair among its port's flows, and lets the card send.
    pub(super) fn want_to_send(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        let card = pair.card;
        if !pair.flows {
            pair.flows = true;
            let c = &mut self.cards[card];
            let lane = c.lane_of(pair.port);
            c.ports[lane].flows.push_back(qp);
        }
        self.kick(now, card);
    }

    /// Sends as long as there is something to send, the engine is free and there is room before a wire.
    pub(super) fn kick(&mut self, now: Time, card: usize) {
        loop {
            let c = &self.cards[card];
            if c.dead || c.reading {
                return;
            }
            let (ports, turn) = (c.ports.len(), c.turn);
            let mut lanes = (0..ports).map(|i| (turn + i) % ports);
            let begun = lanes.any(|port| self.send_from(now, PortId { card, port }));
            if !begun {
                return;
            }
        }
    }

    /// Begins the next packet of a port; whether there is one.
    fn send_from(&mut self, now: Time, port: PortId) -> bool {
        while let Some(&qp) = self.cards[port.card].ports[port.port].flows.front() {
            let way = self.pairs.get(qp).map_or(port.port, |pair| pair.port);
            if self.cards[port.card].ports[way].loading >= self.params.link.send_packets as usize {
                return false;
            }
            match self.next_packet(now, qp) {
                None => {
                    self.cards[port.card].ports[port.port].flows.pop_front();
                    if let Some(pair) = self.pairs.get_mut(qp) {
                        pair.flows = false;
                    }
                }
                Some((packet, source, ends)) => {
                    let flows = &mut self.cards[port.card].ports[port.port].flows;
                    if ends && flows.front() == Some(&qp) {
                        flows.rotate_left(1);
                    }
                    if self.read(now, packet.from, qp, packet, source) {
                        self.cards[port.card].turn = port.port + 1;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// What a queue pair sends next: answers to its peer before requests of its own.
    fn next_packet(&mut self, now: Time, qp: u32) -> Option<Next> {
        let pair = self.pairs.get_mut(qp)?;
        if !pair.accepts() {
            return None;
        }
        let peer = pair.peer?;
        let from = PortId { card: pair.card, port: pair.port };
        let to = PortId { card: peer.card, port: pair.port };
        let base = Packet { from, to, qp: peer.qp, ..Packet::default() };
        if let Some(answer) = pair.responder.answers.pop_front() {
            if let AnswerKind::Refusal { status, forbidden } = answer.what {
                self.refuse(now, qp, answer.psn, status, forbidden);
                return None;
            }
            return next_answer(pair, answer, base);
        }
        self.next_of_request(now, qp, base)
    }

    fn next_of_request(&mut self, now: Time, qp: u32, base: Packet) -> Option<Next> {
        loop {
            let pair = self.pairs.get_mut(qp)?;
            let (s, depth) = (&mut pair.send, pair.cap.max_send_wr);
            if pair.state != QpState::ReadyToSend || s.held || s.next >= s.fetched {
                return None;
            }
            let (number, acked) = (s.next, s.acked);
            if s.at(number, depth).is_through(acked) {
                (s.next, s.packet) = (number + 1, 0);
                self.want_descriptor(qp);
                continue;
            }
            // Behind a request that failed nothing begins; what is before it may have to be sent again.
            let wqe = s.at(number, depth);
            let begins = wqe.psn.is_none();
            if s.halted && (begins || wqe.failed.is_some()) {
                return None;
            }
            if begins && !self.begin_request(now, qp, number) {
                return None;
            }
            let split = self.splits_notice();
            let pair = self.pairs.get_mut(qp)?;
            let card = pair.card;
            let (packet, source, ends) = packet_of(pair, split, number, Packet { begins, ..base });
            pair.send.progress = now;
            if ends {
                (pair.send.next, pair.send.packet) = (number + 1, 0);
                self.want_descriptor(qp);
                self.fetch(now, card);
            }
            self.expect_answer(now, qp);
            return Some((packet, source, ends));
        }
    }

    /// Looks whether a request may begin, and gives it its packets' numbers.
    fn begin_request(&mut self, now: Time, qp: u32, number: u64) -> bool {
        let Some(pair) = self.pairs.get(qp) else { return false };
        let wqe = pair.send.at(number, pair.cap.max_send_wr);
        let reads = pair.send.reads.len();
        // Those begun before it and not completed.
        let begun = number - pair.send.head;
        let full = begun >= self.params.transport.begun_requests as u64;
        if full || (wqe.fence && reads > 0) || (wqe.fetches() && reads >= pair.reads_max) {
            return false;
        }
        let need = if wqe.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
        let atomic = wqe.fetches() && !matches!(wqe.op, Some(SendOp::Read(_)));
        let wrong = if atomic && wqe.len != 8 {
            Some(WcStatus::LocLenErr)
        } else if self.may_use(pair.domain, &wqe.sges, need) {
            None
        } else {
            Some(WcStatus::LocProtErr)
        };
        let split = self.splits_notice();
        let Some(pair) = self.pairs.get_mut(qp) else { return false };
        let (psn, depth, mtu) = (pair.send.psn, pair.cap.max_send_wr, pair.mtu);
        let wqe = pair.send.at_mut(number, depth);
        if wrong.is_some() {
            wqe.failed = wrong;
            pair.send.halted = true;
            self.advance(now, qp);
            return false;
        }
        let notice = u64::from(split && matches!(wqe.op, Some(SendOp::WriteImm(..))));
        let packets = if atomic { 1 } else { wqe.len.div_ceil(mtu).max(1) } + notice;
        (wqe.psn, wqe.packets) = (Some(psn), packets);
        let fetches = wqe.fetches();
        pair.send.psn += packets;
        pair.send.packet = 0;
        if fetches {
            pair.send.reads.push_back(number);
        }
        true
    }

    /// Reads a packet's data; whether it could. It goes on when they are there.
    fn read(&mut self, now: Time, port: PortId, qp: u32, mut packet: Packet, source: Source) -> bool {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let found = self.find_source(qp, &packet, source, &mut pieces);
        if found {
            let merges = |op| self.cards[port.card].descriptors.merges(op, packet.total);
            packet.merged = matches!(packet.body, Body::Request(op) if merges(op));
            packet.pieces = pieces.len() as u64;
            let packet_first = packet.first;
            let read_from = if packet.merged { 0 } else { pieces.len() };
            let mut data = self.packets.data();
            self.gather(&pieces, packet.offset, packet.total, &mut data);
            if let (Source::Request(number), Some(pair)) = (source, self.pairs.get(qp)) {
                let inline = &pair.send.at(number, pair.cap.max_send_wr).inline;
                for (begin, end) in moved(self.hole, packet.offset, packet.len, packet.total) {
                    data.extend_from_slice(inline.get(begin as usize..end as usize).unwrap_or(&[]));
                }
            }
            packet.data = data;
            let (end, loaded) = self.reading_time(now, port, &pieces[..read_from], packet_first);
            let c = &mut self.cards[port.card];
            c.loaded_at = c.loaded_at.max(loaded);
            c.ports[port.port].loading += 1;
            c.reading = end > now;
            let (loaded, reading) = (c.loaded_at, c.reading);
            let number = self.packets.insert(packet);
            self.at(loaded, Event::Loaded(number));
            if reading {
                self.at(end, Event::ReadOn(port.card as u32));
            }
        } else {
            self.source_is_gone(now, qp, &packet, source);
        }
        self.pieces = pieces;
        found
    }

    fn find_source(&self, qp: u32, packet: &Packet, source: Source, pieces: &mut Vec<Piece>) -> bool {
        let Some(pair) = self.pairs.get(qp) else { return false };
        match source {
            Source::Nowhere => true,
            Source::Request(number) => {
                let wqe = pair.send.at(number, pair.cap.max_send_wr);
                let range = (packet.offset, packet.len);
                self.own_pieces(pair.domain, &wqe.sges, range, Access::empty(), pieces)
            }
            Source::Peer(remote) => {
                self.peer_pieces(pair.domain, remote, packet.len, Access::REMOTE_READ, pieces)
            }
        }
    }

    /// Memory was deregistered in the middle of a message.
    fn source_is_gone(&mut self, now: Time, qp: u32, packet: &Packet, source: Source) {
        let Some(pair) = self.pairs.get_mut(qp) else { return };
        match source {
            Source::Request(number) => {
                let depth = pair.cap.max_send_wr;
                pair.send.at_mut(number, depth).failed = Some(WcStatus::LocProtErr);
                pair.send.halted = true;
                self.advance(now, qp);
            }
            _ => self.refuse(now, qp, packet.psn, WcStatus::RemAccessErr, true),
        }
    }

    /// Takes the bus, the DMA engine and the NIC memory for these pieces: when the engine can read on, and when the
    /// data are there. Within a message it reads on while data are still to come; a message's first read takes its time to get
    /// under way.
    fn reading_time(&mut self, now: Time, port: PortId, pieces: &[Piece], first: bool) -> (Time, Time) {
        let (mut at, mut latency, slowness) = (now, Span::ZERO, self.rouse(port.card));
        if first {
            let from_host = |piece: &&Piece| piece.kind == MemoryKind::Host;
            let bytes = pieces.first().filter(from_host).map_or(0, |piece| piece.len);
            let c = &mut self.cards[port.card];
            at = c.dma.begin(now, bytes, &c.bus);
        }
        for (i, piece) in pieces.iter().enumerate() {
            let place = self.place_in_pages(piece);
            let c = &mut self.cards[port.card];
            match piece.kind {
                MemoryKind::Host => {
                    if i == 0 {
                        at = at + c.dma.turn_to(port.port);
                    }
                    let missing = c.translation.touch(piece.region, place, piece.len);
                    for _ in 0..missing {
                        at = c.bus.read(at, c.translation.entry_bytes) + c.translation.miss;
                    }
                    let shared = self.chipsets[c.chipset].read(at, piece.len, slowness);
                    at = c.dma.read(at, piece.len, &mut c.bus).max(shared);
                    latency = latency.max(c.dma.read_latency);
                }
                MemoryKind::Nic => {
                    at = c.memory.access(at, piece.len, port.port);
                    latency = latency.max(c.memory.latency);
                }
            }
        }
        let from_host = pieces.first().is_some_and(|piece| piece.kind == MemoryKind::Host);
        let begins = if first && from_host { self.cards[port.card].dma.message } else { Span::ZERO };
        (at + begins, at + latency.max(begins))
    }

    /// The DMA engine has read a packet.
    pub(super) fn read_on(&mut self, now: Time, card: usize) {
        self.cards[card].reading = false;
        self.kick(now, card);
    }

    /// A packet has its data: it goes through the transport engine, and to its port.
    pub(super) fn loaded(&mut self, now: Time, number: u32) {
        let packet = &mut self.packets[number];
        let c = &mut self.cards[packet.from.card];
        if c.dead {
            return self.release(now, number);
        }
        let names_memory = packet.first && has_address(packet.body);
        let extra = Extra { pieces: packet.pieces, begins: packet.begins, names_memory, ..Extra::default() };
        let ready = c.transport.send(now, extra);
        if packet.from.port == c.way_back() {
            packet.credit = true;
            packet.head_at = ready;
            return self.at(ready, Event::Arrive(number));
        }
        packet.ready_at = c.transport.hand_over(ready, packet.len);
        let port = packet.from;
        let link = &c.ports[port.port].link;
        packet.wire_bytes = link.packet(packet.len, names_memory);
        c.ports[port.port].wire.push_back(number);
        self.pump(now, port);
    }
}

/// Whether a packet's first header has a further one that says where data are.
pub(super) fn has_address(body: Body) -> bool {
    !matches!(body, Body::Request(SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_)) | Body::Fetched)
}

/// The next packet of an answer; what is left of it goes back to the front.
fn next_answer(pair: &mut Pair, answer: Answer, base: Packet) -> Option<Next> {
    let base = Packet { psn: answer.psn, begins: false, ..base };
    match answer.what {
        AnswerKind::Refusal { .. } => None,
        AnswerKind::Old(old) => {
            let packet = Packet { body: Body::Old(old), first: true, last: true, len: 8, total: 8, ..base };
            Some((packet, Source::Nowhere, true))
        }
        AnswerKind::Memory { remote, offset, total } => {
            let len = pair.mtu.min(total - offset);
            let (first, last) = (offset == 0, offset + len == total);
            if !last {
                let (remote, offset) = (remote.offset(len), offset + len);
                let what = AnswerKind::Memory { remote, offset, total };
                pair.responder.answers.push_front(Answer { psn: answer.psn + 1, what });
            }
            let packet = Packet { body: Body::Fetched, offset, len, total, first, last, ..base };
            Some((packet, Source::Peer(remote), last))
        }
    }
}

/// The next packet of a request that has begun: the packet, where its data are, whether it is the last. With `split` a
/// write with immediate data is a write, and a message behind it that has no data.
fn packet_of(pair: &mut Pair, split: bool, number: u64, base: Packet) -> (Packet, Source, bool) {
    let (acked, depth, mtu) = (pair.send.acked, pair.cap.max_send_wr, pair.mtu);
    let wqe = pair.send.at(number, depth);
    let (op, psn) = (wqe.op.unwrap_or(SendOp::Send), wqe.psn.unwrap_or(0));
    let (total, solicited) = (wqe.len, wqe.solicited);
    let base = Packet { body: Body::Request(op), total, solicited, ..base };
    if wqe.fetches() {
        // What has arrived is not asked for again.
        let (psn, offset) = (psn + wqe.arrived, wqe.arrived * mtu);
        let packet = Packet { psn, offset, first: true, last: true, ..base };
        return (packet, Source::Nowhere, true);
    }
    // Neither is what the peer has acknowledged sent again.
    let index = pair.send.packet.max(acked.saturating_sub(psn));
    let (offset, last) = ((index * mtu).min(total), index + 1 == wqe.packets);
    pair.send.packet = index + 1;
    let len = mtu.min(total - offset);
    let mut packet = Packet { psn: psn + index, offset, len, first: index == 0, last, ..base };
    match op {
        SendOp::WriteImm(remote, _) if split && !last => packet.body = Body::Request(SendOp::Write(remote)),
        SendOp::WriteImm(..) if split => packet.begins = true,
        _ => {}
    }
    (packet, Source::Request(number), last)
}
