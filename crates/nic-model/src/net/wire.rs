//! Links and the switch: packets on their way between cards.

use host::Time;

use super::event::Event;
use super::packet::{Body, Packet, PortId};
use super::state::State;

impl State {
    /// Lets a port's link send its next packet, if it is free, has one, and there is room at the other end.
    pub(super) fn pump(&mut self, now: Time, port: PortId) {
        let p = &mut self.cards[port.card].ports[port.port];
        if p.link.free_at() > now {
            let at = p.link.free_at();
            return self.wake_link(port, at);
        }
        if let Some(number) = p.control.pop_front() {
            return self.transmit(now, port, number);
        }
        let Some(&number) = p.wire.front() else { return };
        let ready = self.packets[number].ready_at;
        if ready > now {
            return self.wake_link(port, ready);
        }
        let to = self.packets[number].to;
        let room = &mut self.cards[to.card].ports[to.port];
        if room.credits == 0 {
            let waiting = std::mem::replace(&mut self.cards[port.card].ports[port.port].waiting, true);
            if !waiting {
                self.cards[to.card].ports[to.port].waiters.push_back(port);
            }
            return;
        }
        room.credits -= 1;
        self.packets[number].credit = true;
        let p = &mut self.cards[port.card].ports[port.port];
        p.wire.pop_front();
        p.loading -= 1;
        self.transmit(now, port, number);
        self.kick(now, port.card);
    }

    fn transmit(&mut self, now: Time, port: PortId, number: u32) {
        let p = &mut self.cards[port.card].ports[port.port];
        p.link.send(now, self.packets[number].wire_bytes);
        let (free, head) = (p.link.free_at(), p.link.latency + p.output.latency);
        self.after(now, head, Event::Head(number));
        self.wake_link(port, free);
    }

    /// Has the link looked at `at`, unless it is looked at before.
    fn wake_link(&mut self, port: PortId, at: Time) {
        let p = &mut self.cards[port.card].ports[port.port];
        if p.wake.is_none_or(|wake| wake > at) {
            p.wake = Some(at);
            self.at(at, Event::Link(Self::number_of(port)));
        }
    }

    /// A link may send on.
    pub(super) fn link(&mut self, now: Time, port: PortId) {
        let p = &mut self.cards[port.card].ports[port.port];
        if p.wake == Some(now) {
            p.wake = None;
        }
        self.pump(now, port);
    }

    /// A packet's head is ready to leave the switch.
    pub(super) fn head(&mut self, now: Time, number: u32) {
        if self.is_lost(number) {
            return self.release(now, number);
        }
        let to = self.packets[number].to;
        let delay = self.chance_of_delay();
        let p = &mut self.cards[to.card].ports[to.port];
        let length = p.link.time(self.packets[number].wire_bytes);
        let tail = p.output.forward(now, length) + p.link.latency + delay;
        // A delay holds up what is behind.
        p.arrived_at = p.arrived_at.max(tail);
        let at = p.arrived_at;
        self.packets[number].head_at = Time::from_ps(at.as_ps().saturating_sub(length.as_ps()));
        self.at(at, Event::Arrive(number));
    }

    /// A packet has arrived whole.
    pub(super) fn arrive(&mut self, now: Time, number: u32) {
        let card = self.packets[number].to.card;
        if self.is_silent(now, card) {
            return self.release(now, number);
        }
        if let Some(stall) = self.chance_of_stall() {
            self.cards[card].transport.stall(now, stall);
        }
        match self.packets[number].body {
            Body::Request(op) => self.request_arrives(now, number, op),
            Body::Fetched | Body::Old(_) => self.answer_arrives(now, number),
            Body::Ack | Body::Nak(_) | Body::NotReady | Body::Missing => {
                self.cards[card].transport.acknowledge(now);
                self.word_arrives(now, number);
                self.release(now, number);
            }
        }
    }

    /// A packet is gone, and with it the room that it took.
    pub(super) fn release(&mut self, now: Time, number: u32) {
        let packet = self.packets.remove(number);
        if !packet.credit {
            return;
        }
        let to = packet.to;
        if to.port == self.cards[to.card].way_back() {
            self.cards[to.card].ports[to.port].loading -= 1;
            return self.kick(now, to.card);
        }
        let p = &mut self.cards[to.card].ports[to.port];
        p.credits += 1;
        if let Some(waiter) = p.waiters.pop_front() {
            self.cards[waiter.card].ports[waiter.port].waiting = false;
            self.pump(now, waiter);
        }
    }

    /// Sends an acknowledgement, or another word without data, from one of a queue pair's ends to its peer.
    pub(super) fn say(&mut self, now: Time, qp: u32, psn: u64, body: Body) {
        let Some(pair) = self.pairs.get(qp) else { return };
        let Some(peer) = pair.peer else { return };
        let (from, to) =
            (PortId { card: pair.card, port: pair.port }, PortId { card: peer.card, port: pair.port });
        let c = &mut self.cards[from.card];
        if c.dead {
            return;
        }
        let wire_bytes = c.ports[from.port].link.ack();
        let packet = Packet { body, from, to, qp: peer.qp, psn, wire_bytes, ..Packet::default() };
        let back = from.port == c.way_back();
        let number = self.packets.insert(packet);
        if back {
            return self.at(now, Event::Arrive(number));
        }
        self.cards[from.card].ports[from.port].control.push_back(number);
        self.pump(now, from);
    }

    /// An acknowledgement of a packet in the middle goes along with others.
    pub(super) fn add_ack(&mut self, now: Time, qp: u32) {
        let Some(pair) = self.pairs.get(qp) else { return };
        let c = &mut self.cards[pair.card];
        if pair.port != c.way_back() {
            c.ports[pair.port].link.add_ack(now);
        }
    }
}
