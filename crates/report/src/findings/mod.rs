//! What the data says, in words, computed. Each finding is one small function from curves to text; where the
//! intervals do not carry a statement, the finding says that it cannot tell.

mod bandwidth;
mod caution;
mod devices;
mod duplex;
mod latency;
#[cfg(test)]
pub(super) mod made_up;
mod placement;
mod rails;
mod rate;
mod steps;

use super::series::{self, Series};
use bench::schema::Run;

/// What a finding is to its reader.
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
    /// What kind of statement this is.
    pub tone: Tone,
    /// Topic in a few words.
    pub topic: String,
    /// The statement.
    pub text: String,
    /// Details, one line each.
    pub items: Vec<String>,
}

impl Finding {
    fn new(tone: Tone, topic: impl Into<String>, text: impl Into<String>) -> Self {
        Self { tone, topic: topic.into(), text: text.into(), items: Vec::new() }
    }

    fn with(mut self, items: Vec<String>) -> Self {
        self.items = items;
        self
    }
}

/// All findings of a run: results first, then what weakens them.
#[must_use]
pub fn findings(run: &Run) -> Vec<Finding> {
    let all = series::series(std::slice::from_ref(run));
    let measured: Vec<Series<'_>> = all.iter().filter(|s| !s.is_floor()).cloned().collect();
    let aa = run.environment.aa_noise.map(|noise| noise.floor);
    let mut out = Vec::new();
    if run.results.is_empty() {
        out.push(Finding::new(Tone::CannotTell, "Nothing measured", "The file has no results."));
    }
    out.extend(devices::beside(run, &all));
    out.extend(latency::smallest(&measured));
    out.extend(rate::best(&measured));
    out.extend(bandwidth::saturation(&measured));
    out.extend(duplex::gain(&measured));
    out.extend(rails::peaks(&measured, run));
    out.extend(placement::cost(&measured, aa));
    out.extend(steps::steps(&all));
    out.extend(caution::precision(&run.results));
    out.extend(caution::flagged(&run.results));
    out.extend(caution::machine(&run.environment));
    out
}

/// Splits curves into groups of equal key, in order of the key.
fn grouped<'a, 's, K: Ord>(
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
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// ` on shm` where several devices were measured.
fn on_device(s: &Series<'_>, several: bool) -> String {
    let time = if s.is_virtual() { " (virtual)" } else { "" };
    if several { format!(" on {}{time}", s.device) } else { String::new() }
}

fn several_devices(all: &[Series<'_>]) -> bool {
    all.windows(2).any(|pair| pair[0].device != pair[1].device)
}
