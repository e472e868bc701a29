//! Libraries that store arrays in files with MPI, unmodified, from Debian's source packages: compiled by `nicety
//! mpicc`, which their build systems find as mpicc, and tested by their own tests with four ranks on our library, which
//! check what they read.

use super::debian::source;
use crate::case::Verdict;
use crate::guest::tail;
use anyhow::{Result, anyhow, ensure};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;
use xtask::packages::{Needed, provide};
use xtask::workspace::counted;

/// How long a build step or a run may take.
const LIMIT: Duration = Duration::from_secs(1200);
const DEVICES: [&str; 2] = ["shm", "iwarp"];
const NEEDED: &Needed = &[
    ("make", "make"),
    ("autoreconf", "autoconf"),
    ("automake", "automake"),
    ("libtoolize", "libtool"),
    ("m4", "m4"),
    ("xz", "xz-utils"),
    ("/usr/include/zlib.h", "zlib1g-dev"),
];
/// HDF5's test programs; programs with their own schedule or with sizes for large machines are left out.
const HDF5: [&str; 7] =
    ["t_mpi", "testphdf5", "t_cache_image", "t_pread", "t_init_term", "t_shapesame", "t_filters_parallel"];

/// A library that is built and tested.
struct Library {
    /// The folder of its sources, which is also the build folder.
    source: PathBuf,
    folder: PathBuf,
    /// The search path with our `mpicc` and `mpiexec`.
    path: OsString,
}

impl Library {
    fn open(nicety: &Path, folder: PathBuf, package: &str) -> Result<Self> {
        provide(NEEDED).map_err(|why| anyhow!(why))?;
        let source = source(&folder, package)?;
        let links = folder.join("bin");
        fs::create_dir_all(&links)?;
        for name in ["mpicc", "mpiexec"] {
            let _ = fs::remove_file(links.join(name));
            symlink(nicety, links.join(name))?;
        }
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([links].into_iter().chain(std::env::split_paths(&usual)))?;
        Ok(Self { source, folder, path })
    }

    /// The output of a command, which must succeed; the log is named after the step.
    fn step(&self, name: &str, at: &str, line: &[&str]) -> Result<String> {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(self.source.join(at));
        command.env("PATH", &self.path).env("MPICC", "mpicc").env("CC", "mpicc").env("HDF5TestExpress", "3");
        let log = self.folder.join(format!("{name}.log"));
        let finished = Running::start(&mut command, &log)?.finish(LIMIT)?;
        ensure!(
            finished.is_good(),
            "{} ended with {:?}: {}",
            line.join(" "),
            finished.status,
            tail(&finished.output)
        );
        Ok(finished.output)
    }
}

/// Builds PnetCDF, and runs all of its parallel tests.
pub(crate) fn pnetcdf(nicety: &Path, folder: PathBuf) -> Result<Verdict> {
    let library = Library::open(nicety, folder, "pnetcdf")?;
    if !library.source.join("Makefile").exists() {
        library.step("autoreconf", "", &["autoreconf", "-i"])?;
        library.step("configure", "", &["./configure", "--disable-fortran", "--disable-cxx"])?;
    }
    library.step("make", "", &["make", "tests"])?;
    let mut shown = Vec::new();
    for device in DEVICES {
        let launcher = format!("TESTMPIRUN=mpiexec --device {device} -n NP");
        let said = library.step(device, "test", &["make", "ptest", &launcher])?;
        shown.push(format!("on {device} {}", counted(passed(&said)?, "test")));
    }
    Ok(Verdict(format!("4 ranks, passed {}", shown.join(", "))))
}

/// The number of tests that passed; an error if any test reports something else.
fn passed(said: &str) -> Result<usize> {
    let is_verdict = |line: &&str| line.starts_with("*** TESTING") && !line.ends_with(" skip");
    let verdicts = said.lines().filter(is_verdict);
    let (good, bad): (Vec<_>, Vec<_>) = verdicts.partition(|line| line.ends_with(" pass"));
    ensure!(bad.is_empty() && !good.is_empty(), "{} passed, these did not: {}", good.len(), bad.join("; "));
    Ok(good.len())
}

/// Builds HDF5 with MPI, and runs its tests.
pub(crate) fn hdf5(nicety: &Path, folder: PathBuf) -> Result<Verdict> {
    let library = Library::open(nicety, folder, "hdf5")?;
    // The unconfigured sources already contain a makefile, which therefore proves nothing.
    if !library.source.join("config.status").exists() {
        let options =
            ["--enable-parallel", "--disable-hl", "--disable-shared", "--enable-build-mode=production"];
        library.step("configure", "", &[&["./configure", "CFLAGS=-O1 -w"][..], &options].concat())?;
    }
    library.step("make", "src", &["make"])?;
    library.step("make-test", "test", &["make", "libh5test.la"])?;
    library.step("make-testpar", "testpar", &[&["make"][..], &HDF5].concat())?;
    for device in DEVICES {
        for program in HDF5 {
            let line = ["mpiexec", "--device", device, "-n", "4", &format!("./{program}")];
            library.step(&format!("{device}-{program}"), "testpar", &line)?;
        }
    }
    Ok(Verdict(format!(
        "4 ranks, on {} each {} passed",
        DEVICES.join(" and "),
        counted(HDF5.len(), "program")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_test_is_found() {
        let good = "make: x\n*** TESTING C a --- pass\n*** TESTING C b --- pass\n*** TESTING C c --- skip\n";
        assert_eq!(passed(good).expect("good"), 2);
        for bad in [good.replace("b --- pass", "b --- fail with 2 mismatches"), String::new()] {
            assert!(passed(&bad).is_err(), "{bad}");
        }
    }
}
