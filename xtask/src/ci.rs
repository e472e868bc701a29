//! Exactly what CI runs, in order, each step with its duration; the first failure ends it and says how to repeat it.

use crate::workspace::{Workspace, capture, counted, run as run_command};
use crate::{corpora, licences, loom, rows, ships, siege, tidy};
use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// One thing that CI checks.
struct Step {
    name: &'static str,
    /// What it runs, as one would type it.
    command: &'static str,
    /// Returns a line to show when it passed, or nothing.
    run: fn(&Workspace) -> Result<String>,
}

/// CI, in order.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        command: "cargo fmt --all --check",
        run: |w| cargo(w, &["fmt", "--all", "--check"], None),
    },
    Step {
        name: "clippy",
        command: "cargo clippy --workspace --all-targets -- -D warnings",
        run: |w| cargo(w, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
    },
    Step {
        name: "doc",
        command: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items",
        run: |w| {
            let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
            cargo(w, &arguments, Some(("RUSTDOCFLAGS", "-D warnings")))
        },
    },
    Step {
        name: "test",
        command: "cargo test --workspace",
        run: |w| cargo(w, &["test", "--workspace"], None),
    },
    Step {
        name: "wasm",
        // Proof that the protocol needs no operating system.
        command: "cargo build --package iwarp --target wasm32-unknown-unknown",
        run: wasm,
    },
    Step { name: "loom", command: "cargo xtask loom", run: loom::check },
    Step { name: "rows", command: "cargo xtask rows", run: rows::check },
    Step { name: "licences", command: "cargo xtask licences", run: licences::check },
    Step { name: "tidy", command: "cargo xtask tidy", run: tidy::check },
    Step { name: "corpora", command: "cargo xtask corpora", run: corpora::check },
    Step {
        name: "siege",
        // No clock decides here: the machine may be anybody's.
        command: "cargo xtask siege --quick --minutes 1 --shared",
        run: |w| {
            let arguments = ["--minutes", "1", "--shared"].map(str::to_owned);
            siege::check(w, &arguments, true).map(|()| String::new())
        },
    },
    Step {
        name: "release",
        command: "cargo build --release --package nicety --package abi-dapl && target/release/nicety --version",
        run: release,
    },
];

/// Prints the steps.
pub(crate) fn list() {
    for step in STEPS {
        println!("{:<10} {}", step.name, step.command);
    }
}

/// Runs the steps named by `only`, or all of them.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    let steps = chosen(only)?;
    let start = Instant::now();
    let mut summary = String::new();
    for (index, step) in steps.iter().enumerate() {
        println!("ci: [{}/{}] {}: {}", index + 1, steps.len(), step.name, step.command);
        let began = Instant::now();
        let outcome = (step.run)(workspace);
        let took = seconds(began.elapsed());
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        writeln!(summary, "  {:<10} {verdict:<7} {took:>8}", step.name)?;
        match outcome {
            Ok(line) if line.is_empty() => {}
            Ok(line) => println!("{line}"),
            Err(error) => {
                let skipped = counted(steps.len() - index - 1, "step");
                print!("\nci: summary\n{summary}");
                bail!(
                    "{error:#}\n\nci: {} failed after {took}; {skipped} not run. Repeat it with:\n  cargo xtask ci --only {}",
                    step.name,
                    step.name
                );
            }
        }
        println!("ci: [{}/{}] {} ok, {took}", index + 1, steps.len(), step.name);
    }
    println!(
        "\nci: summary\n{summary}ci: {} passed in {}",
        counted(steps.len(), "step"),
        seconds(start.elapsed())
    );
    Ok(())
}

/// The steps with these names, in CI's order; all of them when there are no names.
fn chosen(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{unknown}`; the steps are {}", known.join(", "));
    }
    Ok(STEPS.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name)).collect())
}

/// Runs cargo, its output visible.
fn cargo(workspace: &Workspace, arguments: &[&str], variable: Option<(&str, &str)>) -> Result<String> {
    run_command(workspace.cargo(arguments).envs(variable))?;
    Ok(String::new())
}

/// Builds the protocol where there is no operating system. The target is fetched if rustup can; where it cannot, as without a
/// network, the step says so instead of failing.
fn wasm(workspace: &Workspace) -> Result<String> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let libraries = capture(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    let there = || Path::new(libraries.trim()).is_dir();
    if !there() && run_command(Command::new("rustup").args(["target", "add", TARGET])).is_err() {
        println!("wasm: NOT CHECKED: the target {TARGET} is missing and could not be fetched");
    }
    if there() {
        cargo(workspace, &["build", "--package", "iwarp", "--target", TARGET], None)
    } else {
        Ok(String::new())
    }
}

/// Builds what ships, starts the command once, and looks whether anything for tests came with it.
fn release(workspace: &Workspace) -> Result<String> {
    let packages = ships::SHIPPED.iter().flat_map(|(package, _)| ["--package", package]);
    run_command(workspace.cargo(&["build", "--release"]).args(packages))?;
    let printed = capture(Command::new(workspace.target().join("release/nicety")).arg("--version"))?;
    if !printed.starts_with("nicety ") {
        bail!("`nicety --version` printed {printed:?}; it must begin with \"nicety \"");
    }
    Ok(format!("{}\n{}", printed.trim_end(), ships::check(workspace)?))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_mean_all_steps() {
        assert_eq!(chosen(&[]).expect("no unknown name").len(), STEPS.len());
    }

    #[test]
    fn chosen_steps_keep_their_order() {
        let steps = chosen(&["tidy".to_owned(), "fmt".to_owned()]).expect("both exist");
        assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["fmt", "tidy"]);
    }

    #[test]
    fn an_unknown_step_is_told_the_known_ones() {
        let error = chosen(&["format".to_owned()]).err().expect("no such step").to_string();
        assert!(error.contains("`format`") && error.contains("fmt, clippy, doc, test"), "{error}");
    }
}
