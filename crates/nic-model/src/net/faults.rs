//! [`Faults`]: injected faults: packets lost and delayed, receivers that stall, cables cut, machines that
//! die. The world's seed determines them.

use host::{Rng, Span, Time};

use super::event::Event;
use super::event_queue::EventQueue;
use crate::machine::{self, Params};
use crate::parts::{ns, us};

/// Random numbers for the decisions.
#[derive(Clone, Debug)]
struct FaultRng(Rng);

impl FaultRng {
    fn new(seed: u64) -> Self {
        Self(Rng::new(seed ^ 0x6e69_635f_6d6f_6465))
    }

    /// Whether an event with this probability in parts per million happens now. Draws no number for 0.
    fn ppm(&mut self, ppm: f64) -> bool {
        ppm > 0.0 && self.0.below(1_000_000) < ppm as u64
    }

    /// A random time of at most `limit` nanoseconds.
    fn up_to_ns(&mut self, limit: f64) -> Span {
        if limit <= 0.0 { Span::ZERO } else { Span::from_ps(self.0.below(ns(limit).as_ps() + 1)) }
    }
}

/// The faults of a world.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    chance: FaultRng,
    params: machine::Faults,
    /// Ports of each card.
    ports: usize,
}

impl Faults {
    /// The faults that this machine configures, in the world of this seed.
    pub(super) fn new(seed: u64, params: &Params) -> Self {
        let ports = params.link.port_count as usize;
        Self { chance: FaultRng::new(seed), params: params.faults, ports }
    }

    /// Schedules the faults with a fixed time.
    pub(super) fn begin(&self, event_queue: &EventQueue) {
        for (at, event) in
            [(self.params.cut_us, Event::CableCut), (self.params.death_us, Event::MachineDeath)]
        {
            if at > 0.0 {
                event_queue.schedule(Time::ZERO + us(at), event);
            }
        }
    }

    /// Whether a packet or a message is lost.
    pub(super) fn loses_packet(&mut self) -> bool {
        self.chance.ppm(self.params.loss_ppm)
    }

    /// The extra delay of a packet.
    pub(super) fn delay(&mut self) -> Span {
        self.chance.up_to_ns(self.params.delay_ns)
    }

    /// How long a receiver stalls at a packet, if it does.
    pub(super) fn receiver_stall(&mut self) -> Option<Span> {
        self.chance.ppm(self.params.stall_ppm).then(|| self.chance.up_to_ns(self.params.stall_ns))
    }

    /// The node, the index of the card there, and the port whose cable is cut.
    pub(super) fn cut_at(&self) -> (usize, usize, usize) {
        let rail = self.params.cut_port as usize - 1;
        (self.params.cut_node as usize, rail / self.ports, rail % self.ports)
    }

    /// When a cable that is cut at `now` is repaired, if ever.
    pub(super) fn repaired_at(&self, now: Time) -> Option<Time> {
        (self.params.cut_for_us > 0.0).then(|| now + us(self.params.cut_for_us))
    }

    /// The node that dies.
    pub(super) fn dying_node(&self) -> usize {
        self.params.death_node as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_rates_match_their_probability() {
        let mut chance = FaultRng::new(1);
        let hits = (0..100_000).filter(|_| chance.ppm(100_000.0)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !chance.ppm(0.0)));
        assert!((0..1000).all(|_| chance.up_to_ns(50.0) <= Span::from_ns(50)));
        assert_eq!(chance.up_to_ns(0.0), Span::ZERO);
    }
}
