//! [`Scheduler`]: the order in which a card's queue pairs send, and how far the card reads ahead of its
//! wires.
//!
//! Ports alternate by packets, queue pairs of one port by messages: the engine finishes a message before it
//! continues with another connection of the same port. One packet is read at a time, and a limited number is
//! read ahead of a wire.

use std::collections::VecDeque;

use host::Time;

/// The send state of one port.
#[derive(Clone, Debug, Default)]
struct PortQueue {
    /// Queue pairs with something to send, round robin.
    active: VecDeque<u32>,
    /// Packets that are read or being read, and not yet on the wire.
    ahead: usize,
}

/// The scheduler of a card's sending side.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    /// The last lane is that of the loopback. Its queue pairs share the turns of the first port.
    lanes: Vec<PortQueue>,
    ahead_max: usize,
    /// The DMA engine is reading a packet.
    reading: bool,
    /// The next port to send.
    turn: usize,
    /// When the packet read last is loaded: packets do not overtake.
    loaded_at: Time,
}

impl Scheduler {
    /// A scheduler for a card with `ports` ports, including the loopback.
    pub(super) fn new(ports: usize, ahead_max: usize) -> Self {
        let lanes = vec![PortQueue::default(); ports];
        Self { lanes, ahead_max, reading: false, turn: 0, loaded_at: Time::ZERO }
    }

    /// A queue pair connected by this port has something to send.
    pub(super) fn activate(&mut self, port: usize, qp: u32) {
        let lane = if port + 1 == self.lanes.len() { 0 } else { port };
        self.lanes[lane].active.push_back(qp);
    }

    /// Whether the DMA engine is free to read.
    pub(super) fn is_free(&self) -> bool {
        !self.reading
    }

    /// All ports, starting with the next one to send.
    pub(super) fn ports_from_next(&self) -> impl Iterator<Item = usize> + use<> {
        let (ports, turn) = (self.lanes.len(), self.turn);
        (0..ports).map(move |i| (turn + i) % ports)
    }

    /// The next queue pair to send at a port.
    pub(super) fn next_to_send(&self, port: usize) -> Option<u32> {
        self.lanes[port].active.front().copied()
    }

    /// The next queue pair at a port has nothing to send: removes it.
    pub(super) fn deactivate(&mut self, port: usize) {
        self.lanes[port].active.pop_front();
    }

    /// A queue pair has sent a whole message: moves on to the next one of the port.
    pub(super) fn next_qp(&mut self, port: usize, qp: u32) {
        let active = &mut self.lanes[port].active;
        if active.front() == Some(&qp) {
            active.rotate_left(1);
        }
    }

    /// Whether there is room in the queue for a port's wire.
    pub(super) fn has_room(&self, port: usize) -> bool {
        self.lanes[port].ahead < self.ahead_max
    }

    /// A packet for the wire of `port` is read until `end`, and could be loaded at `loaded`; returns when it
    /// is loaded.
    pub(super) fn read(&mut self, now: Time, port: usize, end: Time, loaded: Time) -> Time {
        self.loaded_at = self.loaded_at.max(loaded);
        self.lanes[port].ahead += 1;
        self.reading = end > now;
        self.loaded_at
    }

    /// A port has sent a packet; the next port follows.
    pub(super) fn end_turn(&mut self, port: usize) {
        self.turn = port + 1;
    }

    /// The DMA engine has read its packet.
    pub(super) fn read_on(&mut self) {
        self.reading = false;
    }

    /// A packet has left for the wire.
    pub(super) fn packet_left(&mut self, port: usize) {
        self.lanes[port].ahead -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_of_a_port_take_turns_by_messages() {
        let mut scheduler = Scheduler::new(2, 4);
        [7, 8].into_iter().for_each(|qp| scheduler.activate(0, qp));
        scheduler.activate(1, 9);
        assert_eq!(
            (scheduler.next_to_send(0), scheduler.next_to_send(1)),
            (Some(7), None),
            "a loopback is of the first port"
        );
        scheduler.next_qp(0, 9);
        assert_eq!(scheduler.next_to_send(0), Some(7), "it was not its turn");
        scheduler.next_qp(0, 7);
        assert_eq!(scheduler.next_to_send(0), Some(8));
        scheduler.deactivate(0);
        assert_eq!(scheduler.next_to_send(0), Some(9));
    }

    #[test]
    fn ports_take_turns_by_packets() {
        let mut scheduler = Scheduler::new(3, 4);
        assert_eq!(scheduler.ports_from_next().collect::<Vec<_>>(), [0, 1, 2]);
        scheduler.end_turn(0);
        assert_eq!(scheduler.ports_from_next().collect::<Vec<_>>(), [1, 2, 0]);
    }

    #[test]
    fn packets_read_ahead_are_limited_and_ordered() {
        let (mut scheduler, at) = (Scheduler::new(2, 2), |ns| Time::ZERO + host::Span::from_ns(ns));
        assert_eq!(scheduler.read(at(0), 0, at(10), at(50)), at(50));
        assert!(!scheduler.is_free() && scheduler.has_room(0));
        scheduler.read_on();
        assert_eq!(scheduler.read(at(10), 0, at(10), at(20)), at(50), "behind the first");
        assert!(scheduler.is_free() && !scheduler.has_room(0) && scheduler.has_room(1));
        scheduler.packet_left(0);
        assert!(scheduler.has_room(0));
    }
}
