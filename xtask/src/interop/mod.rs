//! `cargo xtask interop`: the device `iwarp` against others' implementations, in a guest that is made for this and ended
//! after it. `docs/interop.md` says what is shown against whom.
//!
//! | file | what it holds |
//! |---|---|
//! | `tools`, `image`, `archive` | what is needed; the guest made of Debian's packages |
//! | `guest`, `limited` | the guest while it runs; programs with a limit of time |
//! | `capture` | what went over the wire, and tshark's verdict on it |
//! | `proxy` | between the two ends: bytes flipped, held back, added |
//! | `lab`, `cases` | what a case has at hand; the cases |
//!
//! A party joins with its packages in `image`, and its cases in a file beside `cases`.

mod archive;
mod capture;
mod cases;
mod guest;
mod image;
mod lab;
mod limited;
mod proxy;
mod tools;

use crate::workspace::{Workspace, counted};
use anyhow::{Result, bail};
use std::time::Instant;

use lab::Lab;

/// That a case holds, with what was seen.
pub(crate) struct Verdict(pub(crate) String);

/// Something to be shown.
pub(crate) struct Case {
    /// How it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows, in a line.
    pub(crate) shows: &'static str,
    /// Shows it.
    pub(crate) run: fn(&mut Lab) -> Result<Verdict>,
}

/// All cases, in order.
fn cases() -> impl Iterator<Item = &'static Case> {
    cases::CASES.iter()
}

/// Prints the cases.
pub(crate) fn list() {
    cases().for_each(|case| println!("{:<18} {}", case.name, case.shows));
}

/// Runs the cases named by `only`, or all.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|name| !cases().any(|case| case.name == **name)) {
        bail!("there is no case `{unknown}`; `cargo xtask interop --list` names them");
    }
    let chosen: Vec<&Case> =
        cases().filter(|case| only.is_empty() || only.iter().any(|name| name == case.name)).collect();
    if let Err(why) = tools::provide() {
        println!("interop: SKIPPED, nothing is shown: {why}");
        return Ok(());
    }
    let began = Instant::now();
    let mut lab = Lab::open(workspace)?;
    let mut failed = Vec::new();
    for case in &chosen {
        let start = Instant::now();
        lab.begin(case.name);
        let verdict = (case.run)(&mut lab);
        let (word, said) = match verdict {
            Ok(Verdict(said)) => ("ok", said),
            Err(why) => ("FAILED", format!("{why:#}")),
        };
        println!("interop: {word:<7} {:<18} {:>5.1} s  {said}", case.name, start.elapsed().as_secs_f64());
        if word == "FAILED" {
            failed.push(case.name);
        }
    }
    let took = began.elapsed().as_secs_f64();
    drop(lab);
    if !failed.is_empty() {
        let again = failed.iter().map(|name| format!(" --only {name}")).collect::<String>();
        bail!(
            "{} of {} failed after {took:.0} s. Repeat with:\n  cargo xtask interop{again}",
            failed.len(),
            counted(chosen.len(), "case")
        );
    }
    println!("interop: {} passed in {took:.0} s", counted(chosen.len(), "case"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cases_differ() {
        let mut names: Vec<&str> = cases().map(|case| case.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
