//! OpenSHMEM: Sandia's library, from a checkout of its public repository, configured against our `portals4.h` and
//! `libportals.so`, and its unit tests under `nicety mpirun`. The checkout is not changed: it is copied, as its build
//! writes files next to its sources.

use super::library;
use crate::guest::tail;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::Running;
use xtask::packages::provide;
use xtask::workspace::{Workspace, counted, run};

const DEVICES: [&str; 2] = ["shm", "iwarp"];
const RANKS: [&str; 2] = ["2", "4"];
/// How long one step of the build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);
/// How long a test may run: two tests take 15 s where four ranks share two cores.
const LIMIT: Duration = Duration::from_secs(120);
/// The folder of the test programs in the build.
const UNIT: &str = "modules/tests-sos/test/unit";

/// The library and its tests, built.
struct Bench {
    folder: PathBuf,
    nicety: PathBuf,
}

impl Bench {
    fn open(workspace: &Workspace, source: &Path) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety", "--package", "abi-portals"]))?;
        let (target, folder) = (workspace.target(), workspace.target().join("interop/openshmem"));
        let bench = Self { folder, nicety: target.join("debug/nicety") };
        bench.portals(&target.join("debug/libnicety_portals.so"))?;
        let (built, header) = (bench.folder.join("built"), bench.folder.join("portals4/include/portals4.h"));
        let of = format!("{}\n{}", source.display(), fs::read_to_string(header)?);
        if fs::read_to_string(&built).ok().is_none_or(|before| before != of) {
            bench.build(source)?;
            fs::write(built, of)?;
        }
        Ok(bench)
    }

    /// Installs Portals as configure scripts expect it: a folder with `include` and `lib`.
    fn portals(&self, built: &Path) -> Result<()> {
        let [include, lib] = ["include", "lib"].map(|part| self.folder.join("portals4").join(part));
        fs::create_dir_all(&include)?;
        fs::create_dir_all(&lib)?;
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/abi-portals/include/portals4.h");
        fs::copy(header, include.join("portals4.h"))?;
        Ok(library::link(built, &lib)?)
    }

    /// Builds everything, in one to five minutes.
    fn build(&self, source: &Path) -> Result<()> {
        let copy = self.folder.join("source");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        run(Command::new("cp").arg("-r").arg(source).arg(&copy))?;
        self.step("autogen", Command::new("./autogen.sh").current_dir(&copy))?;
        let portals = format!("--with-portals4={}", self.folder.join("portals4").display());
        let mut configure = Command::new("./configure");
        configure.args([&portals, "--enable-pmi-simple", "--enable-error-checking"]);
        configure.args(["--disable-fortran", "--disable-cxx"]);
        self.step("configure", configure.current_dir(&copy))?;
        self.step("make", Command::new("make").arg("-j2").current_dir(&copy))?;
        self.step("tests", Command::new("make").args(["-j2", "check", "TESTS="]).current_dir(copy.join(UNIT)))
    }

    fn step(&self, name: &str, command: &mut Command) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        let finished = Running::start(self.at_portals(command), &log)?.finish(BUILD_LIMIT)?;
        ensure!(finished.is_good(), "{name} failed, see {}: {}", log.display(), tail(&finished.output));
        Ok(())
    }

    fn at_portals<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", self.folder.join("portals4/lib"))
    }

    /// The names of the tests: programs that the build has made next to their makefile.
    fn tests(&self) -> Result<Vec<String>> {
        let mut tests = Vec::new();
        for entry in fs::read_dir(self.folder.join("source").join(UNIT))? {
            let entry = entry?;
            let (name, about) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?);
            if about.is_file() && about.permissions().mode() & 0o100 != 0 && !name.contains('.') {
                tests.push(name);
            }
        }
        tests.sort_unstable();
        Ok(tests)
    }

    /// Runs a test; returns its output if it failed.
    fn run_on(&self, test: &str, device: &str, ranks: &str) -> Result<Option<String>> {
        let log = self.folder.join(format!("{test}.{device}.{ranks}.log"));
        let mut launch = Command::new(&self.nicety);
        launch.args(["mpirun", "--device", device, "-n", ranks]);
        launch.arg(self.folder.join("source").join(UNIT).join(test));
        let finished = Running::start(self.at_portals(&mut launch), &log)?.finish(LIMIT)?;
        Ok((!finished.is_good()).then(|| format!("{:?}: {}", finished.status, tail(&finished.output))))
    }
}

/// Builds the library and its tests, runs them on each device with two and four ranks, and reports how many passed.
pub(crate) fn check(workspace: &Workspace, source: &Path) -> Result<()> {
    ensure!(
        source.join(UNIT).join("Makefile.am").exists(),
        "{}: not there; give a checkout of github.com/Sandia-OpenSHMEM/SOS with its submodule modules/tests-sos",
        source.join(UNIT).display()
    );
    let needed =
        [("autoreconf", "autoconf"), ("automake", "automake"), ("libtoolize", "libtool"), ("make", "make")];
    provide(&needed).map_err(|why| anyhow!(why))?;
    let source = source.canonicalize().context("the checkout has a path")?;
    let bench = Bench::open(workspace, &source)?;
    let tests = bench.tests()?;
    ensure!(!tests.is_empty(), "the checkout's build has made no tests");
    let mut failed = 0;
    for (device, ranks) in DEVICES.into_iter().flat_map(|device| RANKS.map(|ranks| (device, ranks))) {
        let (began, mut passed) = (Instant::now(), 0);
        for test in &tests {
            match bench.run_on(test, device, ranks)? {
                None => passed += 1,
                Some(said) => println!("interop: FAILED  {test}, {ranks} ranks on {device}: {said}"),
            }
        }
        let took = began.elapsed().as_secs_f64();
        let all = counted(tests.len(), "test");
        println!("interop: openshmem, {ranks} ranks on {device}: {passed} of {all} passed in {took:.0} s");
        failed += tests.len() - passed;
    }
    if failed > 0 {
        bail!("{} of OpenSHMEM failed", counted(failed, "test"));
    }
    Ok(())
}
