//! Builds and runs the laboratory that tests Nicety against third-party programs (`interop/`).

use anyhow::Result;
use std::process::Command;
use xtask::workspace::{Workspace, run};

/// Builds the laboratory and runs it with these arguments.
pub(crate) fn check(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    run(&mut workspace.cargo(&["build", "--quiet", "--package=interop"]))?;
    run(Command::new(workspace.target().join("debug/interop")).args(arguments))
}
