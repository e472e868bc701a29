//! The cases of our MPI: a program built by `nicety mpicc` and run on our library, unchanged, by our launcher and by those of others.

use super::case::{Case, Verdict};
use super::guest::tail;
use super::hpcc;
use super::slurm::Slurm;
use crate::limited::Running;
use crate::python::{MPICH, OPEN_MPI, installed};
use crate::workspace::{Workspace, run};
use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub(crate) const CASES: &[Case<Ring>] = &[
    Case {
        name: "ring-mpirun",
        shows: "a program of our MPI under `nicety mpirun`",
        run: |ring| ring.under(&ring.nicety.clone(), &["mpirun"]),
    },
    Case {
        name: "ring-hydra",
        shows: "the same under MPICH's mpiexec",
        run: |ring| ring.under(&ring.mpich.join("mpiexec.hydra"), &[]),
    },
    Case {
        name: "ring-port",
        shows: "the same, with PMI over TCP",
        run: |ring| ring.under(&ring.mpich.join("mpiexec.hydra"), &["-pmi-port"]),
    },
    Case {
        name: "ring-gforker",
        shows: "the same under mpiexec.gforker",
        run: |ring| ring.under(&ring.mpich.join("mpiexec.gforker"), &[]),
    },
    Case {
        name: "ring-prterun",
        shows: "the same under Open MPI's prterun, by PMIx",
        run: |ring| {
            ring.under(&ring.open_mpi.join("prterun"), &["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"])
        },
    },
    Case {
        name: "hpcc",
        shows: "the HPC Challenge benchmarks, unmodified, compiled by `nicety mpicc`",
        run: |ring| {
            let folder = ring.folder.with_file_name("hpcc");
            fs::create_dir_all(&folder)?;
            hpcc::check(&ring.nicety, &ring.root, &folder)
        },
    },
];

/// Cases that need Slurm beside.
pub(crate) const SLURM_CASES: &[Case<Ring>] =
    &[Case { name: "ring-slurm", shows: "the same under `srun --mpi=pmi2`", run: Ring::slurm }];

/// How long a job may run.
const LIMIT: Duration = Duration::from_secs(60);
const SIZES: [u32; 3] = [1, 2, 4];

/// The program, and launchers.
pub(crate) struct Ring {
    program: PathBuf,
    nicety: PathBuf,
    mpich: PathBuf,
    open_mpi: PathBuf,
    root: PathBuf,
    folder: PathBuf,
    case: &'static str,
}

impl Ring {
    /// Builds what is ours, and installs what is theirs.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety", "--package", "abi-mpi"]))?;
        let nicety = workspace.target().join("debug/nicety");
        let folder = workspace.target().join("interop/ring");
        fs::create_dir_all(&folder)?;
        let program = folder.join("ring");
        let source = workspace.root.join("crates/abi-mpi/examples/ring.c");
        run(Command::new(&nicety).args(["mpicc", "-Wall", "-Werror", "-o"]).args([&program, &source]))?;
        let (mpich, open_mpi) = (installed(workspace, MPICH)?, installed(workspace, OPEN_MPI)?);
        let root = workspace.root.clone();
        Ok(Self { program, nicety, mpich, open_mpi, root, folder, case: "" })
    }

    /// Another case begins.
    pub(crate) fn begin(&mut self, case: &'static str) {
        self.case = case;
    }

    /// Under a launcher that takes `-n`.
    fn under(&self, launcher: &PathBuf, options: &[&str]) -> Result<Verdict> {
        self.rounds(|size| {
            let mut command = Command::new(launcher);
            command.args(options).args(["-n", &size.to_string()]);
            command
        })
    }

    fn slurm(&mut self) -> Result<Verdict> {
        let slurm = Slurm::start(&self.folder.join("slurm"))?;
        self.rounds(|size| slurm.srun(&["--mpi=pmi2"], size))
    }

    /// Jobs of several sizes: each rank says the token that it has passed on.
    fn rounds(&self, launch: impl Fn(u32) -> Command) -> Result<Verdict> {
        for size in SIZES {
            let log = self.folder.join(format!("{}-{size}.log", self.case));
            let finished = Running::start(launch(size).arg(&self.program), &log)?.finish(LIMIT)?;
            let said = tail(&finished.output);
            ensure!(finished.is_good(), "{size} ranks ended with {:?}: {said}", finished.status);
            let mut lines: Vec<&str> =
                finished.output.lines().filter(|line| line.starts_with("rank ")).collect();
            lines.sort_unstable();
            let expected = (0..size).map(|rank| {
                let token = if rank == 0 { size } else { rank + 1 };
                format!("rank {rank} of {size}: the token is {token}")
            });
            ensure!(expected.eq(lines), "{size} ranks say {said}");
        }
        Ok(Verdict("rings of 1, 2 and 4 ranks".to_owned()))
    }
}
