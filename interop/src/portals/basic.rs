//! Portals: the basic tests of Sandia's reference, from a checkout of its public repository, compiled against our
//! header and run on our library. The checkout is not changed.

use super::library;
use crate::makefile::{defines, joined, values};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::Running;
use xtask::workspace::{Workspace, counted, run};

pub(crate) const DEVICES: [&str; 2] = ["shm", "iwarp"];
/// Where messages are matched: by the calling thread, by a thread of ours, or by a spinning thread.
const PLACES: [&str; 3] = ["caller", "thread", "spin"];
/// How long a test may run: one test makes ten thousand round trips, which take half a minute where threads spin for
/// cores.
const LIMIT: Duration = Duration::from_secs(240);
/// Tests that the reference builds only if it was configured for their features.
const OPTIONAL: [&str; 2] = ["test_triggered_ME_ops", "test_ME_unordered_match_ops"];
/// Sources linked with every test: helpers, and the reference's PMI client.
const SUPPORT: [&str; 4] = [
    "test/support.c",
    "test/pmi.c",
    "src/runtime/pmi-simple/simple_pmi.c",
    "src/runtime/pmi-simple/simple_pmiutil.c",
];
/// Folders of the checkout's headers, except its `portals4.h`.
const INCLUDES: [&str; 5] =
    ["test", "test/basic", "src/runtime", "src/runtime/pmi-simple", "src/runtime/portals4"];
/// Features that the reference's configuration would detect on Linux.
const FOUND: [&str; 12] = [
    "UNISTD_H",
    "STDLIB_H",
    "STRING_H",
    "STRINGS_H",
    "SYS_SOCKET_H",
    "SYS_TYPES_H",
    "STDARG_H",
    "NETDB_H",
    "NETINET_IN_H",
    "NETINET_TCP_H",
    "ERRNO_H",
    "SNPRINTF",
];

/// A test of the checkout, from its makefile.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    name: String,
    source: String,
    defines: Vec<String>,
}

/// The tests that a makefile lists.
fn tests(makefile: &str) -> Result<Vec<Test>> {
    let makefile = joined(makefile);
    let listed = values(&makefile, "TESTS").into_iter().chain(OPTIONAL);
    let test = |name: &str| {
        let sources = values(&makefile, &format!("{name}_SOURCES"));
        let source = sources.first().with_context(|| format!("the makefile has no source of {name}"))?;
        Ok(Test { name: name.to_owned(), source: (*source).to_owned(), defines: defines(&makefile, name) })
    };
    listed.map(test).collect()
}

/// The checkout, and the folder in which its tests are built.
pub(crate) struct Bench {
    pub(crate) source: PathBuf,
    pub(crate) folder: PathBuf,
    include: PathBuf,
    nicety: PathBuf,
}

