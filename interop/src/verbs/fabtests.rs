//! libfabric's own tests (fabtests), from a checkout of its public repository, built against Debian's libfabric and run
//! over its verbs provider on our libraries: endpoints of type msg, and of type rdm through its layer rxm. The checkout
//! is copied, because the build writes into the source folders.

use super::programs::Clients;
use crate::guest::tail;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::{Finished, Running};
use xtask::packages::{Needed, provide};
use xtask::workspace::{Workspace, counted, run};

/// Needed to build the tests.
const NEEDED: &Needed = &[
    ("/usr/include/rdma/fabric.h", "libfabric-dev"),
    ("autoreconf", "autoconf"),
    ("automake", "automake"),
    ("libtoolize", "libtool"),
    ("make", "make"),
];
const DEVICES: [&str; 2] = ["shm", "iwarp"];
/// Each provider, with libfabric's own list of excluded tests.
const PROVIDERS: [(&str, &str); 2] =
    [("verbs", "verbs/verbs.exclude"), ("verbs;ofi_rxm", "ofi_rxm/ofi_rxm.exclude")];
/// The lists of tests that make up the script's quick run.
const LISTS: [&str; 3] = ["unit_tests", "functional_tests", "short_tests"];
/// Folders of the test programs.
const FOLDERS: [&str; 3] = ["unit", "functional", "benchmarks"];
/// An address of this host. With 127.0.0.1 the provider ignores the port on which a program wants to listen
/// (`vrb_fill_addr`).
const ADDRESS: &str = "127.0.0.2";
/// The port that all tests use.
const PORT: u16 = 9228;
/// How long one step of the build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(600);
/// How long a test may run, and how long a server may take until it listens.
const LIMIT: Duration = Duration::from_secs(120);
const LISTEN_LIMIT: Duration = Duration::from_secs(10);
/// Exit statuses for a missing feature of the provider, at both ends (`ENODATA`, `ENOSYS`).
const FEATURE_MISSING: [i32; 2] = [61, 38];

/// The result of a test.
enum TestResult {
    Passed,
    /// The provider lacks the tested feature.
    FeatureMissing,
    Failed(String),
}

/// The tests of a list of the script `runfabtests.sh`.
fn listed<'a>(script: &'a str, list: &str) -> Result<Vec<&'a str>> {
    let (_, rest) = script.split_once(&format!("\n{list}=(")).with_context(|| format!("no list {list}"))?;
    let (body, _) = rest.split_once("\n)").with_context(|| format!("{list} does not end"))?;
    Ok(body.lines().map(|line| line.trim().trim_matches('"')).filter(|line| !line.is_empty()).collect())
}

/// Whether a list of expressions excludes a test. They are plain text, except for `^`, `$` and `|`.
fn leaves_out(excluded: &str, test: &str) -> bool {
    let lines = excluded.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(|line| line.split('|')).any(|pattern| {
        match (pattern.strip_prefix('^'), pattern.strip_suffix('$')) {
            (Some(start), _) => test.starts_with(start),
            (None, Some(end)) => test.ends_with(end),
            (None, None) => test.contains(pattern),
        }
    })
}

/// The built tests.
struct Bench {
    source: PathBuf,
    clients: Clients,
}

impl Bench {
    fn open(workspace: &Workspace, checkout: &Path) -> Result<Self> {
        let folder = workspace.target().join("interop/fabtests");
        fs::create_dir_all(&folder)?;
        let (source, built) = (folder.join("source"), folder.join("built"));
        let of = checkout.display().to_string();
        if fs::read_to_string(&built).ok().is_none_or(|before| before != of) {
            let _ = fs::remove_dir_all(&source);
            run(Command::new("cp").arg("-r").arg(checkout.join("fabtests")).arg(&source))?;
            for (name, line) in
                [("autogen", "./autogen.sh"), ("configure", "./configure"), ("make", "make -j2")]
            {
                let log = folder.join(format!("{name}.log"));
                let mut step = Command::new("sh");
                let finished = Running::start(step.args(["-c", line]).current_dir(&source), &log)?
                    .finish(BUILD_LIMIT)?;
                ensure!(
                    finished.is_good(),
                    "{line} failed, see {}: {}",
                    log.display(),
                    tail(&finished.output)
                );
            }
            fs::write(built, of)?;
        }
        Ok(Self { source, clients: Clients::open(workspace)? })
    }

    /// Starts a test program as the script does, with `more` after the test's own arguments.
    fn start(&mut self, test: &str, provider: &str, device: &str, more: &[&str]) -> Result<Running> {
        let mut words = test.split_whitespace();
        let program = words.next().context("a test has a program")?;
        let mut command = self.clients.command(device);
        let mut built = FOLDERS.iter().map(|folder| self.source.join(folder).join(program));
        let path = built.find(|path| path.is_file());
        command.arg(path.with_context(|| format!("{program} is not built"))?).args(words);
        command.args(["-p", provider]).args(more);
        self.clients.start_command(&mut command)
    }

