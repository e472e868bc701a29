//! The cases of our MPI: a program built by `nicety mpicc` and run on our library, by our launcher and by third-party
//! launchers.

use super::hpcc;
use super::libraries;
use super::slurm::Slurm;
use crate::case::{Case, Verdict};
use crate::guest::tail;
use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::python::{MPICH, OPEN_MPI, installed};
use xtask::workspace::{Workspace, run};

pub(crate) const CASES: &[Case<Ring>] = &[
    Case {
        name: "ring-mpirun",
        shows: "a program of our MPI under `nicety mpirun`",
        run: |ring| ring.run_with(&ring.nicety.clone(), &["mpirun"]),
    },
    Case {
        name: "ring-hydra",
        shows: "the same under MPICH's mpiexec",
        run: |ring| ring.run_with(&ring.mpich.join("mpiexec.hydra"), &[]),
    },
    Case {
        name: "ring-port",
        shows: "the same, with PMI over TCP",
        run: |ring| ring.run_with(&ring.mpich.join("mpiexec.hydra"), &["-pmi-port"]),
    },
    Case {
        name: "ring-gforker",
        shows: "the same under mpiexec.gforker",
        run: |ring| ring.run_with(&ring.mpich.join("mpiexec.gforker"), &[]),
    },
    Case {
        name: "ring-prterun",
        shows: "the same under Open MPI's prterun, by PMIx",
        run: |ring| {
            ring.run_with(
                &ring.open_mpi.join("prterun"),
                &["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"],
            )
        },
    },
    Case {
        name: "spawn-mpirun",
        shows: "jobs that start others under `nicety mpirun`",
        run: |ring| ring.spawns(&ring.nicety.clone(), &["mpirun"]),
    },
    Case {
        name: "spawn-hydra",
        shows: "the same under MPICH's mpiexec",
        run: |ring| ring.spawns(&ring.mpich.join("mpiexec.hydra"), &[]),
    },
    Case {
        name: "spawn-gforker",
        shows: "the same under mpiexec.gforker",
        run: |ring| ring.spawns(&ring.mpich.join("mpiexec.gforker"), &[]),
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
    Case {
        name: "pnetcdf",
        shows: "PnetCDF, unmodified, compiled by `nicety mpicc`, and its tests",
        run: |ring| libraries::pnetcdf(&ring.nicety, ring.folder.with_file_name("pnetcdf")),
    },
    Case {
        name: "hdf5",
        shows: "HDF5 with MPI, likewise",
        run: |ring| libraries::hdf5(&ring.nicety, ring.folder.with_file_name("hdf5")),
    },
];

/// Cases that also need Slurm.
pub(crate) const SLURM_CASES: &[Case<Ring>] =
    &[Case { name: "ring-slurm", shows: "the same under `srun --mpi=pmi2`", run: Ring::slurm }];

/// How long a job may run.
const LIMIT: Duration = Duration::from_secs(60);
const SIZES: [u32; 3] = [1, 2, 4];

/// The program, and launchers.
pub(crate) struct Ring {
    program: PathBuf,
    spawn: PathBuf,
    nicety: PathBuf,
    mpich: PathBuf,
    open_mpi: PathBuf,
    root: PathBuf,
    folder: PathBuf,
    case: &'static str,
}

impl Ring {
    /// Builds our programs, and installs the launchers.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety", "--package", "abi-mpi"]))?;
        let nicety = workspace.target().join("debug/nicety");
        let folder = workspace.target().join("interop/ring");
        fs::create_dir_all(&folder)?;
        let built = |source: &str| -> Result<PathBuf> {
            let source = workspace.root.join("crates/abi-mpi").join(source);
            let program = folder.join(source.file_stem().unwrap_or_default());
            run(Command::new(&nicety).args(["mpicc", "-Wall", "-Werror", "-o"]).args([&program, &source]))?;
            Ok(program)
        };
        let (program, spawn) = (built("examples/ring.c")?, built("tests/c/spawn.c")?);
        let (mpich, open_mpi) = (installed(workspace, MPICH)?, installed(workspace, OPEN_MPI)?);
        let root = workspace.root.clone();
        Ok(Self { program, spawn, nicety, mpich, open_mpi, root, folder, case: "" })
    }

    /// Begins another case.
    pub(crate) fn begin(&mut self, case: &'static str) {
        self.case = case;
    }

    /// Runs under a launcher that takes `-n`.
    fn run_with(&self, launcher: &PathBuf, options: &[&str]) -> Result<Verdict> {
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

    /// Jobs of several sizes: each rank prints the token that it has passed on.
    fn rounds(&self, launch: impl Fn(u32) -> Command) -> Result<Verdict> {
        for size in SIZES {
            let token = |rank| if rank == 0 { size } else { rank + 1 };
            let says = |rank| format!("rank {rank} of {size}: the token is {}", token(rank));
            self.expect_lines(launch(size).arg(&self.program), size, (0..size).map(says).collect())?;
        }
        Ok(Verdict("rings of 1, 2 and 4 ranks".to_owned()))
    }

    /// Runs jobs of several sizes under a launcher that takes `-n`; each job spawns three further ones.
    fn spawns(&self, launcher: &PathBuf, options: &[&str]) -> Result<Verdict> {
        for size in SIZES {
            let mut command = Command::new(launcher);
            command.args(options).args(["-n", &size.to_string()]).arg(&self.spawn);
            let children = [2, 2, 3].into_iter().flat_map(|size| (0..size).map(move |rank| (rank, size)));
            let says = |(rank, size): (u32, u32), more: &str| format!("rank {rank} of {size} is done{more}");
            let parents = (0..size).map(|rank| says((rank, size), ""));
            let all = parents.chain(children.map(|child| says(child, ", a child"))).collect();
            self.expect_lines(&mut command, size, all)?;
        }
        Ok(Verdict("1, 2 and 4 ranks, each with jobs of 2, 2 and 3".to_owned()))
    }

    /// Runs a job whose ranks must print these lines, in any order.
    fn expect_lines(&self, command: &mut Command, size: u32, mut expected: Vec<String>) -> Result<()> {
        let log = self.folder.join(format!("{}-{size}.log", self.case));
        let finished = Running::start(command, &log)?.finish(LIMIT)?;
        let said = tail(&finished.output);
        ensure!(finished.is_good(), "{size} ranks ended with {:?}: {said}", finished.status);
        let mut lines: Vec<&str> = finished.output.lines().filter(|line| line.starts_with("rank ")).collect();
        lines.sort_unstable();
        expected.sort_unstable();
        ensure!(lines == expected, "{size} ranks say {said}, and should say {expected:?}");
        Ok(())
    }
}
