//! What goes wrong on purpose: packets lost and delayed, receivers that stand still, cables cut, machines that die. All
//! of it follows from the world's seed.

use host::{Span, Time};

use super::event::Event;
use super::state::State;
use crate::parts::{ns, us};

/// Random numbers (SplitMix64): the same for the same seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed ^ 0x6e69_635f_6d6f_6465)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether something that happens so many times in a million happens now. Draws nothing for never.
    pub(super) fn ppm(&mut self, ppm: f64) -> bool {
        ppm > 0.0 && self.next() % 1_000_000 < ppm as u64
    }

    /// A time up to so many nanoseconds.
    fn up_to_ns(&mut self, limit: f64) -> Span {
        if limit <= 0.0 { Span::ZERO } else { Span::from_ps(self.next() % (ns(limit).as_ps() + 1)) }
    }
}

impl State {
    /// Whether a packet in the switch does not get further.
    pub(super) fn is_lost(&mut self, number: u32) -> bool {
        let packet = &self.packets[number];
        let (from, to) = (packet.from, packet.to);
        let cut = [from, to].iter().any(|end| self.cards[end.card].ports[end.port].cut);
        let dead = self.cards[from.card].dead || self.cards[to.card].dead;
        cut || dead || self.chance.ppm(self.params.faults.loss_ppm)
    }

    pub(super) fn chance_of_delay(&mut self) -> Span {
        self.chance.up_to_ns(self.params.faults.delay_ns)
    }

    /// How long a receiver stands still at this packet, if it does.
    pub(super) fn chance_of_stall(&mut self) -> Option<Span> {
        let faults = self.params.faults;
        self.chance.ppm(faults.stall_ppm).then(|| self.chance.up_to_ns(faults.stall_ns))
    }

    /// Whether a card does not answer, because its machine is dead. A machine may have been killed by somebody else.
    pub(super) fn is_silent(&mut self, now: Time, card: usize) -> bool {
        if !self.cards[card].dead && self.cards[card].node.is_dead() {
            self.die(now, card);
        }
        self.cards[card].dead
    }

    /// Whether messages between two cards do not arrive.
    pub(super) fn is_unreachable(&mut self, now: Time, (from, to, port): (usize, usize, usize)) -> bool {
        let cut = [from, to].iter().any(|&card| self.cards[card].ports[port].cut);
        self.is_silent(now, from) || self.is_silent(now, to) || cut
    }

    /// The cable is cut for which the faults say so.
    pub(super) fn cut(&mut self, now: Time) {
        let faults = self.params.faults;
        let Some((card, port)) = self.cut_place() else { return };
        self.cards[card].ports[port].cut = true;
        self.give_up(now, card, Some(port));
        if faults.cut_for_us > 0.0 {
            self.after(now, us(faults.cut_for_us), Event::Whole);
        }
    }

    /// The cable that was cut is whole again: connections can be made by it.
    pub(super) fn whole(&mut self) {
        if let Some((card, port)) = self.cut_place() {
            self.cards[card].ports[port].cut = false;
        }
    }

    /// The card and port whose cable is cut.
    fn cut_place(&self) -> Option<(usize, usize)> {
        let faults = self.params.faults;
        let (rail, ports) = (faults.cut_port as usize - 1, self.params.link.port_count as usize);
        let card = *self.nodes.get(&(faults.cut_node as usize, rail / ports))?;
        Some((card, rail % ports))
    }

    /// The machine dies for which the faults say so.
    pub(super) fn death(&mut self, now: Time) {
        let node = self.params.faults.death_node as usize;
        let cards: Vec<usize> = self.nodes.range((node, 0)..(node + 1, 0)).map(|(_, card)| *card).collect();
        for card in cards {
            self.cards[card].node.kill();
            self.die(now, card);
        }
    }

    fn die(&mut self, now: Time, card: usize) {
        self.cards[card].dead = true;
        self.give_up(now, card, None);
    }

    /// Connections to a card that is unreachable, perhaps by one port only, end after a while even if nothing is sent:
    /// managers ask each other from time to time whether they are there. That they do so costs nothing here, and is only
    /// played when the answer is no.
    fn give_up(&mut self, now: Time, card: usize, port: Option<usize>) {
        let patience = us(self.params.connection.lost_after_us);
        let affected = self.pairs.iter().filter(|(_, pair)| {
            let ends = pair.card == card || pair.peer.is_some_and(|peer| peer.card == card);
            pair.peer.is_some() && ends && port.is_none_or(|port| pair.port == port)
        });
        let affected: Vec<u32> = affected.map(|(qp, _)| qp).collect();
        for qp in affected {
            self.after(now, patience, Event::Lost(qp));
        }
    }

    /// A peer has been silent for too long.
    pub(super) fn lost(&mut self, now: Time, qp: u32) {
        if self.pairs.get(qp).is_some_and(|pair| !self.cards[pair.card].dead) {
            self.fail(now, qp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_as_frequent_as_they_say() {
        let mut chance = Chance::new(1);
        let hits = (0..100_000).filter(|_| chance.ppm(100_000.0)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !chance.ppm(0.0)));
        assert!((0..1000).all(|_| chance.up_to_ns(50.0) <= Span::from_ns(50)));
        assert_eq!(chance.up_to_ns(0.0), Span::ZERO);
    }
}
