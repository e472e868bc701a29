//! MPICH's own MPI tests in C and Fortran, from a checkout of its public repository: compiled by `nicety mpicc` and
//! `nicety mpifort`, and run on our library according to its lists. The checkout is not changed.
//!
//! `suite` has the checkout and the support code of programs, `lists` reads the lists, and `fortran` compiles programs in Fortran.

mod fortran;
mod lists;
mod suite;

use crate::makefile::{defines, joined, values};
use anyhow::{Context, Result, bail, ensure};
use lists::{Entry, Expects, Test};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use suite::Suite;
use xtask::limited::{Finished, Running};
use xtask::workspace::{Workspace, counted};

/// What to run of the tests, and where they are.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A checkout of github.com/pmodels/mpich.
    #[arg(long, value_name = "DIR")]
    source: PathBuf,
    /// Only this folder of its tests, as `coll`, or this program, as `coll/bcast`; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only on this device.
    #[arg(long, value_parser = DEVICES)]
    device: Option<String>,
}

const DEVICES: [&str; 2] = ["shm", "iwarp"];
/// Folders of `test/mpi` with C programs that use only the standard.
const FOLDERS: [&str; 35] = [
    "attr",
    "coll",
    "comm",
    "datatype",
    "errhan",
    "errors/attr",
    "errors/coll",
    "errors/comm",
    "errors/datatype",
    "errors/group",
    "errors/io",
    "errors/pt2pt",
    "errors/rma",
    "errors/session",
    "errors/spawn",
    "errors/topo",
    "group",
    "info",
    "init",
    "io",
    "mpi_t",
    "part",
    "pt2pt",
    "rma",
    "session",
    "spawn",
    "threads/coll",
    "threads/comm",
    "threads/init",
    "threads/mpi_t",
    "threads/part",
    "threads/pt2pt",
    "threads/rma",
    "threads/spawn",
    "topo",
];
/// Tests that require more than MPI does, with the requirement.
const LEFT_OUT: [(&str, &str); 15] = [
    ("datatype/indexed_misc", "uses a datatype that it has freed"),
    ("datatype/typename", "knows one of two names of MPI_C_FLOAT_COMPLEX"),
    ("errors/attr/keyvalmis", OTHER_HANDLER),
    ("errors/comm/comm_create_group_nullarg", OTHER_HANDLER),
    ("errors/comm/comm_create_nullarg", OTHER_HANDLER),
    ("errors/comm/comm_split_nullarg", OTHER_HANDLER),
    ("errors/comm/comm_split_type_nullarg", OTHER_HANDLER),
    ("errors/pt2pt/truncmsg2", "wants the types of a send and its receive compared"),
    ("errors/rma/cas_type_check", "wants MPI_CHAR, which is no integer type, compared and swapped"),
    ("io/tst_fileview", "wants a filetype that goes backward to be an MPI_ERR_IO"),
    ("mpi_t/cvarwrite", "writes numbers that control variables cannot have"),
    ("rma/fetch_and_op_char", NO_SUM),
    ("rma/fetch_and_op_char_accop_hwacc", NO_SUM),
    ("rma/fetch_and_op_char_hwacc", NO_SUM),
    ("pt2pt/bsend_iflush", "wants a buffered message to its own process to stay in the space for it"),
];
const NO_SUM: &str = "wants MPI_CHAR summed up, which is no number in MPI";
const OTHER_HANDLER: &str = "wants the handler of MPI_COMM_WORLD called for an object that has its own";

/// How long `mpirun` may take to end ranks that have exceeded their time.
const MANNERS: Duration = Duration::from_secs(60);
/// A remark of `mpirun` where ranks share cores, which is no output of the test.
const SHARED: &str = "timings are unreliable (oversubscribed)";

/// The result of a run.
enum Outcome {
    Passed,
    Failed(String),
    /// The program reported that it skips.
    Skipped,
}

/// The numbers of results of a folder's runs.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    left_out: usize,
}

