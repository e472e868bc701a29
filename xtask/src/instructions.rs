//! Counts the instructions of posting and polling with the release build of the verbs library on `shm`, and compares them with
//! `xtask/instructions/limits.toml`. Counts, unlike times, are the same on a busy machine.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::packages;
use xtask::workspace::{Workspace, capture, run};

/// From the workspace root.
const LIMITS: &str = "xtask/instructions/limits.toml";
const PROGRAM: &str = "xtask/instructions/count.c";

const HEADER: &str = "\
# Instructions of one call or one completion of 8 bytes: libibverbs' face and the device `shm`, release build, counted by callgrind
# (`cargo xtask instructions`). Numbers only fall: more is refused, and `cargo xtask instructions --bless` writes lower ones.
";

/// What the counted program needs, by Debian's package.
const NEEDED: &packages::Needed =
    &[("cc", "gcc"), ("valgrind", "valgrind"), ("/usr/include/infiniband/verbs.h", "libibverbs-dev")];

/// Percent above its limit at which a part is refused, and below it at which the limit is too high: copies of 8 bytes are in the C
/// library, whose versions differ by a few instructions.
const ABOVE: f64 = 3.0;
const BELOW: f64 = 10.0;

/// Instructions of a call or completion, by part of the program.
type Counts = BTreeMap<String, f64>;

/// Builds the library, counts, and compares; returns the table. With `bless`, lowers the limits to the counts.
pub(crate) fn check(workspace: &Workspace, bless: bool) -> Result<String> {
    if let Err(why) = packages::provide(NEEDED) {
        return Ok(format!("instructions: NOT CHECKED: {why}"));
    }
    run(&mut workspace.cargo(&["build", "--release", "--package", "abi-verbs"]))?;
    let counts = count(workspace, &workspace.target().join("release/libnicety_verbs.so"))?;
    let path = workspace.root.join(LIMITS);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {LIMITS}"))?;
    let limits: Counts =
        toml::from_str(&text).with_context(|| format!("{LIMITS} is not a table of numbers"))?;
    if bless {
        fs::write(&path, lowered(&limits, &counts)).with_context(|| format!("writing {LIMITS}"))?;
        return Ok(format!("instructions: {LIMITS} written"));
    }
    let wrong = differences(&limits, &counts);
    let table = shown(&limits, &counts);
    ensure!(wrong.is_empty(), "{table}{}", wrong.join("\n"));
    Ok(table)
}

/// Runs the program under callgrind with this library; returns the instructions of each part.
fn count(workspace: &Workspace, library: &Path) -> Result<Counts> {
    let folder = workspace.target().join("instructions");
    fs::create_dir_all(&folder).context("a folder for the program")?;
    let [program, dumps, installed] = ["count", "dumps", "libibverbs.so.1"].map(|name| folder.join(name));
    fs::copy(library, &installed).with_context(|| format!("copying {}", library.display()))?;
    let mut cc = Command::new("cc");
    run(cc.args(["-O2", "-Wall", "-o"]).arg(&program).arg(workspace.root.join(PROGRAM)).arg(&installed))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=callgrind", "--combine-dumps=yes", "--fair-sched=try"]);
    valgrind.arg(format!("--callgrind-out-file={}", dumps.display())).arg(&program);
    valgrind.env("LD_LIBRARY_PATH", &folder).env("NICETY_VERBS_DEVICES", "shm");
    let printed = capture(&mut valgrind)?;
    let totals = totals(&fs::read_to_string(&dumps).context("reading callgrind's output")?);
    printed.lines().map(|line| part(line, &totals)).collect()
}

/// The name of a part and the instructions of each of its calls, from the line that the program printed.
fn part(line: &str, totals: &BTreeMap<String, u64>) -> Result<(String, f64)> {
    let parsed = line.split_once(' ').and_then(|(name, calls)| Some((name, calls.parse::<u32>().ok()?)));
    let Some((name, calls)) = parsed else { bail!("the program printed {line:?}") };
    let total = totals.get(name).with_context(|| format!("callgrind has no dump of {name}"))?;
    Ok((name.to_owned(), (*total as f64 / f64::from(calls)).round()))
}

