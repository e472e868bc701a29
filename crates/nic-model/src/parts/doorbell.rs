//! The doorbell: the processor's write to the card that announces a new request.

use host::{Span, Time};

use super::bus::Bus;
use super::ns;
use crate::machine::Params;

/// Times of a doorbell, and when it can be rung again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    pio_clocks: f64,
    latency: Span,
    drain: Span,
    /// When the card accepts another write.
    free_at: Time,
}

impl Doorbell {
    pub(crate) fn new(params: &Params) -> Self {
        Self {
            pio_clocks: params.doorbell.pio_clocks,
            latency: ns(params.doorbell.latency_ns),
            drain: ns(params.doorbell.drain_ns),
            free_at: Time::ZERO,
        }
    }

    /// The processor wants to ring at `now`; returns how long it waits until the card accepts that.
    pub(crate) fn wait(&mut self, now: Time, slowness: f64) -> Span {
        let begins = self.free_at.max(now);
        self.free_at = begins + Span::from_ps((self.drain.as_ps() as f64 * slowness) as u64);
        begins.since(now)
    }

    /// Rings at `now`; returns when the card knows.
    pub(crate) fn ring(&self, now: Time, bus: &mut Bus) -> Time {
        bus.clocks(now, self.pio_clocks) + self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn second_doorbell_waits_until_the_first_has_drained() {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        params.doorbell.drain_ns = 300.0;
        let mut bell = Doorbell::new(&params);
        let at = |nanos| Time::ZERO + Span::from_ns(nanos);
        assert_eq!(bell.wait(at(100), 1.0), Span::ZERO);
        assert_eq!(bell.wait(at(200), 2.0), Span::from_ns(200), "until 400, and then twice as long");
        assert_eq!(bell.wait(at(2000), 1.0), Span::ZERO);
    }

    #[test]
    fn a_doorbell_takes_its_clocks_on_the_bus() {
        let mut params = Machine::load("mt23108-vapi").expect("a built-in machine").params;
        (params.bus.clock_mhz, params.doorbell.pio_clocks, params.doorbell.latency_ns) = (100.0, 10.0, 60.0);
        let (mut bus, bell) = (Bus::new(&params), Doorbell::new(&params));
        assert_eq!(bell.ring(Time::ZERO, &mut bus), Time::ZERO + ns(160.0));
        assert_eq!(bus.free_at(), Time::ZERO + ns(100.0));
    }
}
