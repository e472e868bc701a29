//! Data path: [`StoreMeter`] measures, while messages are sent, which stores to memory that a peer reads cost less.
//!
//! A plain store takes its line from the caches of the processor that has read it before. Between processors that share a cache
//! this is the fastest way, and the reader finds the data in a cache. Between others each line waits for a distant cache, and
//! stores that bypass the caches cost less. Which processors a process and its peer run on changes while they run, most of all in
//! virtual machines: on one with two processors of a Zen 3, plain stores took 28 to 60 ns per KiB for minutes, then 270 to 350;
//! stores that bypass the caches took 60 to 130 all the time. So no figure of an earlier run decides.

use verbs::Result;
use verbs::host::real::Clock;

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// By ordinary stores.
    Plain,
    /// By stores that bypass the caches.
    Bypassing,
}

/// The shortest block that is measured. Of shorter ones, buffers of the processor hide the time of stores that bypass the caches.
const MEASURED_MIN: usize = 8 << 10;
/// Every this many measured blocks, one is stored the other way.
const PROBE_EVERY: u32 = 32;
/// The first probe comes after this many blocks.
const FIRST_PROBE: u32 = 4;
/// Plain stores are left when they cost this many times as much as the others: their data stay in a cache for the reader.
const LEAVE_RATIO: f32 = 1.25;
/// The weight of a new measurement.
const WEIGHT: f32 = 0.25;

/// The costs of both kinds of stores, as measured last.
#[derive(Clone, Copy, Debug)]
pub struct StoreMeter {
    /// Time per byte; 0 before the first measurement.
    plain: f32,
    bypassing: f32,
    /// Measured blocks until the next probe.
    until_probe: u32,
    /// Calls of [`StoreMeter::is_near`] until the next that asks for plain stores.
    until_asked: u32,
}

impl Default for StoreMeter {
    fn default() -> Self {
        Self { plain: 0.0, bypassing: 0.0, until_probe: FIRST_PROBE, until_asked: PROBE_EVERY }
    }
}

impl StoreMeter {
    /// The stores that cost less.
    fn preferred(&self) -> Stores {
        match self.bypassing > 0.0 && self.plain > LEAVE_RATIO * self.bypassing {
            true => Stores::Bypassing,
            false => Stores::Plain,
        }
    }

    /// Whether plain stores cost less. While they do not, every 32nd call returns true, so that a caller that sends little else
    /// measures them again.
    pub fn is_near(&mut self) -> bool {
        if self.preferred() == Stores::Plain {
            return true;
        }
        self.until_asked = self.until_asked.checked_sub(1).unwrap_or(PROBE_EVERY - 1);
        self.until_asked == 0
    }

    /// Calls `store` with the kind of stores for a block of `len` bytes, and measures it.
    ///
    /// # Errors
    /// Those of `store`.
    #[inline(never)]
    pub fn store(&mut self, len: usize, store: impl FnOnce(Stores) -> Result<()>) -> Result<()> {
        if len < MEASURED_MIN {
            return store(self.preferred());
        }
        let stores = self.next();
        let clock = Clock::get();
        let begin = clock.stamp();
        store(stores)?;
        self.record(stores, clock.stamp().0.saturating_sub(begin.0) as f32 / len as f32);
        Ok(())
    }

    /// The stores for the next measured block.
    fn next(&mut self) -> Stores {
        self.until_probe = self.until_probe.checked_sub(1).unwrap_or(PROBE_EVERY - 1);
        match (self.preferred(), self.until_probe) {
            (Stores::Plain, 0) => Stores::Bypassing,
            (Stores::Bypassing, 0) => Stores::Plain,
            (preferred, _) => preferred,
        }
    }

    /// Records the time per byte of a block. A block during which the process was interrupted counts at most twice the known time.
    fn record(&mut self, stores: Stores, cost: f32) {
        let known = match stores {
            Stores::Plain => &mut self.plain,
            Stores::Bypassing => &mut self.bypassing,
        };
        *known = if *known > 0.0 { *known + WEIGHT * (cost.min(2.0 * *known) - *known) } else { cost };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores `count` blocks that cost this much; returns how many were stored plainly.
    fn run(meter: &mut StoreMeter, count: u32, [plain, bypassing]: [f32; 2]) -> u32 {
        let one = |meter: &mut StoreMeter| {
            let stores = meter.next();
            meter.record(stores, if stores == Stores::Plain { plain } else { bypassing });
            u32::from(stores == Stores::Plain)
        };
        (0..count).map(|_| one(meter)).sum()
    }

    #[test]
    fn the_cheaper_stores_are_used_after_the_first_probe() {
        let (near, far) = ([45.0, 70.0], [300.0, 100.0]);
        let mut meter = StoreMeter::default();
        assert!(run(&mut meter, 330, near) >= 318, "plain but for the probes");
        assert!(meter.is_near());
        // Both processes move to distant processors, and back.
        run(&mut meter, 100, far);
        assert!(run(&mut meter, 330, far) <= 12 && meter.preferred() == Stores::Bypassing);
        assert_eq!((0..330).filter(|_| meter.is_near()).count(), 10, "some ask for plain stores");
        run(&mut meter, 400, near);
        assert!(run(&mut meter, 330, near) >= 318);
    }

    #[test]
    fn one_interruption_changes_nothing() {
        let mut meter = StoreMeter::default();
        run(&mut meter, 100, [45.0, 70.0]);
        meter.record(Stores::Plain, 1e9);
        assert_eq!(meter.preferred(), Stores::Plain);
        let mut meter = StoreMeter::default();
        run(&mut meter, 100, [300.0, 100.0]);
        meter.record(Stores::Bypassing, 1e9);
        assert_eq!(meter.preferred(), Stores::Bypassing);
    }

    #[test]
    fn short_blocks_are_stored_as_long_ones_are_and_not_measured() {
        let mut meter = StoreMeter::default();
        let mut used = Vec::new();
        for _ in 0..100 {
            meter
                .store(MEASURED_MIN - 1, |stores| {
                    used.push(stores);
                    Ok(())
                })
                .expect("stored");
        }
        assert!(used.iter().all(|stores| *stores == Stores::Plain) && meter.plain == 0.0);
        meter.store(MEASURED_MIN, |_| Ok(())).expect("stored");
        run(&mut meter, 100, [300.0, 100.0]);
        meter
            .store(100, |stores| {
                assert_eq!(stores, Stores::Bypassing);
                Ok(())
            })
            .expect("stored");
    }
}
