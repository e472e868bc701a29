//! [`Quantity`]: a number computed from measurements, as data, so that the required measurements can be listed in
//! advance.

use results::variant::{Variant, factor};
use std::collections::BTreeSet;
use std::ops::{Add, Div, Mul, Sub};

use bench::experiment::{Cell, Settings};

use crate::error::NoValue;

/// One thing to measure on one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probe {
    /// The device's name, options included.
    pub device: String,
    /// The cell to measure.
    pub cell: Cell,
    /// How.
    pub tuning: Tuning,
}

/// The settings that papers differ in; all others are the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuning {
    /// Messages in flight in a stream.
    pub window: u32,
    /// Bytes of a burst of a stream.
    pub burst_bytes: u64,
    /// In ping-pongs, one of this many send requests is signaled.
    pub signal: u32,
}

/// Minimum and maximum messages of a burst: large enough that filling the pipeline does not count, and no larger than
/// useful.
const BURST: [u64; 2] = [8, 2048];

impl Probe {
    /// The settings of the measurement. Nothing travels within requests: the interfaces of that time did not do it.
    /// Contents are not compared, because only the ends of messages move ([`crate::run()`]).
    #[must_use]
    pub fn settings(&self) -> Settings {
        let burst = (self.tuning.burst_bytes / self.cell.size.max(1)).clamp(BURST[0], BURST[1]);
        Settings {
            window: self.tuning.window,
            burst: burst as u32,
            signal: self.tuning.signal,
            inline: 0,
            verify: false,
            ..Settings::default()
        }
    }
}

impl Probe {
    /// Whether data are computed with.
    pub(crate) fn computes(&self) -> bool {
        self.cell.experiment.starts_with("nas-")
    }

    /// Whether all of the data must really be moved: it is used in computations, or contains the address of a
    /// process's window.
    fn needs_all(&self) -> bool {
        self.computes() || ["mpi-put-", "mpi-get-"].iter().any(|name| self.cell.experiment.starts_with(name))
    }

    /// The device's name with values changed, and as few bytes moving as are needed: times are the same.
    pub(crate) fn device_with(&self, changes: &str) -> String {
        let payload = if self.needs_all() { "payload=bytes" } else { "payload=hole" };
        self.changed(&if changes.is_empty() { payload.to_owned() } else { format!("{payload},{changes}") })
    }

    /// The device's name without options.
    pub(crate) fn card(&self) -> &str {
        self.device.split('(').next().unwrap_or(&self.device)
    }

    /// The device's name with values changed, except for values that the name already changes.
    pub(crate) fn changed(&self, changes: &str) -> String {
        let Some((card, own)) = self.device.split_once('(') else {
            return if changes.is_empty() {
                self.device.clone()
            } else {
                format!("{}({changes})", self.device)
            };
        };
        let key = |option: &str| option.split('=').next().unwrap_or(option).to_owned();
        let own_keys: Vec<String> = own.trim_end_matches(')').split(',').map(key).collect();
        let others =
            changes.split(',').filter(|change| !change.is_empty() && !own_keys.contains(&key(change)));
        let all: Vec<&str> = others.chain([own]).collect();
        format!("{card}({}", all.join(","))
    }

    /// About how long it takes to measure, for an order: bytes that move, and processes that take part.
    pub(crate) fn weight(&self) -> u64 {
        let ranks = bench::experiment::find(&self.cell.experiment).map_or(2, |e| e.ranks(&self.cell.variant));
        let quantity = self.cell.variant.get(factor::QUANTITY);
        if self.computes() {
            return u64::MAX;
        }
        let stream = ["bibw", "nicmem", "availability"].contains(&self.cell.experiment.as_str())
            || self.cell.experiment.ends_with("bandwidth")
            || quantity == Some("bandwidth");
        let bytes = if stream { self.cell.size * u64::from(self.settings().burst) } else { self.cell.size };
        (bytes + 4096) * u64::from(ranks)
    }
}

/// How several numbers are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Sum,
    Difference,
    Product,
    Ratio,
    Greatest,
    Least,
    Mean,
}

/// A number computed from measurements and parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantity {
    /// A constant.
    Constant(f64),
    /// A machine file's value: device, key.
    Parameter(&'static str, &'static str),
    /// Measured.
    Measured(Box<Probe>),
    /// Computed.
    Joined(Operator, Vec<Self>),
    /// The last point, from the first on, with a value at least the other quantity's.
    Last(Vec<(f64, Self)>, Box<Self>),
    /// To the nearest multiple of a step.
    Rounded(Box<Self>, f64),
}