    fn run_on(&mut self, test: &str, provider: &str, device: &str) -> Result<TestResult> {
        if !has_client(test) {
            let line = test.replace("GOOD_ADDR", ADDRESS).replace("SERVER_ADDR", ADDRESS);
            return Ok(verdict(&[self.start(&line, provider, device, &[])?.finish(LIMIT)?]));
        }
        let mut server = self.start(test, provider, device, &["-s", ADDRESS])?;
        // A server whose provider lacks a feature exits without listening, and its client will exit as well.
        let _ = server.wait_for_listener(PORT, LISTEN_LIMIT);
        let client = self.start(test, provider, device, &["-s", ADDRESS, ADDRESS])?.finish(LIMIT)?;
        let left = if client.is_good() { LIMIT } else { LISTEN_LIMIT };
        Ok(verdict(&[client, server.finish(left)?]))
    }
}

/// Whether a test has a server and a client: unit tests are one program, whose name ends with `_test`.
fn has_client(test: &str) -> bool {
    !test.split_whitespace().next().is_some_and(|program| program.ends_with("_test"))
}

fn verdict(ends: &[Finished]) -> TestResult {
    let code = |end: &Finished| end.status.and_then(|status| status.code());
    if ends.iter().all(Finished::is_good) {
        return TestResult::Passed;
    }
    if FEATURE_MISSING.iter().any(|lacking| ends.iter().all(|end| code(end) == Some(*lacking))) {
        return TestResult::FeatureMissing;
    }
    let said = ends.iter().map(|end| format!("{:?}: {}", end.status, tail(&end.output)));
    TestResult::Failed(said.collect::<Vec<_>>().join("\n"))
}

/// Builds the tests, runs them with each provider on each device, and reports how many passed.
pub(crate) fn check(workspace: &Workspace, checkout: &Path) -> Result<()> {
    let script = checkout.join("fabtests/scripts/runfabtests.sh");
    let script = fs::read_to_string(&script).with_context(|| {
        format!("{}: not there; give a checkout of github.com/ofiwg/libfabric", script.display())
    })?;
    provide(NEEDED).map_err(|why| anyhow!(why))?;
    let checkout = checkout.canonicalize().context("the checkout has a path")?;
    let mut bench = Bench::open(workspace, &checkout)?;
    let mut tests = Vec::new();
    for list in LISTS {
        tests.extend(listed(&script, list)?);
    }
    let mut all_failed = 0;
    for (provider, excluded) in PROVIDERS {
        let excluded = fs::read_to_string(checkout.join("fabtests/test_configs").join(excluded))?;
        let chosen: Vec<&str> = tests.iter().filter(|test| !leaves_out(&excluded, test)).copied().collect();
        for device in DEVICES {
            let (began, mut passed, mut lacking, mut failed) = (Instant::now(), 0, 0, 0);
            for test in &chosen {
                match bench.run_on(test, provider, device)? {
                    TestResult::Passed => passed += 1,
                    TestResult::FeatureMissing => lacking += 1,
                    TestResult::Failed(said) => {
                        failed += 1;
                        println!("interop: FAILED  {test} with {provider} on {device}: {said}");
                    }
                }
            }
            println!(
                "interop: fabtests with {provider} on {device}: {passed} of {} passed in {:.0} s; the provider lacks what {lacking} \
                 test, and libfabric leaves out {}",
                counted(chosen.len(), "test"),
                began.elapsed().as_secs_f64(),
                tests.len() - chosen.len()
            );
            all_failed += failed;
        }
    }
    if all_failed > 0 {
        bail!("{} of libfabric failed", counted(all_failed, "test"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_a_script() {
        let script = "\nneg=(\n\t\"x\"\n)\nunit_tests=(\n\t\"fi_a -g GOOD_ADDR\"\n\t\"fi_b\"\n)\n";
        assert_eq!(listed(script, "unit_tests").expect("a list"), ["fi_a -g GOOD_ADDR", "fi_b"]);
        assert!(listed(script, "short_tests").is_err());
    }

    #[test]
    fn expressions_leave_tests_out_by_start_end_or_part() {
        let excluded = "# rdm\n-k\n\n^fi_msg\nctx$|ctx --no\n";
        for (test, is_out) in [
            ("fi_msg_bw", true),
            ("fi_a -k", true),
            ("fi_shared_ctx", true),
            ("fi_shared_ctx --no-tx", true),
            ("fi_shared_ctx -e msg", false),
            ("fi_unexpected_msg", false),
            ("fi_rdm", false),
        ] {
            assert_eq!(leaves_out(excluded, test), is_out, "{test}");
        }
    }
}
