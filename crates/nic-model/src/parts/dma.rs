//! The DMA engine. Reads of host memory are split transactions of one burst each, of which a limited number
//! may be outstanding: if their latency exceeds the time that the others occupy the bus, a stream of reads is
//! slower than the bus. Some engines wait for a message's first read before they request more. The pipeline
//! drains when the stream changes its port. Writes are posted: they occupy the bus, and are visible after a
//! latency.

use host::{Span, Time};

use super::bus::Bus;
use super::ns;
use crate::machine::Params;

/// The engine; it reads one packet at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dma {
    /// Maximum number of burst reads outstanding.
    outstanding: u64,
    /// The time from the end of a read request until its data arrive.
    pub(crate) read_latency: Span,
    /// The time from the end of a write until the processor sees it.
    pub(crate) write_latency: Span,
    /// The engine waits for a message's first read before it requests more.
    first_alone: bool,
    /// The least time from the start of one message to the start of the next, without its first read request;
    /// and bytes of that request.
    message_gap: Span,
    request_bytes: u64,
    /// Incoming messages take turns with outgoing ones, too.
    both_ways: bool,
    port_switch: Span,
    last_port: Option<usize>,
}

impl Dma {
    pub(crate) fn new(params: &Params) -> Self {
        let d = &params.dma;
        Self {
            outstanding: d.outstanding_requests as u64,
            read_latency: ns(d.read_latency_ns),
            write_latency: ns(d.write_latency_ns),
            first_alone: d.first_alone_flag,
            message_gap: ns(d.message_gap_ns),
            request_bytes: d.request_bytes as u64,
            both_ways: d.context_flag,
            port_switch: ns(d.port_switch_ns),
            last_port: None,
        }
    }

    /// A packet for `port` is read next; returns how long the pipeline takes to switch to it.
    pub(crate) fn switch_port(&mut self, port: usize) -> Span {
        let turns = self.last_port.replace(port).is_some_and(|last| last != port);
        if turns { self.port_switch } else { Span::ZERO }
    }

    /// The least time from the start of a message, of which `bytes` are read from host memory first, to the
    /// start of the next one of its queue pair: the first read has been answered then.
    pub(crate) fn message_gap(&self, bytes: u64, bus: &Bus) -> Span {
        if self.message_gap == Span::ZERO {
            return Span::ZERO;
        }
        self.message_gap + bus.time_of_read(bytes.min(self.request_bytes))
    }

    /// How long an incoming message delays the next one of its queue pair, in either direction.
    pub(crate) fn message_turn(&self) -> Span {
        if self.both_ways { self.message_gap } else { Span::ZERO }
    }

    /// The time after a message's first read from host memory until the engine can request more.
    pub(crate) fn first_read_gap(&self) -> Span {
        if self.first_alone { self.read_latency } else { Span::ZERO }
    }

    /// Reads `bytes` in sequence; returns when the engine can continue reading.
    pub(crate) fn read(&mut self, now: Time, bytes: u64, bus: &mut Bus) -> Time {
        bus.read(now, bytes).max(now + self.read_duration(bytes, bus))
    }

    /// How long it takes until `bytes` read in sequence have arrived, if nothing else delays them: each
    /// outstanding burst takes its latency and its time on the bus, then the next one is requested.
    fn read_duration(&self, bytes: u64, bus: &Bus) -> Span {
        let burst = bus.burst_bytes();
        let turn = bus.time_of_read(burst) + self.read_latency;
        Span::from_ps((turn.as_ps() as f64 * bytes as f64 / (burst * self.outstanding) as f64).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn stream(ports: usize) -> f64 {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (mut dma, mut bus, mut now) = (Dma::new(&params), Bus::new(&params), Time::ZERO);
        for packet in 0..1000 {
            let turn = dma.switch_port(packet % ports);
            now = dma.read(now, 2048, &mut bus) + turn;
        }
        rate(1000 * 2048, now - Time::ZERO)
    }

    /// Goal: the rate of a stream of reads follows from burst size, latency and the number outstanding.
    /// Method: 512 bytes on a bus of 8 bytes at 100 MHz with 6 clocks overhead take 700 ns; with 800 ns of
    /// latency, one outstanding read transfers 512 bytes in 1500 ns, and two in 750.
    #[test]
    fn a_stream_of_reads_waits_for_its_answers() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        (params.bus.clock_mhz, params.bus.burst_bytes, params.bus.read_overhead_clocks) = (100.0, 512.0, 6.0);
        params.dma.read_latency_ns = 800.0;
        for (outstanding, nanos) in [(1.0, 1500.0), (2.0, 750.0), (3.0, 700.0), (16.0, 700.0)] {
            params.dma.outstanding_requests = outstanding;
            let (mut dma, mut bus) = (Dma::new(&params), Bus::new(&params));
            let end = (0..100).fold(Time::ZERO, |now, _| dma.read(now, 512, &mut bus));
            assert_eq!(end - Time::ZERO, ns(100.0 * nanos), "{outstanding} outstanding");
        }
    }

    /// 886 MB/s for a stream (NM-032), 855 MB/s if its packets alternate between two ports (NM-067).
    #[test]
    fn a_stream_of_reads_has_its_own_rate() {
        assert!((stream(1) - 886.0).abs() < 0.5, "{}", stream(1));
        assert!((stream(2) - 855.0).abs() < 0.5, "{}", stream(2));
    }

    #[test]
    fn message_gap_delays_the_next_message_of_the_queue_pair() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let bus = Bus::new(&params);
        assert_eq!(Dma::new(&params).message_gap(4096, &bus), Span::ZERO, "no gap");
        (params.dma.message_gap_ns, params.dma.request_bytes) = (600.0, 512.0);
        let dma = Dma::new(&params);
        assert_eq!(dma.message_gap(4096, &bus), ns(600.0) + bus.time_of_read(512), "and its first request");
        assert_eq!(dma.message_gap(100, &bus), ns(600.0) + bus.time_of_read(100));
        assert_eq!(dma.message_gap(0, &bus), ns(600.0), "nothing to read");
    }

    #[test]
    fn incoming_messages_take_turns_if_a_context_serves_both_directions() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        params.dma.message_gap_ns = 600.0;
        for (both, turn) in [(false, Span::ZERO), (true, ns(600.0))] {
            params.dma.context_flag = both;
            assert_eq!(Dma::new(&params).message_turn(), turn);
        }
    }

    #[test]
    fn first_read_delays_later_ones_if_alone() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        params.dma.read_latency_ns = 600.0;
        for (alone, waits) in [(false, Span::ZERO), (true, ns(600.0))] {
            params.dma.first_alone_flag = alone;
            assert_eq!(Dma::new(&params).first_read_gap(), waits);
        }
    }

    #[test]
    fn busy_bus_slows_reads_down() {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (mut dma, mut bus) = (Dma::new(&params), Bus::new(&params));
        let busy = bus.clocks(Time::ZERO, 1e6);
        assert!(dma.read(Time::ZERO, 8, &mut bus) > busy);
    }
}
