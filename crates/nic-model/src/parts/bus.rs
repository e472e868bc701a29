//! The host bus: PCI-X, which is half duplex and does one transfer at a time, or PCI Express, which has one
//! direction for the card's reads and one for its writes. A transfer is cut into bursts; each takes a clock
//! per word, plus an overhead: address and turnaround, and for a read the split request; or a packet's
//! framing. With two directions a transfer also occupies the other one for a share of its time: for requests,
//! credits and acknowledgements.

use host::{Span, Time};

use super::server::Server;
use crate::machine::Params;

/// A bus and its occupancy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bus {
    server: Server,
    /// The direction of the card's writes, if the bus has two.
    writing: Server,
    duplex: bool,
    /// Share of a transfer's time during which the other direction is busy.
    other: f64,
    /// The factor by which transfers are slower than at best.
    pub(crate) slowness: f64,
    width_bytes: u64,
    clock_ps: f64,
    burst_bytes: u64,
    /// Alignment at which a burst may be cut.
    pub(crate) boundary_bytes: u64,
    read_overhead: f64,
    write_overhead: f64,
}

impl Bus {
    pub(crate) fn new(params: &Params) -> Self {
        let b = &params.bus;
        Self {
            server: Server::default(),
            writing: Server::default(),
            duplex: b.duplex_flag,
            other: b.other_ratio,
            slowness: 1.0,
            width_bytes: b.width_bytes as u64,
            clock_ps: 1e6 / b.clock_mhz,
            burst_bytes: b.burst_bytes as u64,
            boundary_bytes: b.boundary_bytes as u64,
            read_overhead: b.read_overhead_clocks,
            write_overhead: b.write_overhead_clocks,
        }
    }

    /// Occupies the requested direction, and partly the other one, if there are two.
    fn occupy(&mut self, now: Time, span: Span, writes: bool) -> Time {
        if !self.duplex {
            return self.server.reserve(now, span);
        }
        let (direction, other) = match writes {
            true => (&mut self.writing, &mut self.server),
            false => (&mut self.server, &mut self.writing),
        };
        if self.other > 0.0 {
            other.reserve(now, Span::from_ps((span.as_ps() as f64 * self.other) as u64));
        }
        direction.reserve(now, span)
    }

    /// How long a transfer occupies the bus; `overhead` is that of a burst, in clocks.
    fn time(&self, bytes: u64, overhead: f64) -> Span {
        let bursts = bytes.div_ceil(self.burst_bytes) as f64;
        let clocks = bytes.div_ceil(self.width_bytes) as f64 + bursts * overhead;
        Span::from_ps((clocks * self.clock_ps * self.slowness).round() as u64)
    }

    /// Bytes of the longest burst.
    pub(crate) fn burst_bytes(&self) -> u64 {
        self.burst_bytes
    }

    /// How long a read of `bytes` occupies the bus.
    pub(crate) fn time_of_read(&self, bytes: u64) -> Span {
        self.time(bytes, self.read_overhead)
    }

    /// How long a write of `bytes` occupies the bus.
    pub(crate) fn time_of_write(&self, bytes: u64) -> Span {
        self.time(bytes, self.write_overhead)
    }

    /// The card reads `bytes`; returns when the bus has finished.
    pub(crate) fn read(&mut self, now: Time, bytes: u64) -> Time {
        self.occupy(now, self.time(bytes, self.read_overhead), false)
    }

    /// The card writes `bytes`; returns when the bus has finished.
    pub(crate) fn write(&mut self, now: Time, bytes: u64) -> Time {
        self.occupy(now, self.time(bytes, self.write_overhead), true)
    }

    /// Occupies the bus for a number of clocks.
    pub(crate) fn clocks(&mut self, now: Time, clocks: f64) -> Time {
        self.server.reserve(now, Span::from_ps((clocks * self.clock_ps).round() as u64))
    }

    /// When it will have finished all transfers.
    #[cfg(test)]
    pub(crate) fn free_at(&self) -> Time {
        self.server.free_at()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn run(params: &Params, reads: bool, writes: bool) -> f64 {
        let (mut bus, mut bytes) = (Bus::new(params), 0);
        for _ in 0..1000 {
            for (wanted, read) in [(reads, true), (writes, false)] {
                if wanted {
                    _ = if read { bus.read(Time::ZERO, 2048) } else { bus.write(Time::ZERO, 2048) };
                    bytes += 2048;
                }
            }
        }
        rate(bytes, bus.free_at() - Time::ZERO)
    }

    #[test]
    fn bus_without_overhead_reaches_its_peak() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        (params.bus.read_overhead_clocks, params.bus.write_overhead_clocks) = (0.0, 0.0);
        for (reads, writes) in [(true, false), (false, true), (true, true)] {
            assert!((run(&params, reads, writes) - 1064.0).abs() < 0.1);
        }
    }

    /// Goal: with two directions, writes do not wait for reads, but each slows the other down by its share.
    #[test]
    fn duplex_directions_slow_each_other_by_their_share() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let b = &mut params.bus;
        (b.read_overhead_clocks, b.write_overhead_clocks, b.duplex_flag) = (0.0, 0.0, true);
        let both = |params: &Params| {
            let mut bus = Bus::new(params);
            for _ in 0..1000 {
                bus.read(Time::ZERO, 2048);
                bus.write(Time::ZERO, 2048);
            }
            rate(2 * 1000 * 2048, bus.free_at() - Time::ZERO)
        };
        assert!((both(&params) - 2.0 * 1064.0).abs() < 0.1, "{}", both(&params));
        params.bus.other_ratio = 0.25;
        assert!((both(&params) - 2.0 * 1064.0 / 1.25).abs() < 0.1, "{}", both(&params));
    }

    /// Maximum rates derived from the clocks: near the paper's measured 961 MB/s of writes (NM-069) and 946
    /// MB/s in both directions together (NM-078).
    #[test]
    fn maximum_rates_are_near_the_paper() {
        let params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let (write, read, both) =
            (run(&params, false, true), run(&params, true, false), run(&params, true, true));
        assert!((write - 1064.0 * 64.0 / 70.0).abs() < 0.1 && (write / 961.0 - 1.0).abs() < 0.02, "{write}");
        assert!((read - 1064.0 * 64.0 / 76.0).abs() < 0.1, "{read}");
        assert!((both - 1064.0 * 128.0 / 146.0).abs() < 0.1 && (both / 946.0 - 1.0).abs() < 0.02, "{both}");
    }

    #[test]
    fn a_short_transfer_pays_for_a_burst() {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        (params.bus.clock_mhz, params.bus.read_overhead_clocks) = (100.0, 9.0);
        let mut bus = Bus::new(&params);
        assert_eq!(bus.read(Time::ZERO, 1) - Time::ZERO, Span::from_ns(100));
        assert_eq!(bus.read(Time::ZERO, 0) - Time::ZERO, Span::from_ns(100), "nothing takes nothing");
    }
}