impl Bench {
    pub(crate) fn open(workspace: &Workspace, source: &Path) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety", "--package", "abi-portals"]))?;
        let (target, folder) = (workspace.target(), workspace.target().join("interop/portals"));
        fs::create_dir_all(&folder)?;
        library::link(&target.join("debug/libnicety_portals.so"), &folder)?;
        let found: Vec<String> = FOUND.iter().map(|what| format!("#define HAVE_{what} 1\n")).collect();
        fs::write(folder.join("config.h"), found.concat() + "#define USE_PMI_PORT 1\n")?;
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/abi-portals/include");
        Ok(Self { source: source.to_owned(), folder, include, nicety: target.join("debug/nicety") })
    }

    pub(crate) fn cc(&self) -> Command {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H", "-I"]).arg(&self.folder);
        cc.arg("-I").arg(&self.include);
        for folder in INCLUDES {
            cc.arg("-I").arg(self.source.join(folder));
        }
        cc
    }

    /// Compiles the support sources of all tests.
    pub(crate) fn support(&self) -> Result<Vec<PathBuf>> {
        let object = |file: &&str| {
            let source = self.source.join(file);
            let name = Path::new(file).with_extension("o");
            let object = self.folder.join(name.file_name().context("it has a name")?);
            run(self.cc().arg("-c").arg(source).arg("-o").arg(&object))?;
            Ok(object)
        };
        SUPPORT.iter().map(object).collect()
    }

    fn build(&self, test: &Test, support: &[PathBuf]) -> Result<()> {
        let mut cc = self.cc();
        cc.args(&test.defines).arg(self.source.join("test/basic").join(&test.source)).args(support);
        self.link(&mut cc, &test.name)
    }

    /// Links the compiler's inputs into a program of this name.
    pub(crate) fn link(&self, cc: &mut Command, name: &str) -> Result<()> {
        cc.arg("-o").arg(self.folder.join(name)).arg("-L").arg(&self.folder);
        cc.args(["-lportals", "-lpthread", "-lm"]).arg(format!("-Wl,-rpath,{}", self.folder.display()));
        run(cc)
    }

    /// A command that starts this number of ranks on a device.
    pub(crate) fn launch(&self, device: &str, ranks: &str) -> Command {
        let mut launch = Command::new(&self.nicety);
        launch.args(["mpirun", "-n", ranks]).env("NICETY_DEVICE", device);
        launch
    }

    /// Runs a test as two ranks on a device with a matching variant; returns its output if it failed.
    fn run_on(&self, test: &Test, (device, place): (&str, &str)) -> Result<Option<String>> {
        let log = self.folder.join(format!("{}.{device}.{place}.log", test.name));
        let mut launch = self.launch(device, "2");
        launch.arg(self.folder.join(&test.name)).env("NICETY_PORTALS_ENGINE", place);
        let finished = Running::start(&mut launch, &log)?.finish(LIMIT)?;
        Ok((!finished.is_good()).then_some(finished.output))
    }
}

/// Builds all tests, runs them on each device with each matching variant, and reports how many passed.
pub(crate) fn check(workspace: &Workspace, source: &Path) -> Result<()> {
    let makefile = source.join("test/basic/Makefile.am");
    let text = fs::read_to_string(&makefile).with_context(|| {
        format!("{}: not there; give a checkout of github.com/Portals4/portals4", makefile.display())
    })?;
    let tests = tests(&text)?;
    ensure!(tests.len() > OPTIONAL.len(), "{} lists no tests", makefile.display());
    let bench = Bench::open(workspace, source)?;
    let support = bench.support()?;
    tests.iter().try_for_each(|test| bench.build(test, &support))?;
    let mut failed = 0;
    for at in DEVICES.into_iter().flat_map(|device| PLACES.map(|place| (device, place))) {
        let (device, place) = at;
        let (began, mut passed) = (Instant::now(), 0);
        for test in &tests {
            match bench.run_on(test, at)? {
                None => passed += 1,
                Some(said) => println!("interop: FAILED  {} on {device}, {place}: {said}", test.name),
            }
        }
        let took = began.elapsed().as_secs_f64();
        println!(
            "interop: portals on {device}, matched by {place}: {passed} of {} passed in {took:.0} s",
            counted(tests.len(), "test")
        );
        failed += tests.len() - passed;
    }
    if failed > 0 {
        bail!("{} of the reference failed", counted(failed, "test"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_a_makefile() {
        let makefile = "TESTS = \\\n\ttest_a \\\n        test_b\nif X\nTESTS += \\\n\ttest_triggered_ME_ops\nendif\n\
            test_a_SOURCES = a.c\ntest_b_SOURCES = a.c\ntest_b_CPPFLAGS = $(AM_CPPFLAGS) -DONE=1 -I x -DTWO\n\
            test_triggered_ME_ops_SOURCES = t.c\ntest_ME_unordered_match_ops_SOURCES = u.c\n";
        let tests = tests(makefile).expect("a makefile");
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["test_a", "test_b", OPTIONAL[0], OPTIONAL[1]]);
        assert_eq!(
            (tests[1].source.as_str(), &tests[1].defines[..]),
            ("a.c", &["-DONE=1".into(), "-DTWO".into()][..])
        );
        assert!(super::tests("TESTS = test_c\n").is_err());
    }
}
