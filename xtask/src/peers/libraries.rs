//! The libraries: ours, and those of others as Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cells::Setting;
use crate::python::{MPICH, OPEN_MPI, folder, installed};
use crate::workspace::{Workspace, run};

/// A library, and the measuring program built for it.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    kind: Kind,
    /// What starts a job.
    launcher: PathBuf,
    probe: PathBuf,
}

#[derive(Clone, Copy)]
enum Kind {
    Ours,
    Mpich,
    OpenMpi,
}

/// All libraries, ours first; what is missing is installed and built.
pub(crate) fn provide(workspace: &Workspace) -> Result<[Library; 3]> {
    let (mpich, open_mpi) = (installed(workspace, MPICH)?, installed(workspace, OPEN_MPI)?);
    run(&mut workspace.cargo(&[
        "build",
        "--quiet",
        "--release",
        "--package",
        "nicety",
        "--package",
        "abi-mpi",
    ]))?;
    let release = workspace.target().join("release");
    let (by_abi, by_open_mpi) = (folder(workspace).join("probe"), folder(workspace).join("probe-openmpi"));
    compile(workspace, &mpich.join("mpicc_abi"), &by_abi)?;
    compile(workspace, &open_mpi.join("mpicc"), &by_open_mpi)?;
    Ok([
        Library { name: "Nicety", kind: Kind::Ours, launcher: release.join("nicety"), probe: by_abi.clone() },
        Library { name: "MPICH", kind: Kind::Mpich, launcher: mpich.join("mpiexec"), probe: by_abi },
        Library {
            name: "Open MPI",
            kind: Kind::OpenMpi,
            launcher: open_mpi.join("mpirun"),
            probe: by_open_mpi,
        },
    ])
}

fn compile(workspace: &Workspace, compiler: &Path, program: &Path) -> Result<()> {
    let source = workspace.root.join("xtask/peers/probe.c");
    run(Command::new(compiler).args(["-O2", "-Wall", "-Wextra", "-o"]).args([program, &source]))
        .with_context(|| format!("the measuring program does not compile with {}", compiler.display()))
}

impl Library {
    /// The command that starts the program on as many ranks as the setting has; what is to be measured follows.
    pub(crate) fn job(&self, setting: Setting) -> Command {
        let mut command = Command::new(&self.launcher);
        // Cargo's has our own build for tests, which the program would take for MPICH.
        command.env_remove("LD_LIBRARY_PATH");
        match self.kind {
            Kind::Ours => {
                command.args(["mpirun", "--device", if setting.is_tcp() { "iwarp" } else { "shm" }]);
            }
            Kind::Mpich if setting.is_tcp() => {
                let variables =
                    [("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")];
                command.envs(variables);
            }
            Kind::Mpich => {}
            Kind::OpenMpi => {
                let carriers = if setting.is_tcp() { "tcp,self" } else { "sm,self" };
                command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]);
                command.args(["--mca", "pml", "ob1", "--mca", "btl", carriers]);
            }
        }
        command.args(["-n", &setting.ranks().to_string()]).arg(&self.probe);
        command
    }
}
