//! The siege: attacks on the stack (`siege/`), built and run.

use anyhow::Result;
use xtask::workspace::{Workspace, run};

/// Builds the siege as it ships, or `quick` as the tests are built, and runs it with these arguments.
pub(crate) fn check(workspace: &Workspace, arguments: &[String], quick: bool) -> Result<()> {
    // All tests with it: then it is made of the very libraries that `cargo test` has built, features and all.
    let what: &[&str] = match quick {
        true => &["--workspace", "--bins", "--tests"],
        // Some attacks compile programs in C against these libraries.
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
