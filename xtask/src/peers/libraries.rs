//! The MPI libraries: ours, and others as Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cells::{Program, Setting};
use xtask::python::{MPICH, OPEN_MPI, folder, installed};
use xtask::workspace::{Workspace, run};

/// A library, and the measuring programs built for it.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    kind: LibraryKind,
    /// The launcher of its jobs.
    launcher: PathBuf,
    folder: PathBuf,
}

#[derive(Clone, Copy)]
enum LibraryKind {
    Ours,
    Mpich,
    OpenMpi,
}

impl LibraryKind {
    /// A program's file name; two libraries share one file thanks to the common ABI.
    fn file(self, program: Program) -> String {
        match self {
            Self::Ours | Self::Mpich => program.name().to_owned(),
            Self::OpenMpi => format!("{}-openmpi", program.name()),
        }
    }
}

/// All libraries, ours first; missing ones are installed, and programs are built.
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
    let folder = folder(workspace);
    for program in Program::ALL {
        compile(
            workspace,
            program,
            &mpich.join("mpicc_abi"),
            &folder.join(LibraryKind::Mpich.file(program)),
        )?;
        compile(
            workspace,
            program,
            &open_mpi.join("mpicc"),
            &folder.join(LibraryKind::OpenMpi.file(program)),
        )?;
    }
    let library = |name, kind, launcher| Library { name, kind, launcher, folder: folder.clone() };
    Ok([
        library("Nicety", LibraryKind::Ours, release.join("nicety")),
        library("MPICH", LibraryKind::Mpich, mpich.join("mpiexec")),
        library("Open MPI", LibraryKind::OpenMpi, open_mpi.join("mpirun")),
    ])
}

fn compile(workspace: &Workspace, program: Program, compiler: &Path, file: &Path) -> Result<()> {
    let source = workspace.root.join("xtask/peers").join(program.name()).with_extension("c");
    let options = ["-O2", "-Wall", "-Wextra", "-o"];
    run(Command::new(compiler).args(options).args([file, &source]).arg("-lm"))
        .with_context(|| format!("{} does not compile with {}", source.display(), compiler.display()))
}

impl Library {
    /// The command that starts a program with the setting's number of ranks; the caller appends the probes.
    pub(crate) fn job(&self, setting: Setting, program: Program) -> Command {
        let mut command = Command::new(&self.launcher);
        // Cargo's value contains our own test build, which the program would load instead of MPICH.
        command.env_remove("LD_LIBRARY_PATH");
        match self.kind {
            LibraryKind::Ours => {
                command.args(["mpirun", "--device", if setting.is_tcp() { "iwarp" } else { "shm" }]);
            }
            LibraryKind::Mpich if setting.is_tcp() => {
                let variables =
                    [("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")];
                command.envs(variables);
            }
            LibraryKind::Mpich => {}
            LibraryKind::OpenMpi => {
                let carriers = if setting.is_tcp() { "tcp,self" } else { "sm,self" };
                command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]);
                command.args(["--mca", "pml", "ob1", "--mca", "btl", carriers]);
            }
        }
        command.args(["-n", &setting.ranks().to_string()]).arg(self.folder.join(self.kind.file(program)));
        command
    }
}
