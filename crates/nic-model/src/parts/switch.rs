//! The switch's output to one port: cut-through, one packet at a time. Packets from several inputs leave in
//! the order of arrival.

use host::{Span, Time};

use super::ns;
use super::server::Server;
use crate::machine::Params;

/// One output of the switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    server: Server,
    /// The time from the arrival of a packet's head to its departure.
    pub(crate) latency: Span,
}

impl Output {
    pub(crate) fn new(params: &Params) -> Self {
        Self { server: Server::default(), latency: ns(params.switch.latency_ns) }
    }

    /// The head of a packet that takes `length` on the wire is ready to leave; returns when its tail has
    /// left.
    pub(crate) fn forward(&mut self, now: Time, length: Span) -> Time {
        self.server.reserve(now, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn packets_for_one_port_take_turns() {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let mut output = Output::new(&params);
        assert_eq!(output.latency, ns(params.switch.latency_ns));
        let length = Span::from_us(2);
        assert_eq!(output.forward(Time::ZERO, length), Time::ZERO + length, "cut-through");
        assert_eq!(output.forward(Time::ZERO, length), Time::ZERO + length * 2);
    }
}
