//! Computed statements about the data, in words. Each finding is one small function from curves to text; if the
//! intervals do not support a statement, the finding says that it is undecided.

mod bandwidth;
mod caution;
mod devices;
mod duplex;
mod finding;
mod latency;
#[cfg(test)]
pub(super) mod made_up;
mod offsets;
mod placement;
mod rails;
mod rate;
mod steps;

use super::series::{self, Series};
pub(super) use bandwidth::shape;
pub(super) use caution::MACHINE;
use finding::Noise;
pub use finding::{Finding, Tone};
use results::schema::{Environment, Run};

/// Warnings about the machine, one per line: the problem, and after a colon the remedy.
pub(super) fn machine_warnings(env: &Environment) -> Vec<String> {
    caution::machine(env).map_or_else(Vec::new, |found| found.items)
}

/// All findings of a run: results first, then reasons to distrust them.
#[must_use]
pub fn findings(run: &Run) -> Vec<Finding> {
    let all = series::series(std::slice::from_ref(run));
    let measured: Vec<Series<'_>> = all.iter().filter(|s| !s.is_floor()).cloned().collect();
    let noise = &Noise(&run.environment);
    let mut out = Vec::new();
    if run.results.is_empty() {
        out.push(Finding::new(Tone::CannotTell, "Nothing measured", "The file has no results."));
    }
    out.extend(devices::beside(run, &all));
    out.extend(latency::smallest(&measured, noise));
    out.extend(rate::best(&measured, noise));
    out.extend(bandwidth::saturation(&measured, noise));
    out.extend(duplex::gain(&measured, noise));
    out.extend(rails::peaks(&measured, run));
    out.extend(placement::cost(&measured, noise));
    out.extend(offsets::cost(&measured, noise));
    out.extend(steps::steps(&all, noise));
    out.extend(caution::beaten(&run.results, noise));
    out.extend(caution::precision(&run.results));
    out.extend(caution::flagged(&run.results));
    out.extend(caution::machine(&run.environment));
    out
}
