//! The DMA engine. Reads of host memory are split transactions of which only so many may be outstanding: a stream of
//! them has a rate of its own, below what the bus could do, and the pipeline drains when the stream changes its port.
//! Writes are posted: they take the bus, and are seen a latency later.

use host::{Span, Time};

use super::bus::Bus;
use super::{at_rate, ns};
use crate::machine::Params;

/// The engine; it reads one packet at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dma {
    read_mbps: f64,
    /// From the end of a read's turn until the data are there.
    pub(crate) read_latency: Span,
    /// From the end of a write's turn until the processor sees it.
    pub(crate) write_latency: Span,
    /// Of a message's first read, until another can be asked for.
    pub(crate) message: Span,
    /// That a message's first read keeps the engine at least.
    message_least: Span,
    port_switch: Span,
    last_port: Option<usize>,
}

impl Dma {
    pub(crate) fn new(params: &Params) -> Self {
        let d = &params.dma;
        Self {
            read_mbps: d.read_mbps,
            read_latency: ns(d.read_latency_ns),
            write_latency: ns(d.write_latency_ns),
            message: ns(d.message_ns),
            message_least: ns(d.message_least_ns),
            port_switch: ns(d.port_switch_ns),
            last_port: None,
        }
    }

    /// A packet for `port` is about to be read; how long the pipeline takes to turn to it.
    pub(crate) fn turn_to(&mut self, port: usize) -> Span {
        let turns = self.last_port.replace(port).is_some_and(|last| last != port);
        if turns { self.port_switch } else { Span::ZERO }
    }

    /// When a message's first read, which begins `now`, may end at the earliest.
    pub(crate) fn earliest(&self, now: Time, slowness: f64) -> Time {
        now + Span::from_ps((self.message_least.as_ps() as f64 * slowness) as u64)
    }

    /// Reads `bytes` in a row; when the engine can read on.
    pub(crate) fn read(&mut self, now: Time, bytes: u64, bus: &mut Bus) -> Time {
        bus.read(now, bytes).max(now + at_rate(bytes, self.read_mbps))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn stream(ports: usize) -> f64 {
        let params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let (mut dma, mut bus, mut now) = (Dma::new(&params), Bus::new(&params), Time::ZERO);
        for packet in 0..1000 {
            let turn = dma.turn_to(packet % ports);
            now = dma.read(now, 2048, &mut bus) + turn;
        }
        rate(1000 * 2048, now - Time::ZERO)
    }

    /// 886 MB/s for a stream (NM-032), 855 MB/s when its packets go to two ports in turn (NM-067).
    #[test]
    fn a_stream_of_reads_has_its_own_rate() {
        assert!((stream(1) - 886.0).abs() < 0.5, "{}", stream(1));
        assert!((stream(2) - 855.0).abs() < 0.5, "{}", stream(2));
    }

    #[test]
    fn a_message_keeps_it_for_a_while() {
        let mut params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        params.dma.message_least_ns = 800.0;
        assert_eq!(Dma::new(&params).earliest(Time::ZERO, 1.25) - Time::ZERO, Span::from_us(1));
    }

    #[test]
    fn a_busy_bus_slows_it_down() {
        let params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let (mut dma, mut bus) = (Dma::new(&params), Bus::new(&params));
        let busy = bus.clocks(Time::ZERO, 1e6);
        assert!(dma.read(Time::ZERO, 8, &mut bus) > busy);
    }
}
