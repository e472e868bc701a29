//! Another user beside programs for libibverbs on `shm`: floods of datagrams that look like ours, to every socket that is to be seen, and
//! all names taken that sockets of ours could have. Nothing is delivered, whoever comes later is served at once, and memory comes back.
//!
//! Both sides are a program in C that `crates/abi-verbs` is tested with, as only a library that programs load has datagrams.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::attack::{Attack, Budget, Tally};

/// What this is, for the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "strangers",
    about: "another user's datagrams to queue pairs of type UD, and names taken that sockets on shm could have",
    weight: 1,
    late_max: Duration::from_secs(1),
    run,
};

/// Datagrams of each kind to each socket, and names of each kind: more than the ports that there are for listeners.
const COUNT: &str = "20000";
/// KiB by which the memory of the process that is attacked may have grown in the end.
const GROWTH_MAX: u64 = 1024;
/// The library, as cargo names it.
const LIBRARY: &str = "libnicety_verbs.so";
const SOURCE: &str = include_str!("../../../crates/abi-verbs/tests/c/strangers.c");
const CHECK: &str = include_str!("../../../crates/abi-verbs/tests/c/check.h");

/// Attacks until the budget is spent, and counts.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = match program(folder.path()) {
        Ok(program) => program,
        Err(why) => {
            // There is nothing to attack with; the note says so.
            tally.note(format!("SKIPPED: {why:#}"));
            (tally.tried, tally.survived) = (1, 1);
            return Ok(());
        }
    };
    while budget.goes_on() {
        tally.tried += 1;
        match once(&program, folder.path()) {
            Ok(outcome) => {
                tally.noticed(outcome.late);
                tally.left_over += u64::from(outcome.grown > GROWTH_MAX);
                tally.survived += 1;
            }
            Err(why) => tally.note(format!("{why:#}")),
        }
    }
    Ok(())
}

/// How the honest side fared.
struct Outcome {
    /// How long the slowest took who came later, from its start on.
    late: Duration,
    grown: u64,
}

fn once(program: &Path, folder: &Path) -> Result<Outcome> {
    let mut command = Command::new(program);
    command.args(["shm", COUNT]).env("LD_LIBRARY_PATH", folder).env("NICETY_VERBS_DEVICES", "shm");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("all held"), "{}: {said}", output.status);
    outcome(&said).with_context(|| format!("it said `{said}`"))
}

/// What the program said of the honest side.
fn outcome(said: &str) -> Option<Outcome> {
    let mut words = said.split_once("slowest ")?.1.split(' ');
    let late = Duration::from_micros(words.next()?.parse().ok()?);
    // Memory may also have become less.
    let grown = words.nth(2)?.parse::<i64>().ok()?.max(0).cast_unsigned();
    Some(Outcome { late, grown })
}

/// Compiles the program, with the library by the names under which programs look for it.
fn program(folder: &Path) -> Result<PathBuf> {
    ensure!(rustix::process::geteuid().is_root(), "only root can be another user");
    let library = library().with_context(|| format!("{LIBRARY} is not beside this program"))?;
    let names = ["libibverbs.so.1", "librdmacm.so.1"].map(|name| folder.join(name));
    for name in &names {
        std::os::unix::fs::symlink(&library, name)?;
    }
    std::fs::write(folder.join("strangers.c"), SOURCE)?;
    std::fs::write(folder.join("check.h"), CHECK)?;
    let program = folder.join("strangers");
    let mut cc = Command::new("cc");
    let output = cc.arg("-o").arg(&program).arg(folder.join("strangers.c")).args(names).output();
    let output = output.context("there is no cc; apt-get install gcc")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc wants libibverbs-dev: {}", said.lines().next().unwrap_or_default());
    Ok(program)
}

/// The library that cargo has built with this program.
fn library() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let places = [folder.join(LIBRARY), folder.join("deps").join(LIBRARY)];
    places
        .into_iter()
        .max_by_key(|path| path.metadata().and_then(|found| found.modified()).ok())
        .filter(|path| path.exists())
}
