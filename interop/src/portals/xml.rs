//! Portals: the XML tests of Sandia's reference, run by its own program, which leaves some limits unset.

use super::basic::{Bench, DEVICES};
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::Running;
use xtask::packages::{Needed, provide};
use xtask::workspace::{Workspace, counted};

/// Libraries that the program is linked with.
const NEEDED: &Needed = &[("xml2-config", "libxml2-dev")];
/// The C sources of the program, in `test/sfw`.
const SOURCES: [&str; 8] = ["api", "cio", "dict", "enum", "main", "mask", "rt", "run"];
/// Folders of tests, with their ranks.
const FOLDERS: [(&str, &str); 2] = [("test_n1", "1"), ("test_n2", "2")];
/// How long a test may run.
const LIMIT: Duration = Duration::from_secs(60);

/// Tests that fail here, with the reason: each contradicts the reference's header, or the launcher.
const CONTRARY: [(&str, &[&str]); 3] = [
    (
        "`ptl_ni_limits_t` demands a max_pt_index of at least 63",
        &[
            "test_basic_le-017",
            "test_basic_le-019",
            "test_basic_me-019",
            "test_basic_me-021",
            "test_limits-011",
            "test_limits-012",
        ],
    ),
    (
        "a list that is too long is PTL_LIST_TOO_LONG",
        &["test_limits-020", "test_limits-022", "test_limits-024", "test_limits-026"],
    ),
    ("it ends without leaving PMI, which the launcher reports", &["test_basic_init-001"]),
];

/// Builds the program.
fn build(bench: &Bench) -> Result<()> {
    let output = Command::new("xml2-config").args(["--cflags", "--libs"]).output().context("xml2-config")?;
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    let folder = bench.source.join("test/sfw");
    let mut cc = bench.cc();
    cc.arg("-I")
        .arg(&folder)
        .args(SOURCES.map(|name| folder.join(name).with_extension("c")))
        .args(bench.support()?);
    bench.link(cc.args(flags.split_whitespace()), "ptl_test")
}

/// The tests of a folder of the checkout, in order.
fn tests(bench: &Bench, folder: &str) -> Result<Vec<PathBuf>> {
    let folder = bench.source.join("test/sfw").join(folder);
    let entries = fs::read_dir(&folder).with_context(|| format!("{}: not there", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "xml"));
    files.sort_unstable();
    ensure!(!files.is_empty(), "{} has no tests", folder.display());
    Ok(files)
}

/// Runs a test with this number of ranks on a device; returns its output if it failed.
fn run_on(bench: &Bench, test: &Path, (device, ranks): (&str, &str)) -> Result<Option<String>> {
    let mut launch = bench.launch(device, ranks);
    launch.arg(bench.folder.join("ptl_test")).arg("-f").arg(test);
    let finished = Running::start(&mut launch, &bench.folder.join("xml.log"))?.finish(LIMIT)?;
    Ok((!finished.is_good()).then_some(finished.output))
}

/// Builds the program, runs all tests on each device, and reports how many passed.
pub(crate) fn check(workspace: &Workspace, source: &Path) -> Result<()> {
    provide(NEEDED).map_err(|why| anyhow!(why))?;
    let bench = Bench::open(workspace, source)?;
    build(&bench)?;
    let contrary: BTreeSet<&str> = CONTRARY.iter().flat_map(|(_, names)| *names).copied().collect();
    let mut all_failed = 0;
    for device in DEVICES {
        for (folder, ranks) in FOLDERS {
            let (began, tests, mut failed, mut known) = (Instant::now(), tests(&bench, folder)?, 0, 0);
            for test in &tests {
                let name = test.file_stem().context("a test has a name")?.to_string_lossy();
                match run_on(&bench, test, (device, ranks))? {
                    None => {}
                    Some(_) if contrary.contains(&*name) => known += 1,
                    Some(said) => {
                        failed += 1;
                        println!("interop: FAILED  {name} on {device}: {said}");
                    }
                }
            }
            println!(
                "interop: portals in XML, {ranks} ranks on {device}: {} of {} passed in {:.0} s, {known} contradict the header or the \
                 launcher",
                tests.len() - failed - known,
                counted(tests.len(), "test"),
                began.elapsed().as_secs_f64()
            );
            all_failed += failed;
        }
    }
    ensure!(all_failed == 0, "{} in XML of the reference failed", counted(all_failed, "test"));
    Ok(())
}
