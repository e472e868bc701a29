//! [`PortTable`]: the cables at the ports of all cards, and the switch between them: when packets leave and
//! arrive.
//!
//! A port sends when its link is free and the receiver has room. Acknowledgements go first, and need no room.

use std::collections::VecDeque;

use host::{Span, Time};

use super::event::Event;
use super::event_queue::EventQueue;
use super::packet::{Packet, Packets, PortId};
use crate::machine::Params;
use crate::parts::link::Link;
use crate::parts::switch::Output;

/// A port of a card, and the switch's output to it.
struct Port {
    link: Link,
    output: Output,
    /// A cut cable transports nothing.
    cut: bool,
    /// Data packets waiting for the wire.
    data: VecDeque<u32>,
    /// Acknowledgements waiting for the wire, which go first.
    control: VecDeque<u32>,
    /// The earliest scheduled [`Event::LinkReady`].
    wake: Option<Time>,
    /// Number of packets for which it still has room.
    credits: usize,
    /// Ports whose next packet waits for room here, round robin.
    waiters: VecDeque<PortId>,
    /// Whether this port waits for room elsewhere.
    waiting: bool,
    /// When the last packet came out of the switch: packets do not overtake.
    arrived_at: Time,
}

/// The ports of all cards.
#[derive(Default)]
pub(super) struct PortTable {
    cards: Vec<Vec<Port>>,
}

impl PortTable {
    /// Adds a card. The last of its ports is its loopback, which has no cable.
    pub(super) fn plug_in(&mut self, params: &Params) {
        let port = || Port {
            link: Link::new(params),
            output: Output::new(params),
            cut: false,
            data: VecDeque::new(),
            control: VecDeque::new(),
            wake: None,
            credits: params.link.receive_packets as usize,
            waiters: VecDeque::new(),
            waiting: false,
            arrived_at: Time::ZERO,
        };
        let ports = params.link.port_count as usize + 1;
        self.cards.push((0..ports).map(|_| port()).collect());
    }

    /// A port of a card.
    fn port(&mut self, id: PortId) -> &mut Port {
        &mut self.cards[id.card][id.port]
    }

    /// Whether a port is its card's loopback.
    pub(super) fn is_loopback(&self, id: PortId) -> bool {
        id.port + 1 == self.cards[id.card].len()
    }

    /// Whether the cable at a port is cut.
    pub(super) fn is_cut(&self, id: PortId) -> bool {
        self.cards[id.card][id.port].cut
    }

    /// Cuts or repairs the cable at a port.
    pub(super) fn set_cut(&mut self, id: PortId, cut: bool) {
        self.port(id).cut = cut;
    }

    /// A data packet is ready to be sent. Returns whether a data packet has left the port.
    pub(super) fn send(
        &mut self,
        now: Time,
        number: u32,
        packets: &mut Packets,
        event_queue: &EventQueue,
    ) -> bool {
        let Packet { from, len, first, body, .. } = packets[number];
        let port = self.port(from);
        packets[number].wire_bytes = port.link.packet(len, first && body.has_address());
        port.data.push_back(number);
        self.send_next(now, from, packets, event_queue)
    }

    /// Sends an acknowledgement, or another packet without data.
    pub(super) fn send_control(
        &mut self,
        now: Time,
        packet: Packet,
        packets: &mut Packets,
        event_queue: &EventQueue,
    ) {
        let (from, loopback) = (packet.from, self.is_loopback(packet.from));
        let port = self.port(from);
        let number = packets.insert(Packet { wire_bytes: port.link.ack(), ..packet });
        if loopback {
            return event_queue.schedule(now, Event::PacketArrived(number));
        }
        port.control.push_back(number);
        self.send_next(now, from, packets, event_queue);
    }

    /// Piggybacks an acknowledgement on the next packet of this port.
    pub(super) fn add_ack(&mut self, now: Time, from: PortId) {
        if !self.is_loopback(from) {
            self.port(from).link.add_ack(now);
        }
    }

    /// Sends the next packet of a port, if its link is free and the receiver has room. Returns whether a data
    /// packet has left.
    fn send_next(&mut self, now: Time, id: PortId, packets: &mut Packets, event_queue: &EventQueue) -> bool {
        let port = self.port(id);
        if port.link.free_at() > now {
            let at = port.link.free_at();
            self.wake_at(id, at, event_queue);
            return false;
        }
        if let Some(number) = port.control.pop_front() {
            self.transmit(now, id, number, packets, event_queue);
            return false;
        }
        let Some(&number) = port.data.front() else { return false };
        let Packet { ready_at, to, .. } = packets[number];
        if ready_at > now {
            self.wake_at(id, ready_at, event_queue);
            return false;
        }
        if self.port(to).credits == 0 {
            if !std::mem::replace(&mut self.port(id).waiting, true) {
                self.port(to).waiters.push_back(id);
            }
            return false;
        }
        self.port(to).credits -= 1;
        packets[number].credit = true;
        self.port(id).data.pop_front();
        self.transmit(now, id, number, packets, event_queue);
        true
    }

