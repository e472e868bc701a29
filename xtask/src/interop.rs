//! The laboratory that tries ours against programs of others (`interop/`), built and run.

use anyhow::Result;
use std::process::Command;
use xtask::workspace::{Workspace, run};

/// Builds the laboratory and runs it with these arguments.
pub(crate) fn check(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    run(&mut workspace.cargo(&["build", "--quiet", "--package=interop"]))?;
    run(Command::new(workspace.target().join("debug/interop")).args(arguments))
}
