//! The port to aarch64: CI checks that everything compiles for it without a warning. `cargo xtask arm64` also builds it with Debian's
//! cross compiler, and runs tests and programs of others under QEMU's emulation of a processor.

mod programs;

use crate::targets::{self, ARM64};
use crate::{miri, suite};
use anyhow::{Context, Result, bail};
use std::process::Command;
use xtask::packages::{self, Needed};
use xtask::workspace::{Workspace, run as run_command};

/// What building and emulation need, from Debian's packages.
const NEEDED: &Needed = &[
    ("qemu-aarch64", "qemu-user"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"),
    ("mmdebstrap", "mmdebstrap"),
];
/// The linker, and what runs a test, in the variables that cargo has for this target. Tests of faults crash on purpose: the emulator
/// would leave a file for each crash.
const CROSS: [(&str, &str); 2] = [
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
    (
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
        "prlimit --core=0 qemu-aarch64 -L /usr/aarch64-linux-gnu",
    ),
];
/// The tests: all of the crates with assembly, then the conformance suite on `iwarp` without messages of a gigabyte, which take
/// minutes. Not on `shm`: the emulator keeps a record of each page that was ever mapped, and `shm` maps gigabytes in each test. The suite
/// needed more than 23 GB.
const TESTS: [&[&str]; 2] = [
    &["--package=uaccess", "--package=host", "--package=ffi"],
    &["--package=nic-iwarp", "--test=conformance", "--", "--skip=large::"],
];

/// The toolchain that compiles for aarch64.
#[derive(Clone, Copy)]
enum Toolchain {
    /// The pinned one, for which rustup has a standard library.
    Pinned,
    /// That of Miri, with a standard library compiled from its source.
    FromSource,
}

/// Checks that everything compiles without a warning. Where there is neither a standard library nor its source, as without a network,
/// the step says so instead of failing.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let Some(toolchain) = toolchain()? else {
        println!("arm64: NOT CHECKED: there is no standard library for {ARM64}, and no source of one");
        return Ok(String::new());
    };
    let mut cargo = cargo(workspace, toolchain, "check");
    cargo.args(["--workspace"]).env("RUSTFLAGS", "-D warnings");
    run_command(&mut cargo)?;
    Ok(format!("arm64: everything compiles for {ARM64} without a warning"))
}

/// Builds everything that ships, and runs tests and programs of others under emulation.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    packages::provide(NEEDED).map_err(anyhow::Error::msg)?;
    let toolchain = toolchain()?.with_context(|| format!("there is no standard library for {ARM64}"))?;
    let mut ships = cargo(workspace, toolchain, "build");
    run_command(ships.args(crate::ships::SHIPPED.map(|(package, _)| format!("--package={package}"))))?;
    for tests in TESTS {
        let mut cargo = cargo(workspace, toolchain, "test");
        if !suite::run_with_output(cargo.arg("--no-fail-fast").args(tests), |_| {})? {
            bail!("tests fail under emulation: {}", tests.join(" "));
        }
    }
    let ran = programs::run(&workspace.target().join("arm64"))?;
    Ok(format!(
        "arm64: tests passed under emulation: {}\narm64: programs ran: {ran}",
        TESTS.concat().join(" ")
    ))
}

fn toolchain() -> Result<Option<Toolchain>> {
    if targets::provide(ARM64)? {
        return Ok(Some(Toolchain::Pinned));
    }
    Ok(miri::provide()?.then_some(Toolchain::FromSource))
}

/// Calls cargo for this target, with a target folder of its own.
fn cargo(workspace: &Workspace, toolchain: Toolchain, verb: &str) -> Command {
    let mut command = match toolchain {
        Toolchain::Pinned => workspace.cargo(&[verb]),
        Toolchain::FromSource => {
            let mut command = miri::cargo(workspace);
            command.args([verb, "-Zbuild-std"]);
            command
        }
    };
    command.args(["--target", ARM64]).env("CARGO_TARGET_DIR", workspace.target().join("arm64")).envs(CROSS);
    command
}
