//! The output of a measuring program under a library.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::table::median;
use xtask::limited::Running;
use xtask::python;
use xtask::workspace::Workspace;

/// How long a job may run: four of MPICH's ranks on two cores wait for each other most of the time.
const LIMIT: Duration = Duration::from_secs(300);

/// The whole output of a program under a library, if it succeeds.
pub(super) fn output_of(workspace: &Workspace, name: &str, command: &mut Command) -> Result<String> {
    let log = python::folder(workspace).join(format!("{name}.log"));
    let finished = Running::start(command, &log)?.finish(LIMIT)?;
    ensure!(finished.is_good(), "{name} ended with {:?}: {}", finished.status, finished.output);
    Ok(finished.output)
}

/// The median of a cell's samples.
pub(super) fn median_of(name: &str, all: &str, probe: &str) -> Result<f64> {
    let line = all.lines().find_map(|line| line.strip_prefix(probe)?.strip_prefix(' '));
    let line = line.with_context(|| format!("{name} printed no {probe}: {all}"))?;
    let values = line.split(' ').skip(1).map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    median(values).context("a cell has samples")
}
