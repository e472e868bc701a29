//! Runs tests under Miri: no undefined behaviour and no leak in the code that they execute, dependencies included.
//!
//! The crate `iwarp` has no unsafe code of its own: Miri checks that its dependencies do nothing undefined where its
//! tests reach them. The crate `ffi` is the unsafe code between C and handles. Of `portals`, the engine is tested,
//! which callers drive and which refers to all of its resources by number.

use anyhow::{Result, bail};
use std::process::Command;
use xtask::workspace::{Workspace, run};

/// A toolchain that has Miri; pinned, so that a new one does not decide whether old code passes.
const TOOLCHAIN: &str = "nightly-2026-05-20";
/// The crates, the selected tests of each, and the interpreted targets.
const RUNS: &[(&str, &str, &str)] = &[
    ("iwarp", "--lib", "x86_64-unknown-linux-gnu"),
    ("ffi", "--lib", "x86_64-unknown-linux-gnu"),
    ("portals", "--test=random", "x86_64-unknown-linux-gnu"),
];
/// Tests that are left out: they repeat operations to test the protocol, would take minutes each, and check no more
/// about memory than the others.
const LEFT_OUT: &[&str] = &[
    "connection::",
    "crc::tests::crc_agrees_with_other_crate",
    "crc::tests::crc_append_agrees",
    "fuzzing::",
    "mpa::tests::accepted_handshake_agrees_in_every_configuration",
    "programs_of_the_corpus_go_as_in_the_model",
    "rx::tests::damaged_fpdu_is_not_used",
    "rx::tests::fast_path",
    "tx::tests::segments_cover_their_message",
];
/// Inputs per property test; the usual number would take minutes.
const CASES: &str = "4";

/// Runs the tests. The toolchain is installed if rustup can; where it cannot, as without a network, the step says so
/// instead of failing.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    if !provide()? {
        println!("miri: NOT CHECKED: {TOOLCHAIN} with Miri is missing and could not be fetched");
        return Ok(String::new());
    }
    for (package, which, target) in RUNS {
        run(&mut test(workspace, package, which, target))?;
    }
    let runs: Vec<String> =
        RUNS.iter().map(|(package, _, target)| format!("{package} for {target}")).collect();
    Ok(format!("miri: tests passed: {}", runs.join(", ")))
}

/// Whether there is the toolchain, with Miri and the source of the standard library; rustup installs it if it can.
///
/// # Errors
/// If it was fetched and has no Miri.
pub(crate) fn provide() -> Result<bool> {
    if !is_there() && fetch().is_err() {
        return Ok(false);
    }
    if !is_there() {
        bail!("{TOOLCHAIN} was fetched and has no Miri: pin another day in xtask/src/miri.rs");
    }
    Ok(true)
}

fn is_there() -> bool {
    let version = Command::new("rustup").args(["run", TOOLCHAIN, "cargo", "miri", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

fn fetch() -> Result<()> {
    let parts = ["--profile", "minimal", "--component", "miri", "--component", "rust-src"];
    run(Command::new("rustup").args(["toolchain", "install", TOOLCHAIN]).args(parts))
}

/// Calls cargo of this toolchain in the workspace root.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(&workspace.root).args(["run", TOOLCHAIN, "cargo"]);
    // Set by the cargo that runs this; they would select its toolchain again.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    command
}

/// `cargo miri test` for the targets `which` of one package.
fn test(workspace: &Workspace, package: &str, which: &str, target: &str) -> Command {
    let mut command = cargo(workspace);
    command
        .args(["miri", "test", "--package", package, which, "--target", target, "--"])
        .args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]))
        // Property tests read their working directory, and the number of inputs from the environment.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", CASES)
        .env("CARGO_TARGET_DIR", workspace.target().join("miri"));
    command
}
