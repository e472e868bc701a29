//! Builds and runs the siege: attacks on the stack (`siege/`).

use anyhow::Result;
use xtask::workspace::{Workspace, run};

/// Builds the siege as it ships, or with `quick` as tests are built, and runs it with these arguments.
pub(crate) fn check(workspace: &Workspace, arguments: &[String], quick: bool) -> Result<()> {
    // Builds all tests as well: then it uses the libraries that `cargo test` has built, with the same features.
    let what: &[&str] = match quick {
        true => &["--workspace", "--bins", "--tests"],
        // Some attacks compile C programs against these libraries.
        false => &[
            "--release",
            "--package=siege",
            "--package=abi-verbs",
            "--package=abi-mpi",
            "--package=abi-portals",
        ],
    };
    run(workspace.cargo(&["build"]).args(what))?;
    let folder = if quick { "debug" } else { "release" };
    run(std::process::Command::new(workspace.target().join(folder).join("siege")).args(arguments))
}