/// The fewest instructions among callgrind's dumps of each name that the program gave.
fn totals(dumps: &str) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::<String, u64>::new();
    let mut name = None;
    for line in dumps.lines() {
        if let Some(given) = line.strip_prefix("desc: Trigger: Client Request: ") {
            name = Some(given.to_owned());
        } else if let Some(total) =
            line.strip_prefix("totals: ").and_then(|total| total.trim().parse::<u64>().ok())
            && let Some(name) = name.take()
        {
            totals.entry(name).and_modify(|least| *least = total.min(*least)).or_insert(total);
        }
    }
    totals
}

/// What is wrong, in sentences.
fn differences(limits: &Counts, counts: &Counts) -> Vec<String> {
    let mut wrong: Vec<String> = limits
        .keys()
        .filter(|name| !counts.contains_key(*name))
        .map(|name| format!("{name} has a limit in {LIMITS}, but was not counted: remove one of the two"))
        .collect();
    for (name, count) in counts {
        match limits.get(name) {
            None => wrong.push(format!("{name} takes {count} instructions and has no limit: add a line to {LIMITS}")),
            Some(limit) if *count > limit * (1.0 + ABOVE / 100.0) => wrong.push(format!(
                "{name} takes {count} instructions, at most {limit} are allowed: find out what has come to this path"
            )),
            Some(limit) if *count < limit * (1.0 - BELOW / 100.0) => wrong.push(format!(
                "{name} takes {count} instructions, fewer than its limit of {limit}: `cargo xtask instructions --bless` lowers it"
            )),
            Some(_) => {}
        }
    }
    wrong
}

fn shown(limits: &Counts, counts: &Counts) -> String {
    let mut table = "instructions of a call or completion (limit):\n".to_owned();
    for (name, count) in counts {
        let limit = limits.get(name).map_or_else(|| "none".to_owned(), f64::to_string);
        let _ = writeln!(table, "  {name:<18} {count:>5} ({limit})");
    }
    table
}

/// The table with limits lowered to the counts. A part without a limit gets its count.
fn lowered(limits: &Counts, counts: &Counts) -> String {
    let mut text = HEADER.to_owned();
    for (name, count) in counts {
        let limit = limits.get(name).map_or(*count, |limit| limit.min(*count));
        let _ = writeln!(text, "{name} = {limit:.1}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, f64)]) -> Counts {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn dumps_are_read_by_their_names() {
        let dumps = "part: 1\ndesc: Trigger: Client Request: post\n\nfn=(1) main\n3 4\n\ntotals: 2048\n\
                     part: 2\ndesc: Trigger: Client Request: post\ntotals: 3000\n\
                     part: 3\ndesc: Trigger: Program termination\ntotals: 99\n";
        let totals = totals(dumps);
        assert_eq!(totals, BTreeMap::from([("post".to_owned(), 2048)]));
        assert_eq!(part("post 1024", &totals).expect("counted"), ("post".to_owned(), 2.0));
        assert!(part("poll 1024", &totals).is_err() && part("line 3: x", &totals).is_err());
    }

    #[test]
    fn more_and_much_less_than_the_limit_are_reported() {
        let limits = counts(&[("same", 100.0), ("more", 100.0), ("less", 100.0), ("gone", 1.0)]);
        let counted = counts(&[("same", 102.0), ("more", 104.0), ("less", 89.0), ("new", 5.0)]);
        let wrong = differences(&limits, &counted);
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        for name in ["gone", "more", "less", "new"] {
            assert_eq!(wrong.iter().filter(|line| line.starts_with(name)).count(), 1, "{name}: {wrong:?}");
        }
    }

    #[test]
    fn limits_only_fall() {
        let text =
            lowered(&counts(&[("a", 10.0), ("b", 10.0)]), &counts(&[("a", 12.0), ("b", 8.0), ("c", 3.0)]));
        let read: Counts = toml::from_str(&text).expect("TOML");
        assert_eq!(read, counts(&[("a", 10.0), ("b", 8.0), ("c", 3.0)]));
    }
}