impl Suite {
    /// The entries of a folder's lists.
    fn entries(&self, folder: &str) -> Result<Vec<Entry>> {
        if fortran::is_of(folder) {
            return fortran::entries(&self.tests, folder);
        }
        let at = self.tests.join(folder);
        let lists = ["testlist", "testlist.in"].map(|name| at.join(name));
        let list = lists.iter().find(|list| list.exists());
        let list = fs::read_to_string(list.with_context(|| format!("{}: no list of tests", at.display()))?)?;
        let config = fs::read_to_string(self.tests.join("maint/dtp-test-config.txt"))?;
        Ok(lists::entries(&(list + "\n" + &lists::pooled(&config, folder))))
    }

    /// Compiles a program of a folder unless that was done before.
    fn built(&mut self, folder: &str, program: &str) -> Result<(), String> {
        let name = format!("{folder}/{program}");
        if let Some(built) = self.built.get(&name) {
            return built.clone();
        }
        let built = match fortran::is_of(folder) {
            true => self.build_fortran(folder, program),
            false => self.build(folder, program),
        };
        let built = built.map_err(|why| format!("{why:#}"));
        self.built.insert(name, built.clone());
        built
    }

    /// Compiles a program of a folder with the options of its makefile.
    fn build(&self, folder: &str, program: &str) -> Result<()> {
        let built = self.folder.join(folder);
        fs::create_dir_all(&built)?;
        let makefile = joined(&fs::read_to_string(self.tests.join(folder).join("Makefile.am"))?);
        let sources = values(&makefile, &format!("{program}_SOURCES"));
        let own = format!("{program}.c");
        let sources = if sources.is_empty() { vec![own.as_str()] } else { sources };
        let mut cc = self.cc();
        let threads = folder.starts_with("threads");
        if threads {
            cc.arg("-DMTEST_USE_THREAD");
        }
        cc.args(defines(&makefile, program)).arg("-I").arg(self.tests.join(folder));
        let sources = sources.iter().filter(|source| source.ends_with(".c"));
        cc.args(sources.map(|source| self.tests.join(folder).join(source)));
        cc.arg(self.folder.join(if threads { "threads.o" } else { "single.o" }));
        cc.args(["handlers.o", "libmtest.a"].map(|file| self.folder.join(file)))
            .args(["-lm", "-lpthread", "-o"])
            .arg(built.join(program));
        let finished = Running::start(&mut cc, &built.join(format!("{program}.cc")))?
            .finish(Duration::from_secs(120))?;
        let why =
            || finished.output.lines().find(|line| line.contains("error") || line.contains("undefined"));
        ensure!(finished.is_good(), "does not compile: {}", why().unwrap_or("see its log"));
        Ok(())
    }

    /// Runs a test in the folder of its program.
    fn run_on(&self, folder: &str, test: &Test, device: &str) -> Result<Outcome> {
        let at = self.folder.join(folder);
        let log = at.join(format!("{}.{}.{device}.log", test.program, test.ranks));
        let mut launch = Command::new(&self.nicety);
        let limit = test.limit_s.to_string();
        launch
            .args(["mpirun", "-n", &test.ranks, "--timeout", &limit])
            .arg(at.join(&test.program))
            .args(&test.arguments);
        launch.current_dir(&at).env("NICETY_DEVICE", device);
        launch.envs(test.variables.iter().map(|(name, value)| (name, value)));
        let finished =
            Running::start(&mut launch, &log)?.finish(Duration::from_secs(test.limit_s) + MANNERS)?;
        Ok(judge(test.expects, &finished))
    }
}

/// Compares a run with its expected result.
fn judge(expects: Expects, finished: &Finished) -> Outcome {
    let is = |line: &&str, words: &str| line.trim().eq_ignore_ascii_case(words);
    let says = |words: &str| finished.output.lines().any(|line| is(&line, words));
    let is_extra = |line: &&str| !is(line, "No Errors") && !line.trim().is_empty() && !line.contains(SHARED);
    let others: Vec<&str> = finished.output.lines().filter(is_extra).collect();
    let has_failed = finished.status.is_some_and(|status| !status.success());
    if says("Test Skipped") {
        return Outcome::Skipped;
    }
    let good = match expects {
        Expects::NoErrors => finished.is_good() && says("No Errors") && others.is_empty(),
        Expects::NoErrorsAndWords => finished.is_good() && says("No Errors"),
        Expects::NoErrorsThenFailure => has_failed && says("No Errors"),
        Expects::Failure => has_failed,
        Expects::Status => finished.is_good(),
    };
    if good {
        return Outcome::Passed;
    }
    let how = finished.status.map_or_else(|| "did not end".to_owned(), |status| status.to_string());
    let words: String =
        others.iter().take(3).copied().collect::<Vec<_>>().join(" | ").chars().take(300).collect();
    Outcome::Failed(format!("{how}: {words}"))
}

