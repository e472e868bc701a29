//! The setups of the multirail paper: machines, cases, sizes.

use crate::claims::quantity::{Quantity, Tuning};
use crate::claims::setup::Setup;

/// The benchmarks have no window, and their bursts have 20 writes always.
const TUNING: Tuning = Tuning { window: 2, burst_bytes: 1, signal: 1 };

/// One card with one port.
pub(crate) const SINGLE: Setup = Setup { card: "model:connectx-single", tuning: TUNING, options: "" };
/// One card with two ports.
pub(crate) const PORTS: Setup = Setup { card: "model:connectx-multiport", tuning: TUNING, options: "" };
/// Two cards with a port each.
pub(crate) const CARDS: Setup = Setup { card: "model:connectx-multihca", tuning: TUNING, options: "" };

/// A thread for all rails, and a thread for each.
pub(crate) const SERIAL: &str = "serial";
pub(crate) const THREADS: &str = "threads";

/// Sizes of Figure 4.
pub(crate) const SMALL: [u64; 10] = [8, 16, 32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10];
/// Sizes of Figures 5 to 8.
pub(crate) const SWEEP: [u64; 19] = [
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
];
/// Sizes searched for a peak.
pub(crate) const PEAK: [u64; 7] = [32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// The largest size.
pub(crate) const LARGEST: u64 = 2 << 20;
/// The least ratio that counts as an improvement.
pub(crate) const VISIBLE: f64 = 1.05;

/// The engine and the experiment measured on a setup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailSetup {
    pub(crate) setup: Setup,
    pub(crate) engine: &'static str,
}

pub(crate) const ONE: RailSetup = RailSetup { setup: SINGLE, engine: "single" };
pub(crate) const PORTS_SERIAL: RailSetup = RailSetup { setup: PORTS, engine: SERIAL };
pub(crate) const PORTS_THREADS: RailSetup = RailSetup { setup: PORTS, engine: THREADS };
pub(crate) const CARDS_SERIAL: RailSetup = RailSetup { setup: CARDS, engine: SERIAL };
pub(crate) const CARDS_THREADS: RailSetup = RailSetup { setup: CARDS, engine: THREADS };
/// Configuration (c): two channels over a single rail.
pub(crate) const CHANNELS_SERIAL: RailSetup = RailSetup { setup: SINGLE, engine: SERIAL };
pub(crate) const CHANNELS_THREADS: RailSetup = RailSetup { setup: SINGLE, engine: THREADS };

impl RailSetup {
    /// This setup with values changed, for a what-if.
    pub(crate) const fn with(self, options: &'static str) -> Self {
        Self { setup: self.setup.with(options), ..self }
    }

    /// 10^6 bytes per second, one way.
    pub(crate) fn unidirectional(self, size: u64) -> Quantity {
        self.setup.rails("rail-bandwidth", self.engine, "", size)
    }

    /// 10^6 bytes per second, both ways together.
    pub(crate) fn bidirectional(self, size: u64) -> Quantity {
        self.setup.rails("rail-bibw", self.engine, "", size)
    }

    /// Microseconds for each of 20 writes.
    pub(crate) fn latency(self, size: u64) -> Quantity {
        self.setup.rails("rail-latency", self.engine, "", size)
    }

    /// Microseconds of all 20 in posting.
    pub(crate) fn post(self, size: u64) -> Quantity {
        self.setup.rails("rail-breakdown", self.engine, "post", size)
    }

    /// Microseconds of all 20 in waiting.
    pub(crate) fn wait(self, size: u64) -> Quantity {
        self.setup.rails("rail-breakdown", self.engine, "wait", size)
    }

    /// The largest bandwidth one way.
    pub(crate) fn peak(self) -> Quantity {
        Quantity::greatest(PEAK.map(|n| self.unidirectional(n)))
    }

    /// The largest bandwidth both ways.
    pub(crate) fn bipeak(self) -> Quantity {
        Quantity::greatest(PEAK.map(|n| self.bidirectional(n)))
    }
}

/// The largest size, from the smallest on, at which `ratio`, of new to old, shows no improvement.
pub(crate) fn above(sizes: &[u64], ratio: impl Fn(u64) -> Quantity) -> Quantity {
    // 1 or more as long as the ratio is below the visible one.
    let points = sizes.iter().map(|&n| (n as f64, Quantity::from(VISIBLE) / ratio(n)));
    Quantity::last(points.collect(), (1.0 + f64::EPSILON).into())
}

/// The smallest size from which on there is an improvement.
pub(crate) fn from(sizes: &[u64], ratio: impl Fn(u64) -> Quantity) -> Quantity {
    above(sizes, ratio) * 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::quantity::Source;
    use crate::{NoValue, Probe};
    use bench::launch::world;

    /// Measures for real, on the modelled cards.
    struct Cards;

    impl Source for Cards {
        fn measured(&self, probe: &Probe) -> Result<f64, NoValue> {
            let device = probe.changed("payload=hole");
            world::measure(&device, &probe.cell, &probe.settings())
                .map(|measured| measured.value)
                .map_err(|fault| NoValue::Failed(fault.to_string()))
        }

        fn parameter(&self, _device: &str, key: &str) -> Result<f64, NoValue> {
            Err(NoValue::Failed(key.to_owned()))
        }
    }

    fn value(quantity: &Quantity) -> f64 {
        quantity.value(&Cards).expect("a value")
    }

    /// Goal: the statement about the gain beyond two rails (`R9` in the contradictions) agrees with the model.
    #[test]
    fn a_sleeping_processor_makes_the_gain_that_two_rails_cannot() {
        const ALL_AWAKE: &str = "chipset.asleep_ratio=1";
        let gain = |options| {
            let [one, two] = [ONE, CARDS_THREADS].map(|case| case.with(options).unidirectional(1 << 20));
            (value(&one), value(&two.above(one)))
        };
        let (asleep, beyond) = gain("");
        let (awake, gain) = gain(ALL_AWAKE);
        assert!((asleep - 1350.0).abs() < 20.0 && beyond > 140.0, "{asleep} {beyond}");
        assert!((awake - 1800.0).abs() < 20.0 && (gain - 86.0).abs() < 3.0, "{awake} {gain}");
    }

    #[test]
    fn thresholds_are_found_where_an_improvement_shows() {
        let sizes = [8, 16, 32, 64];
        let ratio = |n: u64| Quantity::from(if n >= 32 { 1.06 } else { 1.04 });
        assert_eq!((value(&above(&sizes, ratio)), value(&from(&sizes, ratio))), (16.0, 32.0));
        assert_eq!(value(&above(&sizes, |_| 1.0.into())), 64.0, "nowhere");
        assert_eq!(value(&above(&sizes, |_| 2.0.into())), 0.0, "everywhere");
    }
}