/// A source of measurements.
pub(crate) trait Source {
    /// The measured value, or why there is none.
    fn measured(&self, probe: &Probe) -> Result<f64, NoValue>;
    /// A machine file's value.
    fn parameter(&self, device: &str, key: &str) -> Result<f64, NoValue>;
}

impl Quantity {
    /// A cell of `experiment` with these factors.
    pub(crate) fn cell(
        device: &str,
        tuning: Tuning,
        experiment: &str,
        factors: &[(&str, &str)],
        size: u64,
    ) -> Self {
        let variant: Variant = factors.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let cell = Cell { experiment: experiment.to_owned(), variant, size, twin: false };
        Self::Measured(Box::new(Probe { device: device.to_owned(), cell, tuning }))
    }

    /// The largest of several.
    pub(crate) fn greatest(all: impl IntoIterator<Item = Self>) -> Self {
        Self::Joined(Operator::Greatest, all.into_iter().collect())
    }

    /// The smallest of several.
    pub(crate) fn least(all: impl IntoIterator<Item = Self>) -> Self {
        Self::Joined(Operator::Least, all.into_iter().collect())
    }

    /// The mean of several.
    pub(crate) fn mean(all: impl IntoIterator<Item = Self>) -> Self {
        Self::Joined(Operator::Mean, all.into_iter().collect())
    }

    /// The last point, from the first on, with a value of at least `level`; 0 if the first is below.
    pub(crate) fn last(points: Vec<(f64, Self)>, level: Self) -> Self {
        Self::Last(points, Box::new(level))
    }

    /// Rounds to the nearest multiple of `step`, as the paper prints no more.
    pub(crate) fn rounded(self, step: f64) -> Self {
        Self::Rounded(Box::new(self), step)
    }

    /// By how many per cent `self` is above `base`: how papers state gains in bandwidth.
    pub(crate) fn above(self, base: Self) -> Self {
        (self / base - 1.0) * 100.0
    }

    /// By how many per cent of `base` `self` is below it: how papers state gains in latency.
    pub(crate) fn below(self, base: Self) -> Self {
        (Self::Constant(1.0) - self / base) * 100.0
    }

    /// Adds all probes that it needs.
    pub(crate) fn probes(&self, into: &mut BTreeSet<Probe>) {
        match self {
            Self::Measured(probe) => {
                into.insert((**probe).clone());
            }
            Self::Joined(_, parts) => parts.iter().for_each(|part| part.probes(into)),
            Self::Last(points, level) => {
                points.iter().for_each(|(_, point)| point.probes(into));
                level.probes(into);
            }
            Self::Rounded(part, _) => part.probes(into),
            Self::Constant(_) | Self::Parameter(..) => {}
        }
    }

    /// Its value, or why there is none.
    pub(crate) fn value(&self, source: &dyn Source) -> Result<f64, NoValue> {
        let value = match self {
            Self::Constant(value) => *value,
            Self::Parameter(device, key) => source.parameter(device, key)?,
            Self::Measured(probe) => source.measured(probe)?,
            Self::Joined(operator, parts) => {
                let parts: Vec<f64> =
                    parts.iter().map(|part| part.value(source)).collect::<Result<_, _>>()?;
                operator.apply(&parts)
            }
            Self::Last(points, level) => {
                let (level, mut last) = (level.value(source)?, 0.0);
                for (x, point) in points {
                    if point.value(source)? < level {
                        break;
                    }
                    last = *x;
                }
                last
            }
            Self::Rounded(part, step) => (part.value(source)? / step).round() * step,
        };
        if value.is_finite() { Ok(value) } else { Err(NoValue::NotFinite) }
    }
}

impl Operator {
    /// The result for these operands.
    fn apply(self, parts: &[f64]) -> f64 {
        let all = || parts.iter().copied();
        let pair = |f: fn(f64, f64) -> f64| all().reduce(f).unwrap_or(f64::NAN);
        match self {
            Self::Sum => all().sum(),
            Self::Product => all().product(),
            Self::Difference => pair(|a, b| a - b),
            Self::Ratio => pair(|a, b| a / b),
            Self::Greatest => pair(f64::max),
            Self::Least => pair(f64::min),
            Self::Mean => all().sum::<f64>() / parts.len() as f64,
        }
    }
}

impl From<f64> for Quantity {
    fn from(value: f64) -> Self {
        Self::Constant(value)
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $join:ident),*) => {$(
        impl<T: Into<Quantity>> $operator<T> for Quantity {
            type Output = Self;
            fn $method(self, other: T) -> Self {
                Self::Joined(Operator::$join, vec![self, other.into()])
            }
        }
    )*};
}

operators!(Add add Sum, Sub sub Difference, Mul mul Product, Div div Ratio);

