//! What the cards of one machine share: its chipset, and the memory behind it. Reads and writes of all cards take turns.
//! While few threads run, the other processors sleep, and are slower to say what they have cached: every access by a card
//! then takes longer.

use host::Time;

use super::at_rate;
use super::server::Server;
use crate::machine::Params;

/// The chipset of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chipset {
    server: Server,
    read_mbps: f64,
    write_mbps: f64,
    awake_threads: usize,
    asleep_ratio: f64,
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
        }
    }

    /// Whether it matters how many threads run.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep_ratio < 1.0
    }

    /// How much longer accesses take than at best while so many threads run.
    pub(crate) fn slowness(&self, threads: usize) -> f64 {
        if threads < self.awake_threads { 1.0 / self.asleep_ratio } else { 1.0 }
    }

    /// A card reads `bytes`; when the chipset is done with them.
    pub(crate) fn read(&mut self, now: Time, bytes: u64, slowness: f64) -> Time {
        self.access(now, bytes, self.read_mbps, slowness)
    }

    /// A card writes `bytes`; when the chipset is done with them.
    pub(crate) fn write(&mut self, now: Time, bytes: u64, slowness: f64) -> Time {
        self.access(now, bytes, self.write_mbps, slowness)
    }

    fn access(&mut self, now: Time, bytes: u64, mbps: f64, slowness: f64) -> Time {
        if mbps == 0.0 { now } else { self.server.reserve(now, at_rate(bytes, mbps / slowness)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use crate::machine::Machine;

    fn params() -> Params {
        let mut params = Machine::load("mt23108-nicmem").expect("it comes along").params;
        let c = &mut params.chipset;
        (c.read_mbps, c.write_mbps, c.awake_threads, c.asleep_ratio) = (3000.0, 6000.0, 2.0, 0.5);
        params
    }

    #[test]
    fn reads_and_writes_share_it() {
        let (mut chipset, mut end) = (Chipset::new(&params()), Time::ZERO);
        for _ in 0..100 {
            chipset.read(Time::ZERO, 2048, 1.0);
            end = chipset.write(Time::ZERO, 2048, 1.0);
        }
        let reached = rate(2 * 100 * 2048, end - Time::ZERO);
        assert!((reached - 4000.0).abs() < 1.0, "{reached}");
    }

    #[test]
    fn it_is_slow_while_few_threads_run() {
        let mut chipset = Chipset::new(&params());
        assert_eq!((chipset.slowness(1), chipset.slowness(2), chipset.slowness(3)), (2.0, 1.0, 1.0));
        let slow = chipset.slowness(1);
        let reached = rate(3000, chipset.read(Time::ZERO, 3000, slow) - Time::ZERO);
        assert!((reached - 1500.0).abs() < 1.0, "{reached}");
        let unlimited = Chipset::new(&Machine::load("mt23108-nicmem").expect("it comes along").params);
        assert!(!unlimited.may_sleep() && unlimited.slowness(0) == 1.0);
    }
}
