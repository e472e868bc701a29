//! The resources that the cards of a machine share: its chipset, and the memory behind it. Reads and writes
//! of all cards are served in sequence. While few threads run, the other processors sleep and answer cache
//! snoops more slowly: every access by a card then takes longer. The memory has banks with one open row each:
//! streams whose distance exceeds the reach of all open rows meet in one bank and close each other's rows. A
//! region begins at a bank.

use host::{Span, Time};

use super::server::Server;
use super::{at_rate, ns};
use crate::machine::Params;

/// The chipset of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Chipset {
    server: Server,
    read_mbps: f64,
    write_mbps: f64,
    awake_threads: usize,
    asleep_ratio: f64,
    /// The memory, and its banks.
    memory: Server,
    memory_mbps: f64,
    banks: Vec<Bank>,
    row_bytes: u64,
    cycle: Span,
    burst_bytes: u64,
}

impl Chipset {
    pub(crate) fn new(params: &Params) -> Self {
        let c = &params.chipset;
        Self {
            server: Server::default(),
            read_mbps: c.read_mbps,
            write_mbps: c.write_mbps,
            awake_threads: c.awake_threads as usize,
            asleep_ratio: c.asleep_ratio,
            memory: Server::default(),
            memory_mbps: c.memory_mbps,
            banks: vec![Bank::default(); c.banks_rows as usize],
            row_bytes: (c.row_bytes as u64).max(1),
            cycle: ns(c.cycle_ns),
            burst_bytes: params.bus.burst_bytes as u64,
        }
    }

    /// Whether the number of running threads matters.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep_ratio < 1.0
    }

    /// The slowdown of accesses while this many threads run.
    pub(crate) fn slowness(&self, threads: usize) -> f64 {
        if threads < self.awake_threads { 1.0 / self.asleep_ratio } else { 1.0 }
    }

    /// A card reads an address range; returns when the chipset has finished.
    pub(crate) fn read(&mut self, now: Time, range: (u64, u64), slowness: f64) -> Time {
        self.access(now, range, self.read_mbps, slowness)
    }

    /// A card writes an address range; returns when the chipset has finished.
    pub(crate) fn write(&mut self, now: Time, range: (u64, u64), slowness: f64) -> Time {
        self.access(now, range, self.write_mbps, slowness)
    }

    /// An access of an address range by a card, limited by the memory and by the chipset itself.
    fn access(&mut self, now: Time, (at, bytes): (u64, u64), mbps: f64, slowness: f64) -> Time {
        let memory_done = self.access_memory(now, at, bytes);
        if mbps == 0.0 {
            memory_done
        } else {
            self.server.reserve(now, at_rate(bytes, mbps / slowness)).max(memory_done)
        }
    }

    /// The memory transfers an address range; returns when it has finished.
    fn access_memory(&mut self, now: Time, at: u64, bytes: u64) -> Time {
        let banks = self.banks.len() as u64;
        if banks == 0 || bytes == 0 {
            return now;
        }
        let (mut from, end, mut span) = (at, at + bytes, Span::ZERO);
        while from < end {
            let row = from / self.row_bytes;
            let len = end.min((row + 1) * self.row_bytes) - from;
            let openings = self.banks[(row % banks) as usize].open(row, len.div_ceil(self.burst_bytes));
            span += at_rate(len, self.memory_mbps).max(self.cycle * openings);
            from += len;
        }
        self.memory.reserve(now, span)
    }
}

/// A bank of memory: its open row, and the rows that were open before.
#[derive(Clone, Copy, Debug)]
struct Bank([u64; 4]);

impl Default for Bank {
    fn default() -> Self {
        Self([u64::MAX; 4])
    }
}

impl Bank {
    /// Accesses a row with a number of bursts; returns how often the row is opened. Streams in several rows
    /// of a bank alternate by bursts, and close each other's row each time.
    fn open(&mut self, row: u64, bursts: u64) -> u64 {
        let Some(last) = self.0.iter().position(|one| *one == row) else {
            self.0.rotate_right(1);
            self.0[0] = row;
            return 1;
        };
        self.0[..=last].rotate_right(1);
        if last == 0 { 0 } else { bursts }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn params() -> Params {
        let mut params = Machine::load("mt23108-nicmem").expect("a built-in machine").params;
        let c = &mut params.chipset;
        (c.read_mbps, c.write_mbps, c.awake_threads, c.asleep_ratio) = (3000.0, 6000.0, 2.0, 0.5);
        params
    }

    #[test]
    fn reads_and_writes_share_the_chipset() {
        let (mut chipset, mut end) = (Chipset::new(&params()), Time::ZERO);
        for _ in 0..100 {
            chipset.read(Time::ZERO, (0, 2048), 1.0);
            end = chipset.write(Time::ZERO, (0, 2048), 1.0);
        }
        let reached = rate(2 * 100 * 2048, end - Time::ZERO);
        assert!((reached - 4000.0).abs() < 1.0, "{reached}");
    }

    /// Goal: the effect of banks follows from their number, their rows, and the time from one opening to the
    /// next. Method: two streams, first with rows of different banks, then of the same: 256 bytes in 60 ns
    /// are 4267 MB/s, except at a new row.
    #[test]
    fn streams_in_one_bank_close_each_others_rows() {
        let mut params = params();
        let c = &mut params.chipset;
        (c.read_mbps, c.write_mbps, c.memory_mbps) = (0.0, 0.0, 10_000.0);
        (c.banks_rows, c.row_bytes, c.cycle_ns) = (16.0, 16_384.0, 60.0);
        params.bus.burst_bytes = 256.0;
        let reached = |apart: u64| {
            let (mut chipset, mut end) = (Chipset::new(&params), Time::ZERO);
            for at in (0..128 << 10).step_by(2048) {
                chipset.read(Time::ZERO, (at, 2048), 1.0);
                end = chipset.write(Time::ZERO, (at + apart, 2048), 1.0);
            }
            rate(2 * (128 << 10), end - Time::ZERO)
        };
        assert!((reached(128 << 10) - 10_000.0).abs() < 1.0, "{}", reached(128 << 10));
        let same = reached(256 << 10);
        assert!(same > 256.0 / 0.06 && same < 1.1 * 256.0 / 0.06, "{same}");
    }

    #[test]
    fn bank_remembers_rows_of_alternating_streams() {
        let mut bank = Bank::default();
        assert_eq!([1, 1, 2, 1, 2, 3, 2].map(|row| bank.open(row, 8)), [1, 0, 1, 8, 8, 1, 8]);
        assert_eq!([4, 5, 6, 7, 1].map(|row| bank.open(row, 8)), [1; 5], "long ago");
    }

    #[test]
    fn accesses_are_slow_while_few_threads_run() {
        let mut chipset = Chipset::new(&params());
        assert_eq!((chipset.slowness(1), chipset.slowness(2), chipset.slowness(3)), (2.0, 1.0, 1.0));
        let slow = chipset.slowness(1);
        let reached = rate(3000, chipset.read(Time::ZERO, (0, 3000), slow) - Time::ZERO);
        assert!((reached - 1500.0).abs() < 1.0, "{reached}");
        let unlimited = Chipset::new(&Machine::load("mt23108-nicmem").expect("a built-in machine").params);
        assert!(!unlimited.may_sleep() && unlimited.slowness(0) == 1.0);
    }
}