#[cfg(test)]
pub(crate) mod fakes {
    use super::*;

    /// A source that answers every probe by a function of it.
    pub(crate) struct FakeSource<F: Fn(&Probe) -> Result<f64, NoValue>>(pub(crate) F);

    impl<F: Fn(&Probe) -> Result<f64, NoValue>> Source for FakeSource<F> {
        fn measured(&self, probe: &Probe) -> Result<f64, NoValue> {
            (self.0)(probe)
        }

        fn parameter(&self, _device: &str, key: &str) -> Result<f64, NoValue> {
            if key == "two" { Ok(2.0) } else { Err(NoValue::Failed(format!("no {key}"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fakes::FakeSource;
    use super::*;

    const TUNING: Tuning = Tuning { window: 4, burst_bytes: 1 << 20, signal: 1 };

    fn of_size(size: u64) -> Quantity {
        Quantity::cell("d", TUNING, "latency", &[("op", "write")], size)
    }

    #[test]
    fn numbers_are_computed_from_measurements() {
        let source = FakeSource(|probe: &Probe| Ok(probe.cell.size as f64));
        let value = |q: Quantity| q.value(&source).expect("a value");
        assert_eq!(value(of_size(12).above(of_size(8))), 50.0);
        assert_eq!(value(of_size(6).below(of_size(8))), 25.0);
        assert_eq!(value(Quantity::greatest([1, 5, 3].map(of_size))), 5.0);
        assert_eq!(value(Quantity::least([4, 2, 3].map(of_size))), 2.0);
        assert_eq!(value(Quantity::mean([4, 2, 3].map(of_size))), 3.0);
        assert_eq!(value(of_size(3) - 1.0 + of_size(2) * Quantity::Parameter("d", "two")), 6.0);
    }

    #[test]
    fn a_knee_is_the_last_point_before_the_first_fall() {
        let source =
            FakeSource(|probe: &Probe| Ok(if (3..7).contains(&probe.cell.size) { 1.0 } else { 9.0 }));
        let last = |sizes: &[u64]| {
            let points = sizes.iter().map(|n| (*n as f64, of_size(*n))).collect();
            Quantity::last(points, Quantity::from(5.0)).value(&source)
        };
        assert_eq!([last(&[1, 2, 4, 8]), last(&[4, 8]), last(&[1, 8])], [Ok(2.0), Ok(0.0), Ok(8.0)]);
        assert_eq!(Quantity::from(0.04).rounded(0.1).value(&source), Ok(0.0));
        assert!((Quantity::from(0.26).rounded(0.1).value(&source).expect("a value") - 0.3).abs() < 1e-12);
    }

    #[test]
    fn quantity_without_value_has_the_reason() {
        let too_big = || NoValue::Failed("too big".to_owned());
        let source = FakeSource(|probe: &Probe| if probe.cell.size > 1 { Err(too_big()) } else { Ok(0.0) });
        assert_eq!((of_size(1) / of_size(1)).value(&source), Err(NoValue::NotFinite));
        assert_eq!((of_size(1) + of_size(2)).value(&source), Err(too_big()));
        assert_eq!(Quantity::Parameter("d", "x").value(&source), Err(NoValue::Failed("no x".to_owned())));
    }

    #[test]
    fn probes_are_listed_once_each() {
        let mut probes = BTreeSet::new();
        (of_size(1) + of_size(2).above(of_size(1))).probes(&mut probes);
        assert_eq!(probes.len(), 2);
    }

    #[test]
    fn a_what_if_prevails_over_a_change_of_all_cards() {
        let device = |device: &str, changes| {
            let q = Quantity::cell(device, TUNING, "latency", &[], 8);
            let Quantity::Measured(probe) = q else { unreachable!("a cell") };
            probe.changed(changes)
        };
        assert_eq!(device("model:x", ""), "model:x");
        assert_eq!(device("model:x", "a.b=1"), "model:x(a.b=1)");
        assert_eq!(device("model:x(a.b=2)", "a.b=1,c.d=3"), "model:x(c.d=3,a.b=2)");
        assert_eq!(device("model:x(a.b=2,c.d=3)", ""), "model:x(a.b=2,c.d=3)");
    }

    #[test]
    fn bursts_are_bounded() {
        let burst = |size| {
            let Quantity::Measured(probe) = of_size(size) else { unreachable!("a cell") };
            probe.settings().burst
        };
        assert_eq!([burst(1), burst(4096), burst(1 << 20)], [2048, 256, 8]);
        assert!(
            of_size(8).value(&FakeSource(|probe: &Probe| Ok(f64::from(probe.settings().inline)))) == Ok(0.0)
        );
    }
}
