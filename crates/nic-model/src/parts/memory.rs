//! The card's own memory: one interface, shared by all reads and writes. Each packet opens a row, and refresh
//! takes some time; if a file gives neither, packets reach a share of the peak rate.

use host::{Span, Time};

use super::server::Server;
use super::{at_rate, ns};
use crate::machine::Params;

/// The memory's interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicMemory {
    server: Server,
    mbps: f64,
    open: Span,
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
            open: ns(m.open_ns),
            port_switch: ns(m.port_switch_ns),
            last_port: None,
            latency: ns(m.latency_ns),
        }
    }

    /// Reads or writes `bytes` of a packet of `port`; returns when the memory has finished.
    pub(crate) fn access(&mut self, now: Time, bytes: u64, port: usize) -> Time {
        let turns = self.last_port.replace(port).is_some_and(|last| last != port);
        let turn = if turns { self.port_switch } else { Span::ZERO };
        self.server.reserve(now, self.open + self.time(bytes) + turn)
    }

    /// How long `bytes` occupy the memory.
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
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        params.nic_memory.port_switch_ns = 45.0;
        let (mut memory, mut end) = (NicMemory::new(&params), Time::ZERO);
        for packet in 0..1000 {
            end = memory.access(Time::ZERO, 2048, packet % ports);
        }
        rate(1000 * 2048, end - Time::ZERO)
    }

    /// 2048 bytes at 1980 MB/s take 1034 ns, or 1094 with opening a row; half of that rate is copied (927:
    /// NM-030). Less if alternating ports costs time.
    #[test]
    fn reads_and_writes_share_its_rate() {
        assert!((stream(1) - 2048.0 / 1.0943).abs() < 1.0, "{}", stream(1));
        assert!((stream(2) - 2048.0 / 1.1393).abs() < 1.0, "{}", stream(2));
    }
}
