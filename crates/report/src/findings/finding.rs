//! [`Finding`]: a statement in words, and the vocabulary shared by all findings.

use crate::number::{display_unit, value};
use crate::series::{Series, interval, low_high};
use results::schema::{ClockKind, Environment, Measurement};

/// How a reader should take a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The data carries it.
    Fact,
    /// The data does not carry a statement.
    CannotTell,
    /// It weakens the numbers.
    Caution,
}

/// One finding in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of statement.
    pub tone: Tone,
    /// Topic in a few words.
    pub topic: String,
    /// The statement.
    pub text: String,
    /// Details, one line each.
    pub items: Vec<String>,
}

impl Finding {
    pub(super) fn new(tone: Tone, topic: impl Into<String>, text: impl Into<String>) -> Self {
        Self { tone, topic: topic.into(), text: text.into(), items: Vec::new() }
    }

    pub(super) fn with(mut self, items: Vec<String>) -> Self {
        self.items = items;
        self
    }
}

/// The noise of a device: the difference between two measurements of the same thing.
pub(super) struct Noise<'a>(pub(super) &'a Environment);

impl Noise<'_> {
    pub(super) fn on(&self, device: &str) -> f64 {
        let known = self.0.devices.iter().find(|info| info.name == device);
        let own = known.filter(|info| info.aa_noise.is_some()).map_or(self.0.aa_noise, |info| info.aa_noise);
        let exact = known.is_some_and(|info| info.clock == ClockKind::Virtual);
        own.filter(|_| !exact).map_or(0.0, |aa| aa.floor)
    }
}

/// A result with its interval: `0.120 µs (0.119..0.121)`.
pub(super) fn known(r: &Measurement) -> String {
    let median = value(r.median, &r.unit);
    let (_, scale) = display_unit(&r.unit, r.median);
    match interval(r) {
        _ if r.clock == ClockKind::Virtual => median,
        Some(ends) => format!("{median} ({})", low_high(ends.map(|end| end * scale))),
        None => format!("{median} (no interval)"),
    }
}

/// Splits curves into groups of equal key, in order of the key.
pub(super) fn grouped<'a, 's, K: Ord>(
    all: impl IntoIterator<Item = &'s Series<'a>>,
    key: impl Fn(&Series<'a>) -> K,
) -> Vec<Vec<&'s Series<'a>>>
where
    'a: 's,
{
    let mut map = std::collections::BTreeMap::<K, Vec<&'s Series<'a>>>::new();
    for s in all {
        map.entry(key(s)).or_default().push(s);
    }
    map.into_values().collect()
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// ` on shm` if several devices were measured.
pub(super) fn on_device(s: &Series<'_>, several: bool) -> String {
    let time = if s.is_virtual() { " (virtual)" } else { "" };
    if several { format!(" on {}{time}", s.device) } else { String::new() }
}

pub(super) fn several_devices(all: &[Series<'_>]) -> bool {
    all.windows(2).any(|pair| pair[0].device != pair[1].device)
}
