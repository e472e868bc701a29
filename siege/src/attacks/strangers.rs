//! Another user beside programs for libibverbs on `shm`: floods of datagrams that look like ours, to every socket that is to be seen, and
//! all names taken that sockets of ours could have. Nothing is delivered, whoever comes later is served at once, and memory comes back.
//!
//! Both sides are a program in C that `crates/abi-verbs` is tested with, as only a library that programs load has datagrams.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::attack::{Attack, Budget, Tally};
use crate::programs::{Source, with_program};

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

const PROGRAM: Source<'_> = Source {
    name: "strangers",
    text: include_str!("../../../crates/abi-verbs/tests/c/strangers.c"),
    headers: &[("check.h", include_str!("../../../crates/abi-verbs/tests/c/check.h"))],
    file: "libnicety_verbs.so",
    names: &["libibverbs.so.1", "librdmacm.so.1"],
};

/// Attacks until the budget is spent.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    with_program(&PROGRAM, budget, tally, |program, _, tally| {
        tally.tried += 1;
        match once(program) {
            Ok(outcome) => {
                tally.noticed(outcome.late);
                tally.left_over += u64::from(outcome.grown > GROWTH_MAX);
                tally.survived += 1;
            }
            Err(why) => tally.note(format!("{why:#}")),
        }
    })
}

/// How the honest side fared.
struct Outcome {
    /// How long the slowest took who came later, from its start on.
    late: Duration,
    grown: u64,
}

fn once(program: &Path) -> Result<Outcome> {
    let mut command = Command::new(program);
    command.args(["shm", COUNT]).env("NICETY_VERBS_DEVICES", "shm");
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
