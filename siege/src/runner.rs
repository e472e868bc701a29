//! Runs each attack in a separate process and watches it, so that a crash or a hang is a result.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::attack::{Attack, Budget, HANG, Tally};
use crate::attacks::ALL;
use crate::child::Child;

/// How much longer than its time an attack may take, for its last round and its own start and end.
const GRACE: Duration = Duration::from_secs(30);

/// The orders to attacks: the time, the seed, and their own options.
pub(crate) struct RunOptions {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) more: Vec<String>,
}

/// Runs the attacks named by `only`, or all, except those named by `skip`, within their time, and prints the results.
/// False if the stack failed. On a `shared` machine lateness is reported, and is a failure only when it is a hang.
pub(crate) fn run(only: &[String], skip: &[String], order: &RunOptions, shared: bool) -> Result<bool> {
    let mut chosen = chosen(only)?;
    check_names(skip)?;
    chosen.retain(|attack| !skip.iter().any(|name| name == attack.name));
    let weights: u32 = chosen.iter().map(|attack| attack.weight).sum();
    let minutes = order.time.as_secs_f64() / 60.0;
    println!("siege: {} attacks in {minutes:.1} minutes, seed {}\n", chosen.len(), order.seed);
    println!(
        "{:<18} {:>9} {:>9} {:>5} {:>7} {:>5} {:>7} {:>7} {:>6} {:>9}  verdict",
        "attack", "tried", "survived", "lost", "doubled", "hung", "crashed", "outside", "left", "late"
    );
    let mut held = true;
    for attack in chosen {
        let tally = run_in_child(attack, order.time * attack.weight / weights.max(1), order)?;
        let failures = tally.failures(if shared { attack.late_max.max(HANG) } else { attack.late_max });
        held &= failures.is_empty();
        print_row(attack, &tally, &failures);
    }
    println!("\nsiege: {}", if held { "all attacks passed" } else { "FAILED" });
    Ok(held)
}

/// The attacks with these names, in order; without names, all attacks.
fn chosen(only: &[String]) -> Result<Vec<&'static Attack>> {
    check_names(only)?;
    Ok(ALL.iter().filter(|attack| only.is_empty() || only.iter().any(|name| name == attack.name)).collect())
}

fn check_names(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|attack| attack.name == **name)) {
        let known: Vec<&str> = ALL.iter().map(|attack| attack.name).collect();
        bail!("there is no attack {unknown:?}; the attacks are {}", known.join(", "));
    }
    Ok(())
}

fn print_row(attack: &Attack, tally: &Tally, failures: &[String]) {
    let late = format!("{:.1} ms", tally.late.as_secs_f64() * 1e3);
    println!(
        "{:<18} {:>9} {:>9} {:>5} {:>7} {:>5} {:>7} {:>7} {:>6} {:>9}  {}",
        attack.name,
        tally.tried,
        tally.survived,
        tally.lost,
        tally.doubled,
        tally.hung,
        tally.crashed,
        tally.outside,
        tally.left_over,
        late,
        if failures.is_empty() { "passed".to_owned() } else { format!("FAILED: {}", failures.join("; ")) }
    );
    tally.notes.iter().for_each(|note| println!("    {note}"));
}

/// Runs one attack in a child, and makes a tally of its result. It may exceed its time as long as it reports progress,
/// in lines `at WHO: WHAT`; the last one of each WHO is reported if it ends without a result.
fn run_in_child(attack: &Attack, time: Duration, order: &RunOptions) -> Result<Tally> {
    let (minutes, seed) = (format!("{}", time.as_secs_f64() / 60.0), order.seed);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--attack", attack.name, "--minutes", &minutes, "--seed", &seed.to_string()]);
    let mut child = Child::of(command.args(&order.more))?;
    let end = Instant::now() + time + GRACE;
    let mut at = BTreeMap::new();
    let mut tally = Tally::default();
    loop {
        let patience = end.saturating_duration_since(Instant::now()).max(GRACE);
        match child.receive_within(patience) {
            Some(line) => match line.split_once(' ') {
                Some(("done", json)) => return Ok(serde_json::from_str(json)?),
                Some(("at", what)) => {
                    let (who, what) = what.split_once(": ").unwrap_or_default();
                    at.insert(who.to_owned(), what.to_owned());
                }
                _ => println!("    {line}"),
            },
            None if child.runs() => {
                tally.hung += 1;
                tally.add_note(format!(
                    "did not end within {:?}, silent for {GRACE:?}; seed {seed}",
                    time + GRACE
                ));
                break;
            }
            None => {
                tally.crashed += 1;
                tally.add_note(format!("the attack's process ended without a result; seed {seed}"));
                break;
            }
        }
    }
    at.iter()
        .filter(|(_, what)| !what.is_empty())
        .for_each(|(who, what)| tally.add_note(format!("{who} was at {what}")));
    Ok(tally)
}

/// Executes one attack in this process, and prints its results.
pub(crate) fn carry_out(name: &str, mut budget: Budget) -> Result<()> {
    crate::child::die_with_parent()?;
    let attack = chosen(&[name.to_owned()])?[0];
    let mut tally = Tally::default();
    if let Err(why) = (attack.run)(&mut budget, &mut tally) {
        tally.crashed += 1;
        tally.add_note(format!("{why:#}; seed {}", budget.seed));
    }
    crate::child::send_to_parent(format!("done {}", serde_json::to_string(&tally)?))
}
