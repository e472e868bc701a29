//! The siege: attacks on the stack (`siege/`), built and run.

use crate::workspace::{Workspace, run};
use anyhow::Result;

/// Builds the siege as it ships, or `quick` as the tests are built, and runs it with these arguments.
pub(crate) fn check(workspace: &Workspace, arguments: &[String], quick: bool) -> Result<()> {
    // All tests with it: then it is made of the very libraries that `cargo test` has built, features and all.
    let what: &[&str] = match quick {
        true => &["--workspace", "--bins", "--tests"],
        // The library is what some programs are attacked with.
        false => &["--package", "siege", "--package", "abi-verbs", "--release"],
    };
    run(workspace.cargo(&["build"]).args(what))?;
    let folder = if quick { "debug" } else { "release" };
    run(std::process::Command::new(workspace.target().join(folder).join("siege")).args(arguments))
}
