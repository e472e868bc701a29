//! Another user attacks programs for libibverbs on `shm`: floods every visible socket with datagrams that resemble
//! ours, and occupies every name that our sockets could have. Nothing may be delivered, later clients must be served
//! immediately, and memory must be released.
//!
//! Both sides are a C program from the tests of `crates/abi-verbs`, as only a library that programs load uses
//! datagrams.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::attack::{Attack, Budget, Tally};
use crate::programs::{Source, with_program};

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "strangers",
    about: "datagrams of another user to UD queue pairs, and occupied names of UD sockets on shm",
    weight: 1,
    late_max: Duration::from_secs(1),
    run,
};

/// Datagrams of each kind to each socket, and names of each kind: more than there are ports for listeners.
const COUNT: &str = "20000";
/// KiB by which the memory of the attacked process may have grown in the end.
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
        match run_program(program) {
            Ok(outcome) => {
                tally.record_reaction(outcome.late);
                tally.left_over += u64::from(outcome.grown > GROWTH_MAX);
                tally.survived += 1;
            }
            Err(why) => tally.add_note(format!("{why:#}")),
        }
    })
}

/// Results of the honest side.
struct HonestResults {
    /// The longest time that a later client took, from its start.
    late: Duration,
    grown: u64,
}

fn run_program(program: &Path) -> Result<HonestResults> {
    let mut command = Command::new(program);
    command.args(["shm", COUNT]).env("NICETY_VERBS_DEVICES", "shm");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("all held"), "{}: {said}", output.status);
    outcome(&said).with_context(|| format!("it said `{said}`"))
}

/// Parses the honest side's results.
fn outcome(said: &str) -> Option<HonestResults> {
    let mut words = said.split_once("slowest ")?.1.split(' ');
    let late = Duration::from_micros(words.next()?.parse().ok()?);
    // Memory may also have shrunk.
    let grown = words.nth(2)?.parse::<i64>().ok()?.max(0).cast_unsigned();
    Some(HonestResults { late, grown })
}
