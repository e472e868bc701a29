//! rdma-core's own tests of libibverbs and librdmacm, in Python (pyverbs), on our devices: by module and device. Tests
//! and bindings are Debian's; tests skip features that a device does not have by their own rules.

use super::programs::{Clients, DEVICES};
use crate::case::{Case, Verdict};
use crate::guest::archive::unpack;
use crate::guest::image::download;
use crate::guest::tail;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Finished;
use xtask::workspace::{counted, run};

pub(crate) const CASES: &[Case<Clients>] = &[Case {
    name: "verbs-pyverbs",
    shows: "rdma-core's own tests, in Python, by module",
    run: |clients| modules(clients),
}];

const PACKAGE: &str = "python3-pyverbs";
/// The folder with the tests in the package; some are compressed.
const TESTS: &str = "usr/share/doc/rdma-core/tests";
/// How long the tests of a module may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Tests that fail; docs/results/interop.md has the reasons.
const KNOWN: &[(&str, &str)] = &[
    ("test_create_dm_mr", "a region of no bytes is refused"),
    ("test_atomic_invalid_qp_access", "rights are those of regions, not of queue pairs"),
    ("test_multi_process_alloc_dm", "a child of fork(2) opens a device of its own"),
];

/// The results of a module's tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    skipped: u32,
    /// Names of failed tests.
    failed: BTreeSet<String>,
}

/// Runs each module on each device.
fn modules(clients: &mut Clients) -> Result<Verdict> {
    let root = provide(clients.folder())?;
    let (mut total, mut unexpected, mut failed) = (Counts::default(), Vec::new(), BTreeSet::new());
    for module in names(&root.join(TESTS))? {
        for (device, _) in DEVICES {
            let counts = run_module(clients, &root, &module, device)?;
            println!(
                "  {module:<24} {device:<16} {:>3} passed, {:>3} skipped, {} failed",
                counts.passed,
                counts.skipped,
                counts.failed.len()
            );
            (total.passed, total.skipped) = (total.passed + counts.passed, total.skipped + counts.skipped);
            let is_known = |name: &String| KNOWN.iter().any(|(known, _)| known == name);
            unexpected.extend(
                counts.failed.iter().filter(|name| !is_known(name)).map(|name| format!("{name} on {device}")),
            );
            failed.extend(counts.failed);
        }
    }
    ensure!(unexpected.is_empty(), "failed: {}", unexpected.join(", "));
    let gone: Vec<_> =
        KNOWN.iter().filter(|(name, _)| !failed.contains(*name)).map(|(name, _)| *name).collect();
    ensure!(gone.is_empty(), "fails no more, and stands in the list of what does: {}", gone.join(", "));
    for (name, why) in KNOWN {
        println!("  {name}: {why}");
    }
    let known = counted(KNOWN.len(), "known test");
    Ok(Verdict(format!(
        "{} passed, {} skipped by their own rules, {known} failed",
        total.passed, total.skipped
    )))
}

/// Unpacks Debian's package below this folder; returns its root.
fn provide(folder: &Path) -> Result<PathBuf> {
    let (debs, root) = (folder.join("debs"), folder.join("pyverbs"));
    download(&[PACKAGE.to_owned()], &debs)?;
    for entry in fs::read_dir(&debs)? {
        unpack(&entry?.path(), &root)?;
    }
    let packed =
        fs::read_dir(root.join(TESTS))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let packed = packed.iter().filter(|path| path.extension().is_some_and(|extension| extension == "gz"));
    run(Command::new("gzip").arg("--decompress").args(packed))?;
    Ok(root)
}

/// The names of the modules.
fn names(tests: &Path) -> Result<BTreeSet<String>> {
    let files = fs::read_dir(tests)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let files = files.collect::<Result<Vec<_>>>()?;
    let is_module = |name: &&str| name.starts_with("test_");
    Ok(files
        .iter()
        .filter_map(|name| name.strip_suffix(".py"))
        .filter(is_module)
        .map(str::to_owned)
        .collect())
}

fn run_module(clients: &mut Clients, root: &Path, module: &str, device: &str) -> Result<Counts> {
    let mut command = clients.command(device);
    command.env("PYTHONPATH", root.join("usr/lib/python3/dist-packages"));
    command.arg("/usr/bin/python3").arg(root.join(TESTS).join("run_tests.py")).args([
        "--dev",
        "nicety0",
        "-k",
        &format!("tests.{module}."),
    ]);
    let finished = clients.start_command(&mut command)?.finish(LIMIT)?;
    read(&finished).with_context(|| format!("{module} on {device}: {}", tail(&finished.output)))
}

fn read(finished: &Finished) -> Result<Counts> {
    finished.status.context("it does not end")?;
    counts(&finished.output).context("it says no result")
}

/// Parses unittest's summary, and the names of failed tests.
fn counts(said: &str) -> Option<Counts> {
    let ran = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok())?;
    let last = said.lines().rev().find(|line| line.starts_with("OK") || line.starts_with("FAILED"))?;
    let number = |name: &str| {
        let rest = last.split_once(name)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let skipped = number("skipped=").unwrap_or(0);
    let bad = number("failures=").unwrap_or(0) + number("errors=").unwrap_or(0);
    let name = |line: &str| {
        let rest = line.strip_prefix("ERROR: ").or_else(|| line.strip_prefix("FAIL: "))?;
        rest.split(' ').next().map(str::to_owned)
    };
    Some(Counts {
        passed: ran.checked_sub(skipped + bad)?,
        skipped,
        failed: said.lines().filter_map(name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_unittest_are_counted() {
        let said = "..sE\n====\nERROR: test_b (tests.test_x.Case.test_b)\nText\n----\nTraceback\n\nRan 4 tests in 0.1s\n\n\
                    FAILED (errors=1, skipped=1)\n";
        let failed = BTreeSet::from(["test_b".to_owned()]);
        assert_eq!(counts(said), Some(Counts { passed: 2, skipped: 1, failed }));
        let good = Some(Counts { passed: 3, ..Counts::default() });
        assert_eq!(counts("...\nRan 3 tests in 0.1s\n\nOK\n"), good);
        assert_eq!(counts("Traceback\nImportError: no\n"), None);
    }
}
