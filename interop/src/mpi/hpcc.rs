//! The HPC Challenge benchmarks, unmodified, from Debian's source package: compiled by `nicety mpicc` and run on our
//! library. They check their own results: Linpack's residuals, transposed matrices, errors of random updates and of
//! Fourier transforms.

use super::debian::source;
use crate::case::Verdict;
use crate::guest::tail;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::packages::provide;

const PACKAGE: &str = "hpcc";
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Builds and runs them; `interop/files/Make.nicety` is the makefile that their build requires for a machine, with our
/// compiler.
pub(crate) fn check(nicety: &Path, root: &Path, folder: &Path) -> Result<Verdict> {
    provide(&[("make", "make"), ("/usr/lib/x86_64-linux-gnu/libopenblas.so", "libopenblas-dev")])
        .map_err(|why| anyhow!(why))?;
    let program = build(nicety, root, folder)?;
    let input = fs::read_to_string(root.join("interop/files/hpccinf.txt"))?;
    let mut shown = Vec::new();
    for (ranks, device, grid) in [(1, "shm", [1, 1]), (4, "shm", [2, 2]), (4, "iwarp", [2, 2])] {
        let place = folder.join(format!("{device}-{ranks}"));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place)?;
        let [rows, columns] = grid.map(|count: u32| count.to_string());
        fs::write(place.join("hpccinf.txt"), input.replace("ROWS", &rows).replace("COLUMNS", &columns))?;
        let mut command = Command::new(nicety);
        command.args(["mpirun", "--device", device, "-n", &ranks.to_string()]).arg(&program);
        // The benchmark's own threads would take the cores of other ranks.
        command.env("OPENBLAS_NUM_THREADS", "1").current_dir(&place);
        let finished = Running::start(&mut command, &place.join("log"))?.finish(LIMIT)?;
        ensure!(
            finished.is_good(),
            "{ranks} ranks on {device} ended with {:?}: {}",
            finished.status,
            tail(&finished.output)
        );
        let said = fs::read_to_string(place.join("hpccoutf.txt"))?;
        shown.push(format!("{ranks} on {device}: {}", judged(&said)?));
    }
    Ok(Verdict(shown.join("; ")))
}

/// The benchmarks' own verdicts.
fn judged(said: &str) -> Result<String> {
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    ensure!(value("Success") == Some("1"), "it says that something failed: {}", tail(said));
    let passed = said.lines().filter(|line| line.ends_with("PASSED")).count();
    ensure!(passed > 0 && !said.contains("FAILED"), "Linpack and PTRANS passed {passed}: {}", tail(said));
    let errors = value("MPIRandomAccess_ErrorsFraction").context("random updates have a line")?;
    ensure!(errors.parse::<f64>().is_ok_and(|errors| errors < 0.01), "random updates have errors: {errors}");
    Ok(format!("{passed} tests passed, {errors} of random updates wrong"))
}

/// Builds the program, in a folder with a record of the build's inputs.
fn build(nicety: &Path, root: &Path, folder: &Path) -> Result<PathBuf> {
    let source = source(folder, PACKAGE)?;
    let program = source.join("hpcc");
    if program.exists() {
        return Ok(program);
    }
    fs::copy(root.join("interop/files/Make.nicety"), source.join("hpl/Make.nicety"))?;
    let mut make = Command::new("make");
    make.args(["arch=nicety", &format!("NICETY={}", nicety.display())]).current_dir(&source);
    let finished = Running::start(&mut make, &folder.join("make.log"))?.finish(LIMIT)?;
    ensure!(program.exists(), "make: {}", tail(&finished.output));
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_benchmark_is_found() {
        let good = "x PASSED\nSuccess=1\nMPIRandomAccess_ErrorsFraction=0\n";
        assert_eq!(judged(good).expect("good"), "1 tests passed, 0 of random updates wrong");
        for bad in [
            good.replace("=1", "=0"),
            good.replace("PASSED", "FAILED"),
            good.replace("Fraction=0", "Fraction=0.5"),
            String::new(),
        ] {
            assert!(judged(&bad).is_err(), "{bad}");
        }
    }
}
