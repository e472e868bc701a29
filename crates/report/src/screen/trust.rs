//! How far a run can be trusted, in a word with the reason; and doubts, with the remedy.

use crate::findings::{MACHINE, Tone, findings, machine_warnings};
use crate::number::{count, percent, plural};
use crate::series::{interval, is_wide};
use results::schema::{ClockKind, Environment, Measurement, Run};

/// Up to this difference between two measurements of the same thing a run is good.
const GOOD: f64 = 0.05;
/// Up to this it is rough.
const ROUGH: f64 = 0.25;

/// How far to trust a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// All of it is virtual time.
    Exact,
    Good,
    Rough,
    Poor,
    /// Nothing was measured twice.
    Unknown,
}

fn real(run: &Run) -> impl Iterator<Item = &Measurement> {
    run.results.iter().filter(|r| r.clock != ClockKind::Virtual)
}

/// Based on the difference between two measurements of the same thing, and whether there are intervals at all.
pub(super) fn level(run: &Run) -> Level {
    let (all, bare) = (real(run).count(), real(run).filter(|r| interval(r).is_none()).count());
    match run.environment.aa_noise.map(|aa| aa.floor) {
        _ if all == 0 && !run.results.is_empty() => Level::Exact,
        _ if 2 * bare > all => Level::Poor,
        None => Level::Unknown,
        Some(floor) if floor <= GOOD => Level::Good,
        Some(floor) if floor <= ROUGH => Level::Rough,
        Some(_) => Level::Poor,
    }
}

/// The level in a word, with the reason.
pub(super) fn verdict(run: &Run, level: Level) -> String {
    let all = real(run).count();
    let bare = real(run).filter(|r| interval(r).is_none()).count();
    let wide = real(run).filter(|r| is_wide(r)).count();
    let word = match level {
        Level::Exact => return "exact: simulated, the same run gives the same numbers again".to_owned(),
        Level::Good => "good",
        Level::Rough => "rough",
        Level::Poor => "poor",
        Level::Unknown => "unknown",
    };
    let mut why = vec![match run.environment.aa_noise {
        Some(aa) => format!("only differences above {} are detectable", percent(aa.floor)),
        None => "nothing was measured twice, so the smallest visible difference is not known".to_owned(),
    }];
    if wide > 0 {
        why.push(format!("{} of {} with a wide interval (!)", count(wide as u64), plural(all, "result")));
    }
    if bare > 0 {
        why.push(format!("{} without an interval (?)", count(bare as u64)));
    }
    format!("{word}: {}", why.join("; "))
}

/// Other activity of the machine.
pub(super) fn noise(env: &Environment) -> String {
    let share = |n: Option<results::schema::NoiseSummary>| n.map(|n| percent(n.stolen));
    let others = match (share(env.noise_before), share(env.noise_after)) {
        (Some(before), Some(after)) => {
            format!("other work took {before} of the time before the run, {after} after it")
        }
        (Some(one), None) | (None, Some(one)) => format!("other work took {one} of the time"),
        (None, None) => "not measured".to_owned(),
    };
    match env.aa_noise {
        Some(aa) => format!("{others}; the same thing twice differed by up to {}", percent(aa.floor)),
        None => others,
    }
}

/// The names of the warnings: the text before each remedy.
pub(super) fn warnings(env: &Environment) -> Vec<String> {
    let name = |w: &String| w.split_once(": ").map_or(w.as_str(), |(what, _)| what).to_owned();
    machine_warnings(env).iter().filter(|w| !is_missing(w)).map(name).collect()
}

/// Whether a warning is about a cell that was not measured: the run lists these separately, with the reason.
fn is_missing(warning: &str) -> bool {
    warning.starts_with("not measured")
}

/// Doubts about the numbers, each followed by its remedy: the machine first, then the results, then missing cells.
pub(super) fn doubts(run: &Run) -> Vec<String> {
    let mut all = machine_warnings(&run.environment);
    all.retain(|warning| !is_missing(warning));
    let own = findings(run).into_iter().filter(|f| f.tone == Tone::Caution && f.topic != MACHINE);
    all.extend(own.map(|f| format!("{}: {}", f.topic, f.text)));
    let mut devices: Vec<&str> = Vec::new();
    for missing in &run.missing {
        if !devices.contains(&missing.device.as_str()) {
            devices.push(&missing.device);
            let of_it = run.missing.iter().filter(|m| m.device == missing.device).count();
            all.push(format!(
                "Not measured: {} on {}: {}",
                plural(of_it, "cell"),
                missing.device,
                missing.why
            ));
        }
    }
    all
}
