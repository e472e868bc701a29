//! Fault injection in virtual time, for some seeds. A failing seed prints the command that reproduces it; the
//! example `chaos` runs any number of seeds.

#[path = "support/chaos.rs"]
mod chaos;
#[path = "support/storm.rs"]
mod storm;
mod support;

use support::ModelSetup;
use verbs::host::world::FiberKind;

/// Seeds of each test of the suite for each fault setting.
const SUITE_SEEDS: u64 = 2;
/// Seeds of storms.
const STORM_SEEDS: u64 = 60;

/// Goal: loss, delay and stalled receivers only change times. Method: all single-threaded tests of the suite.
#[test]
fn suite_passes_with_faults() {
    chaos::check_settings();
    let failed: Vec<String> = chaos::paths()
        .iter()
        .filter(|path| path.contains('/'))
        .flat_map(|path| (1..=SUITE_SEEDS).filter_map(move |seed| chaos::run(path, seed).err()))
        .collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Goal: a cut cable or a dying machine ends connections, with no other effect.
#[test]
fn storms_with_faults_only_end_connections() {
    let failed: Vec<String> = (1..=STORM_SEEDS).filter_map(|seed| chaos::run("storm", seed).err()).collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Goal: the seed determines everything. Method: the same storm again, and with a thread per rank.
#[test]
fn seed_determines_everything() {
    for seed in 1..=6 {
        let once = storm::run(seed, FiberKind::Coroutine).expect("it passes");
        assert_eq!(storm::run(seed, FiberKind::Coroutine), Ok(once), "seed {seed}");
        assert_eq!(storm::run(seed, FiberKind::Thread), Ok(once), "seed {seed}, in threads");
    }
}

/// The suite's worlds are the same with a thread per rank.
#[test]
fn threads_and_coroutines_give_the_same_worlds() {
    let sample = conformance::all().iter().step_by(9).chain(conformance::threaded());
    for test in sample {
        let run = |fiber_kind| {
            ModelSetup { fiber_kind, ..ModelSetup::new("mt23108-vapi") }.run(test.body).expect("it passes")
        };
        assert_eq!(run(FiberKind::Coroutine), run(FiberKind::Thread), "{}", test.path());
    }
}
