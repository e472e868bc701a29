//! Fault injection: the conformance suite and our own programs under loss, delay, stalled receivers, cut
//! cables and dying machines, by seed. The test `chaos` runs some seeds; the example `chaos` runs any number,
//! or a failing one again.

use nic_model::Config;
use verbs::host::world::FiberKind;

use super::storm;
use super::support::ModelSetup;

/// Fault settings for the conformance suite: a name and values of the machine.
pub(crate) const FAULT_SETTINGS: &[(&str, &[(&str, &str)])] = &[
    ("delay", &[("faults.delay_ns", "20000")]),
    ("loss", &[("faults.loss_ppm", "10000")]),
    ("stall", &[("faults.stall_ppm", "20000"), ("faults.stall_ns", "50000")]),
    (
        "all",
        &[
            ("faults.loss_ppm", "3000"),
            ("faults.delay_ns", "5000"),
            ("faults.stall_ppm", "5000"),
            ("faults.stall_ns", "20000"),
        ],
    ),
];

/// Tests that cannot run with faults, and the reason.
const WITHOUT_FAULTS_ONLY: &[(&str, &str)] = &[];

/// Everything that runs with a seed: `setting/group::name` of the suite, and `storm`.
pub(crate) fn paths() -> Vec<String> {
    let fair = |path: &str| WITHOUT_FAULTS_ONLY.iter().any(|(test, _)| *test == path);
    let suite: Vec<String> =
        conformance::all().iter().map(conformance::Test::path).filter(|p| !fair(p)).collect();
    let under = |setting: &'static str| suite.iter().map(move |test| format!("{setting}/{test}"));
    FAULT_SETTINGS.iter().flat_map(|(name, _)| under(name)).chain(["storm".to_owned()]).collect()
}

/// Runs a program with a seed.
///
/// # Errors
/// The failure, with the command that reproduces it.
pub(crate) fn run(path: &str, seed: u64) -> Result<(), String> {
    let outcome = match path.split_once('/') {
        None if path == "storm" => storm::run(seed, FiberKind::Coroutine).map(drop),
        None => Err("there is no such program".to_owned()),
        Some((setting, test)) => suite(setting, test, seed),
    };
    let again = format!("cargo run --release -p nic-model --example chaos -- {seed} {path}");
    outcome.map_err(|why| format!("{path} with seed {seed}: {why}\nto see it again: {again}"))
}

fn suite(setting: &str, test: &str, seed: u64) -> Result<(), String> {
    let options =
        FAULT_SETTINGS.iter().find(|(name, _)| *name == setting).ok_or("there is no such fault setting")?.1;
    let all = conformance::all().iter();
    let test = all.clone().find(|t| t.path() == test).ok_or("there is no such test")?;
    let play = ModelSetup { options, seed, ..ModelSetup::new("mt23108-nicmem") };
    play.run(test.body).map(drop).map_err(|failure| failure.to_string())
}

/// Checks that the fault settings only use existing values.
pub(crate) fn check_settings() {
    for (name, options) in FAULT_SETTINGS {
        Config::new("mt23108-nicmem", options).expect(name);
    }
}
