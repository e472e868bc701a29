//! The card's own memory: one interface, shared by all reads and writes. Transfers of packets reach a share of its
//! peak; a packet of another port than the one before costs an opening of other rows.

use host::{Span, Time};

use super::server::Server;
use super::{at_rate, ns};
use crate::machine::Params;

/// The memory's interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicMemory {
    server: Server,
    mbps: f64,
    port_switch: Span,
    last_port: Option<usize>,
    /// The time to the first byte.
    pub(crate) latency: Span,
}

impl NicMemory {
    pub(crate) fn new(params: &Params) -> Self {
        let m = &params.nic_memory;
        Self {
            server: Server::default(),
            mbps: m.rate_mbps * m.efficiency_ratio,
            port_switch: ns(m.port_switch_ns),
            last_port: None,
            latency: ns(m.latency_ns),
        }
    }

    /// Reads or writes `bytes` of a packet of `port`; when it is done with them.
    pub(crate) fn access(&mut self, now: Time, bytes: u64, port: usize) -> Time {
        let turns = self.last_port.replace(port).is_some_and(|last| last != port);
        let turn = if turns { self.port_switch } else { Span::ZERO };
        self.server.reserve(now, self.time(bytes) + turn)
    }

    /// How long `bytes` keep it.
    pub(crate) fn time(&self, bytes: u64) -> Span {
        at_rate(bytes, self.mbps)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn stream(ports: usize) -> f64 {
        let mut params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        params.nic_memory.port_switch_ns = 45.0;
        let (mut memory, mut end) = (NicMemory::new(&params), Time::ZERO);
        for packet in 0..1000 {
            end = memory.access(Time::ZERO, 2048, packet % ports);
        }
        rate(1000 * 2048, end - Time::ZERO)
    }

    /// Half of 1860 MB/s is copied (927: NM-030); less when ports alternate and that costs something.
    #[test]
    fn reads_and_writes_share_its_rate() {
        assert!((stream(1) - 1860.0).abs() < 1.0, "{}", stream(1));
        assert!((stream(2) - 1788.0).abs() < 5.0, "{}", stream(2));
    }
}
