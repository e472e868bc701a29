//! The launcher cases: our ranks under third-party launchers, and third-party programs under our launcher. They need no
//! guest; MPICH, with its launchers, is its Python package.

use crate::case::{Case, Verdict};
use crate::guest::tail;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::python;
use xtask::workspace::{Workspace, run};

pub(crate) const CASES: &[Case<Mpich>] = &[
    Case { name: "launch-hydra", shows: "PMI-1 under MPICH's mpiexec", run: |m| m.ours(HYDRA, "", "1.2") },
    Case {
        name: "launch-port",
        shows: "the same over TCP",
        run: |m| m.ours("mpiexec.hydra -pmi-port", "", "1.2"),
    },
    Case { name: "launch-pmi2", shows: "PMI-2", run: |m| m.ours(HYDRA, "--pmi2", "2.0") },
    Case {
        name: "launch-gforker",
        shows: "PMI-1 under mpiexec.gforker",
        run: |m| m.ours("mpiexec.gforker", "", "1.1"),
    },
    Case { name: "launch-mpich", shows: "MPICH's programs under `nicety mpirun`", run: Mpich::theirs },
];

const HYDRA: &str = "mpiexec.hydra";
/// How long a job may run.
const LIMIT: Duration = Duration::from_secs(120);
/// Sizes of jobs. MPICH spins, so jobs with more ranks than cores are slow.
const SIZES: [u32; 3] = [1, 2, 4];

/// MPICH, our programs, and a program built against MPICH.
pub(crate) struct Mpich {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    theirs: PathBuf,
    ours: PathBuf,
    mpirun: PathBuf,
    sum: PathBuf,
    folder: PathBuf,
    case: &'static str,
    step: u32,
}

impl Mpich {
    /// Installs MPICH and builds our programs.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "pmi", "--examples"]))?;
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety"]))?;
        let folder = workspace.target().join("interop/launchers");
        fs::create_dir_all(&folder)?;
        let (theirs, sum) = (python::installed(workspace, python::MPICH)?, folder.join("sum"));
        let source = workspace.root.join("interop/files/sum.c");
        run(Command::new(theirs.join("mpicc_abi")).arg(source).arg("-o").arg(&sum))?;
        let target = workspace.target().to_owned();
        let (root, ours) = (workspace.root.clone(), target.join("debug/examples"));
        let mpirun = target.join("debug/nicety");
        Ok(Self { root, target, theirs, ours, mpirun, sum, folder, case: "", step: 0 })
    }

    /// The path of one of MPICH's programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.theirs.join(name)
    }

    /// Begins another case.
    pub(crate) fn begin(&mut self, case: &'static str) {
        (self.case, self.step) = (case, 0);
    }

    /// The output lines of a job's ranks, in order.
    fn output_lines(&mut self, command: &mut Command) -> Result<Vec<String>> {
        self.step += 1;
        let log = self.folder.join(format!("{}-{}.log", self.case, self.step));
        let finished = Running::start(command, &log)?.finish(LIMIT)?;
        ensure!(finished.is_good(), "it ended with {:?}: {}", finished.status, tail(&finished.output));
        let mut lines: Vec<String> =
            finished.output.lines().filter(|line| line.starts_with("rank ")).map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    }

    /// Runs our rank under one of their launchers; on a descriptor, also with children.
    fn ours(&mut self, launcher: &str, option: &str, version: &str) -> Result<Verdict> {
        let mut words = launcher.split(' ');
        let launcher = self.theirs.join(words.next().context("a launcher has a name")?);
        let launch = |size: u32| {
            let mut command = Command::new(&launcher);
            command.args(words.clone()).args(["-n", &size.to_string()]);
            command
        };
        let hello = self.ours.join("hello_pmi");
        let knows_nodes = self.case != "launch-gforker";
        for size in SIZES {
            let said = self.output_lines(launch(size).arg(&hello).args(option.split_whitespace()))?;
            expect(&said, &hellos(size, version, knows_nodes, ""))?;
        }
        let mut ranks = SIZES.iter().sum::<u32>();
        if self.case != "launch-port" {
            let said =
                self.output_lines(launch(2).arg(&hello).arg("--spawn").args(option.split_whitespace()))?;
            let children = hellos(2, version, knows_nodes, ", started by rank-0");
            expect(&said, &[hellos(2, version, knows_nodes, ""), children].concat())?;
            ranks += 4;
        }
        Ok(Verdict(format!("{ranks} ranks by PMI {version}")))
    }

    /// Runs their programs, and ours, under our launcher.
    fn theirs(&mut self) -> Result<Verdict> {
        let launcher = self.mpirun.clone();
        let launch = |size: u32| {
            let mut command = Command::new(&launcher);
            // Their programs, on their own library.
            command.args(["mpirun", "--library", "none", "-n", &size.to_string()]);
            command
        };
        let sum_program = self.sum.clone();
        for size in SIZES {
            let sum = size * (size - 1) / 2;
            let expected: Vec<String> =
                (0..size).map(|rank| format!("rank {rank} of {size}, sum {sum}")).collect();
            let said = self.output_lines(launch(size).arg(&sum_program))?;
            expect(&said, &expected)?;
        }
        let said = self.output_lines(launch(1).arg(sum_program).arg("spawn"))?;
        expect(
            &said,
            &["rank 0 of 1, sum 0", "rank 0 of 2, a child, sum 1", "rank 1 of 2, a child, sum 1"]
                .map(str::to_owned),
        )?;
        let hello = self.ours.join("hello_pmi");
        let said = self.output_lines(launch(4).arg(hello))?;
        expect(&said, &hellos(4, "1.2", true, ""))?;
        Ok(Verdict("jobs of 1, 2 and 4 ranks, a job that starts another".to_owned()))
    }
}

/// The expected output of our ranks, each with its neighbour; all are on one node.
fn hellos(size: u32, version: &str, knows_nodes: bool, more: &str) -> Vec<String> {
    let nodes = if knows_nodes { format!("{:?}", vec![0; size as usize]) } else { "unknown".to_owned() };
    let hello = |rank| {
        format!("rank {rank} of {size}, PMI {version}, nodes {nodes}, found rank {}{more}", (rank + 1) % size)
    };
    (0..size).map(hello).collect()
}

fn expect(said: &[String], expected: &[String]) -> Result<()> {
    let mut expected = expected.to_vec();
    expected.sort();
    ensure!(said == expected, "the ranks say {said:?}, and should say {expected:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_without_output_is_found() {
        let all = hellos(2, "1.2", true, "");
        assert_eq!(all[1], "rank 1 of 2, PMI 1.2, nodes [0, 0], found rank 0");
        assert!(expect(&all, &all).is_ok());
        assert!(expect(&all[..1], &all).is_err());
        assert!(expect(&all, &hellos(2, "1.2", false, "")).is_err());
    }
}