    /// Puts a packet on the cable; its head reaches the switch after the latencies of port and cable.
    fn transmit(&mut self, now: Time, id: PortId, number: u32, packets: &Packets, event_queue: &EventQueue) {
        let port = self.port(id);
        port.link.send(now, packets[number].wire_bytes);
        let (free, head) = (port.link.free_at(), port.link.latency + port.output.latency);
        event_queue.schedule(now + head, Event::HeadAtSwitch(number));
        self.wake_at(id, free, event_queue);
    }

    /// Schedules a check of the link at `at`, unless an earlier one is scheduled.
    fn wake_at(&mut self, id: PortId, at: Time, event_queue: &EventQueue) {
        let port = self.port(id);
        if port.wake.is_none_or(|wake| wake > at) {
            port.wake = Some(at);
            event_queue.schedule(at, Event::LinkReady(id));
        }
    }

    /// A link may continue sending; returns whether a data packet has left.
    pub(super) fn link(
        &mut self,
        now: Time,
        id: PortId,
        packets: &mut Packets,
        event_queue: &EventQueue,
    ) -> bool {
        let port = self.port(id);
        if port.wake == Some(now) {
            port.wake = None;
        }
        self.send_next(now, id, packets, event_queue)
    }

    /// A packet's head is ready to leave the switch; `delay` is added. Returns when the packet has arrived.
    pub(super) fn forward(&mut self, now: Time, delay: Span, packet: &mut Packet) -> Time {
        let port = self.port(packet.to);
        let length = port.link.time(packet.wire_bytes);
        let tail = port.output.forward(now, length) + port.link.latency + delay;
        // A delay also holds up later packets.
        port.arrived_at = port.arrived_at.max(tail);
        let at = port.arrived_at;
        packet.head_at = Time::from_ps(at.as_ps().saturating_sub(length.as_ps()));
        at
    }

    /// A packet that held room at this port was dropped. Returns the port whose data packet has left for that
    /// room.
    pub(super) fn free_slot(
        &mut self,
        now: Time,
        id: PortId,
        packets: &mut Packets,
        event_queue: &EventQueue,
    ) -> Option<PortId> {
        let port = self.port(id);
        port.credits += 1;
        let waiter = port.waiters.pop_front()?;
        self.port(waiter).waiting = false;
        self.send_next(now, waiter, packets, event_queue).then_some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// Two ports; the second has room for a given number of packets.
    struct Bench {
        ports: PortTable,
        packets: Packets,
        event_queue: EventQueue,
        now: Time,
    }

    const HERE: PortId = PortId { card: 0, port: 0 };
    const THERE: PortId = PortId { card: 1, port: 0 };

    impl Bench {
        fn new(room: usize) -> Self {
            let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
            params.link.receive_packets = room as f64;
            let (mut ports, world) =
                (PortTable::default(), host::world::World::new(host::world::Config::default()));
            (0..2).for_each(|_| ports.plug_in(&params));
            let event_queue = EventQueue::new(world.timeline());
            Self { ports, packets: Packets::default(), event_queue, now: Time::ZERO }
        }

        /// Sends a packet at a time when the link is free; returns its number, and whether it has left.
        fn send(&mut self) -> (u32, bool) {
            self.now = self.now + Span::from_ms(1);
            let number = self.packets.insert(Packet { from: HERE, to: THERE, len: 100, ..Packet::default() });
            (number, self.ports.send(self.now, number, &mut self.packets, &self.event_queue))
        }
    }

    #[test]
    fn packet_is_sent_when_the_receiver_has_room() {
        let mut bench = Bench::new(1);
        assert!(bench.send().1);
        let (second, left) = bench.send();
        assert!(!left && !bench.packets[second].credit);
        let Bench { ports, packets, event_queue, now } = &mut bench;
        assert_eq!(ports.free_slot(*now, THERE, packets, event_queue), Some(HERE));
        assert!(packets[second].credit);
        assert_eq!(ports.free_slot(*now, THERE, packets, event_queue), None, "nobody waits");
    }

    #[test]
    fn acknowledgement_is_sent_without_room_at_the_receiver() {
        let mut bench = Bench::new(1);
        assert!(bench.send().1 && !bench.send().1);
        bench.now = bench.now + Span::from_ms(1);
        let Bench { ports, packets, event_queue, now } = &mut bench;
        let busy = |ports: &PortTable, now| ports.cards[0][0].link.free_at() > now;
        assert!(!busy(ports, *now));
        ports.send_control(*now, Packet { from: HERE, to: THERE, ..Packet::default() }, packets, event_queue);
        assert!(busy(ports, *now));
    }

    #[test]
    fn delayed_packet_delays_later_ones() {
        let mut bench = Bench::new(4);
        let mut arrives = |delay| {
            let number = bench.send().0;
            bench.ports.forward(bench.now, delay, &mut bench.packets[number])
        };
        let late = arrives(Span::from_secs(1));
        assert_eq!(arrives(Span::ZERO), late);
    }
}
