//! The MPI libraries: ours, and others as Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cells::{Program, Setting};
use super::network::{INTERFACE, Network};
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

    /// The command that starts a program with as many ranks on each of two hosts; the caller appends the probes.
    pub(crate) fn job_across(&self, network: &Network, setting: Setting, program: Program) -> Command {
        let per_host = (setting.ranks() / 2).to_string();
        let hosts = Network::hosts();
        let mut command = network.on_first();
        command.env_remove("LD_LIBRARY_PATH").arg(&self.launcher);
        match self.kind {
            LibraryKind::Ours => {
                command.env("NICETY_NETWORK", Network::subnet());
                command.args(["mpirun", "--rsh"]).arg(network.agent());
                command.args(["--host", &hosts.map(|host| format!("{host}:{per_host}")).join(",")]);
            }
            LibraryKind::Mpich => {
                // Ranks on the other host do not inherit the launcher's environment.
                let libraries = self.launcher.with_file_name("").join("../lib");
                command.args(["-launcher", "ssh", "-launcher-exec"]).arg(network.agent());
                command.args(["-iface", INTERFACE, "-hosts", &hosts.join(","), "-ppn", &per_host]);
                command.args(["-genv", "LD_LIBRARY_PATH"]).arg(libraries);
                command.args(["-genv", "MPIR_CVAR_CH4_NETMOD", "ofi", "-genv", "FI_PROVIDER", "tcp"]);
            }
            LibraryKind::OpenMpi => {
                command.args(["--allow-run-as-root", "--bind-to", "none", "--prtemca", "plm_ssh_agent"]);
                command.arg(network.agent()).args(["--prtemca", "prte_if_include", INTERFACE]);
                command.args(["--host", &hosts.map(|host| format!("{host}:{per_host}")).join(",")]);
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,sm,self"]);
                command.args(["--mca", "btl_tcp_if_include", INTERFACE]);
            }
        }
        command.args(["-n", &setting.ranks().to_string()]).arg(self.folder.join(self.kind.file(program)));
        command
    }
}
