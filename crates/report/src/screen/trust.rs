//! How far a run can be trusted, in a word with the reason; and doubts, with the remedy.

use crate::findings::{MACHINE, Tone, findings, machine_warnings};
use crate::number::{count, percent, plural};
use crate::series::{interval, is_wide};
use results::schema::{ClockKind, Environment, Measurement, Run};

/// Up to this difference between two measurements of the same thing a run is good.
const FLOOR_GOOD: f64 = 0.05;
/// Up to this difference it is rough.
const FLOOR_ROUGH: f64 = 0.25;
/// Up to this share of results with a wide interval, or without one, a run is good.
const WIDE_GOOD: f64 = 0.1;
/// Up to this share it is rough.
const WIDE_ROUGH: f64 = 0.5;

/// How far to trust a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// All of it is virtual time.
    Exact,
    Good,
    /// Nothing was measured twice.
    Unknown,
    Rough,
    Poor,
}

fn real(run: &Run) -> impl Iterator<Item = &Measurement> {
    run.results.iter().filter(|r| r.clock != ClockKind::Virtual)
}

/// The worse of two levels: that of the difference between two measurements of the same thing, and that of the share
/// of results without a narrow interval.
pub(super) fn level(run: &Run) -> Level {
    let all = real(run).count();
    if all == 0 && !run.results.is_empty() {
        return Level::Exact;
    }
    let repetition = match run.environment.aa_noise {
        None => Level::Unknown,
        Some(aa) => graded(aa.floor, FLOOR_GOOD, FLOOR_ROUGH),
    };
    let imprecise = real(run).filter(|r| is_wide(r) || interval(r).is_none()).count();
    repetition.max(graded(imprecise as f64 / all.max(1) as f64, WIDE_GOOD, WIDE_ROUGH))
}

/// The level of a value that is better the lower it is.
fn graded(value: f64, good: f64, rough: f64) -> Level {
    match value {
        _ if value <= good => Level::Good,
        _ if value <= rough => Level::Rough,
        _ => Level::Poor,
    }
}

/// The level in a word, with the reasons: how many results are imprecise, and which differences the others can show.
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
    let mut why = Vec::new();
    if wide > 0 {
        why.push(format!("{} of {} with a wide interval (!)", count(wide as u64), plural(all, "result")));
    }
    if bare > 0 {
        why.push(format!("{} of {} without an interval (?)", count(bare as u64), plural(all, "result")));
    }
    match run.environment.aa_noise {
        Some(aa) if wide + bare == 0 => {
            why.push(format!("only differences above {} are detectable", percent(aa.floor)));
        }
        Some(aa) if wide + bare < all => {
            why.push(format!("of the others, only differences above {} are detectable", percent(aa.floor)));
        }
        Some(_) => {}
        None => {
            why.push(
                "nothing was measured twice, so the smallest visible difference is not known".to_owned(),
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use results::schema::AaNoise;

    /// A run of `all` results. The first `wide` have a wide interval, the next `bare` have none. Two measurements of the
    /// same thing differed by up to `floor`.
    fn run(all: usize, wide: usize, bare: usize, floor: f64) -> Run {
        let mut run =
            Run::from_json(include_str!("../../tests/recorded/shm-quick.json")).expect("a result file");
        let narrow = Measurement { median: 100.0, ci95: Some([99.0, 101.0]), ..run.results[0].clone() };
        run.results = (0..all)
            .map(|at| match at {
                _ if at < wide => Measurement { ci95: Some([80.0, 120.0]), ..narrow.clone() },
                _ if at < wide + bare => Measurement { ci95: None, ..narrow.clone() },
                _ => narrow.clone(),
            })
            .collect();
        run.environment.aa_noise = Some(AaNoise { floor, ratio: 1.0, launches: 6 });
        run
    }

    #[test]
    fn quarter_of_wide_intervals_is_not_good() {
        let run = run(190, 47, 0, 0.048);
        let said = verdict(&run, level(&run));
        assert_eq!(
            said,
            "rough: 47 of 190 results with a wide interval (!); of the others, only differences above 4.8 % are detectable"
        );
    }

    #[test]
    fn level_is_the_worse_of_repetition_and_precision() {
        for (wide, bare, floor, expected) in [
            (0, 0, 0.05, Level::Good),
            (10, 0, 0.05, Level::Good),
            (5, 5, 0.05, Level::Good),
            (5, 6, 0.05, Level::Rough),
            (0, 0, 0.06, Level::Rough),
            (50, 0, 0.05, Level::Rough),
            (51, 0, 0.05, Level::Poor),
            (0, 51, 0.05, Level::Poor),
            (0, 0, 0.26, Level::Poor),
        ] {
            assert_eq!(level(&run(100, wide, bare, floor)), expected, "{wide} {bare} {floor}");
        }
    }

    #[test]
    fn run_without_a_repetition_is_unknown_unless_it_is_imprecise() {
        let without = |wide| {
            let mut run = run(100, wide, 0, 0.0);
            run.environment.aa_noise = None;
            level(&run)
        };
        assert_eq!([without(10), without(11), without(51)], [Level::Unknown, Level::Rough, Level::Poor]);
    }
}
