//! The doorbell: the processor's write to the card that tells of a new request.

use host::{Span, Time};

use super::bus::Bus;
use super::ns;
use crate::machine::Params;

/// Times of a doorbell; constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    pio_clocks: f64,
    latency: Span,
}

impl Doorbell {
    pub(crate) fn new(params: &Params) -> Self {
        Self { pio_clocks: params.doorbell.pio_clocks, latency: ns(params.doorbell.latency_ns) }
    }

    /// Rung `now`; when the card knows.
    pub(crate) fn ring(&self, now: Time, bus: &mut Bus) -> Time {
        bus.clocks(now, self.pio_clocks) + self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_doorbell_takes_its_clocks_on_the_bus() {
        let mut params = Machine::load("mt23108-vapi").expect("it comes along").params;
        (params.bus.clock_mhz, params.doorbell.pio_clocks, params.doorbell.latency_ns) = (100.0, 10.0, 60.0);
        let (mut bus, bell) = (Bus::new(&params), Doorbell::new(&params));
        assert_eq!(bell.ring(Time::ZERO, &mut bus), Time::ZERO + ns(160.0));
        assert_eq!(bus.free_at(), Time::ZERO + ns(100.0));
    }
}