/// The results of a folder's tests by device, and the reasons for tests that were left out.
#[derive(Default)]
struct Table {
    counts: BTreeMap<&'static str, BTreeMap<String, Counts>>,
    left_out: BTreeMap<&'static str, usize>,
}

impl Table {
    fn of(&mut self, folder: &'static str, device: &str) -> &mut Counts {
        self.counts.entry(folder).or_default().entry(device.to_owned()).or_default()
    }

    fn leave_out(&mut self, folder: &'static str, device: &str, why: &'static str) {
        self.of(folder, device).left_out += 1;
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Prints the table; returns the number of failures.
    fn print(&self, devices: &[&str]) -> usize {
        let heads: String =
            devices.iter().map(|device| format!("{device:>10}: passed failed left out")).collect();
        println!("{:<16}{heads}", "");
        for (folder, row) in &self.counts {
            let cells = devices
                .iter()
                .filter_map(|device| row.get(*device))
                .map(|of| format!("{:>18} {:>6} {:>8}", of.passed, of.failed, of.left_out));
            println!("{folder:<16}{}", cells.collect::<String>());
        }
        for (why, number) in &self.left_out {
            println!("left out: {number:>4}, {why}");
        }
        self.counts.values().flat_map(BTreeMap::values).map(|of| of.failed).sum()
    }
}

/// Runs a test on each device, and records the results.
fn run_test(
    suite: &mut Suite,
    folder: &'static str,
    test: &Test,
    devices: &[&str],
    table: &mut Table,
) -> Result<()> {
    let name = format!("{folder}/{}", test.program);
    let known = LEFT_OUT.iter().chain(&fortran::LEFT_OUT).find(|(known, _)| *known == name);
    let built = known.is_none().then(|| suite.built(folder, &test.program));
    for device in devices {
        let began = Instant::now();
        let outcome = match (known, &built) {
            (Some((_, why)), _) => {
                table.leave_out(folder, device, why);
                continue;
            }
            (None, Some(Err(why))) => Outcome::Failed(why.clone()),
            (None, _) => suite.run_on(folder, test, device)?,
        };
        match outcome {
            Outcome::Passed => table.of(folder, device).passed += 1,
            Outcome::Skipped => {
                table.leave_out(folder, device, "the program says that it has nothing to try")
            }
            Outcome::Failed(why) => {
                table.of(folder, device).failed += 1;
                let (ranks, arguments) = (&test.ranks, test.arguments.join(" "));
                println!(
                    "FAILED {name} {ranks} {arguments} on {device}, {} s: {why}",
                    began.elapsed().as_secs()
                );
            }
        }
    }
    Ok(())
}

/// Builds and runs the tests, and prints for each folder how many passed.
pub(crate) fn check(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut suite = Suite::open(workspace, &options.source)?;
    let mut devices = Vec::from(DEVICES);
    devices.retain(|device| options.device.as_deref().is_none_or(|only| only == *device));
    let mut table = Table::default();
    for folder in FOLDERS.into_iter().chain(fortran::FOLDERS) {
        let wanted = |name: &str| {
            options.only.is_empty() || options.only.iter().any(|only| only == folder || only == name)
        };
        for entry in suite.entries(folder)? {
            match entry {
                Entry::Test(test) if wanted(&format!("{folder}/{}", test.program)) => {
                    run_test(&mut suite, folder, &test, &devices, &mut table)?;
                }
                Entry::LeftOut(why) if wanted(folder) => {
                    devices.iter().for_each(|device| table.leave_out(folder, device, why));
                }
                _ => {}
            }
        }
    }
    match table.print(&devices) {
        0 => Ok(()),
        failed => bail!("{} failed; what they said is in {}", counted(failed, "run"), suite.folder.display()),
    }
}
