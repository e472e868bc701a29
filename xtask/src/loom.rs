//! The loom models: every interleaving of the lock-free parts, as far as loom can enumerate them.
//!
//! A model is a unit test whose name contains `loom_`, compiled with `--cfg loom` into a target folder of its own, so that
//! the flag does not throw away the ordinary build.

use anyhow::{Result, bail};
use std::process::Command;
use xtask::workspace::{Workspace, capture, run};

/// Crates that may have models; one without a `loom` dependency is skipped.
const PACKAGES: &[&str] = &["ffi", "host", "nic-util"];

/// Runs the models; returns which crates have some.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    check_with(workspace, &[])
}

/// Like [`check`], with these environment variables for the models.
pub(crate) fn check_with(workspace: &Workspace, variables: &[(&str, &str)]) -> Result<String> {
    let mut checked = Vec::new();
    for package in PACKAGES.iter().filter(|package| has_models(workspace, package)) {
        let models = capture(cargo_test(workspace, package).args(["--", "--list"]))?;
        let models = models.lines().filter(|line| line.ends_with(": test")).count();
        if models == 0 {
            bail!(
                "`{package}` depends on loom but no unit test is named loom_*: add a model, or drop the dependency"
            );
        }
        run(cargo_test(workspace, package).envs(variables.iter().copied()))?;
        checked.push(format!("{package} {models}"));
    }
    Ok(match checked.as_slice() {
        [] => "loom: no crate has models".to_owned(),
        some => format!("loom: models passed: {}", some.join(", ")),
    })
}

/// Whether the package exists and depends on loom, for any target or purpose.
fn has_models(workspace: &Workspace, name: &str) -> bool {
    let packages = workspace.metadata.workspace_packages();
    let package = packages.iter().find(|package| package.name == name);
    package.is_some_and(|package| package.dependencies.iter().any(|dependency| dependency.name == "loom"))
}

/// `cargo test` for the models of one package.
fn cargo_test(workspace: &Workspace, package: &str) -> Command {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = workspace.cargo(&["test", "--package", package, "--lib", "--release", "loom_"]);
    command
        .env("RUSTFLAGS", format!("{flags} --cfg loom").trim_start())
        .env("CARGO_TARGET_DIR", workspace.target().join("loom"))
        // Optimised code matters here, the last per cent of speed does not: build it quickly.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        // loom's own advice: two or three preemptions find nearly everything in acceptable time.
        command.env("LOOM_MAX_PREEMPTIONS", "3");
    }
    command
}
