//! Runs exactly what CI runs, in order, and reports each step's duration; the first failure ends it and is reported
//! with the command that repeats it. Independent steps run in parallel with the tests.

use crate::targets::{self, ARM64, WASM};
use crate::{
    arm64, corpora, deb, instructions, interop, licences, loom, miri, publish, rows, ships, siege, suite,
    tidy,
};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask::packages;
use xtask::workspace::{Workspace, capture, counted, run as run_command};

/// One step of CI.
struct Step {
    name: &'static str,
    /// The command, as one would type it.
    command: &'static str,
    /// Returns a line to show when it passed, or nothing.
    run: fn(&Workspace) -> Result<String>,
}

/// CI, in order.
const STEPS: &[Step] = &[
    Step { name: "setup", command: "cargo xtask setup", run: |_| setup() },
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
    Step { name: "test", command: "cargo test --workspace --no-fail-fast", run: suite::check },
    Step {
        name: "wasm",
        // Proves that the protocol needs no operating system.
        command: "cargo build --package iwarp --target wasm32-unknown-unknown",
        run: wasm,
    },
    Step {
        name: "arm64",
        command: "RUSTFLAGS='-D warnings' cargo check --workspace --target aarch64-unknown-linux-gnu",
        run: arm64::check,
    },
    Step { name: "loom", command: "cargo xtask loom", run: loom::check },
    Step { name: "miri", command: "cargo xtask miri", run: miri::check },
    Step { name: "rows", command: "cargo xtask rows", run: rows::check },
    Step { name: "licences", command: "cargo xtask licences", run: licences::check },
    Step { name: "tidy", command: "cargo xtask tidy", run: tidy::check },
    Step { name: "corpora", command: "cargo xtask corpora", run: corpora::check },
    Step {
        name: "siege",
        // Deadlines decide nothing here, since the machine may be shared.
        command: "cargo xtask siege --quick --minutes 1 --shared",
        run: short_siege,
    },
    Step {
        name: "release",
        command: "cargo build --release --package nicety --package abi-dapl --package abi-mpi --package abi-verbs && target/release/nicety --version",
        run: release,
    },
    Step {
        name: "instructions",
        command: "cargo xtask instructions",
        run: |w| instructions::check(w, false),
    },
    Step { name: "deb", command: "cargo xtask deb --try", run: |w| deb::check(w, true) },
];

/// Makes tests and models also run their cases that take minutes.
const WIDELY: (&str, &str) = ("NICETY_WIDE", "1");

/// Steps that take long, download, or depend on deadlines: for releases, and after changes in their area.
const WIDE: &[Step] = &[
    Step { name: "publish", command: "cargo xtask publish", run: publish::check },
    Step {
        name: "siege-long",
        command: "cargo xtask siege --minutes 10",
        run: |w| siege::check(w, &["--minutes", "10"].map(str::to_owned), false).map(|()| String::new()),
    },
    Step {
        name: "loom-wide",
        command: "NICETY_WIDE=1 cargo xtask loom",
        run: |w| loom::check_with(w, &[WIDELY]),
    },
    Step {
        name: "test-wide",
        command: "NICETY_WIDE=1 cargo test --package bench --test launch everything_else",
        run: |w| {
            cargo(w, &["test", "--package", "bench", "--test", "launch", "everything_else"], Some(WIDELY))
        },
    },
    Step {
        name: "interop",
        command: "cargo xtask interop",
        run: |w| interop::check(w, &[]).map(|()| String::new()),
    },
];

/// The step that idles half of its time, and the independent steps that run in parallel with it.
const HOST_STEP: &str = "test";
const PARALLEL_STEPS: &[&str] = &["loom", "miri", "arm64", "release", "instructions", "deb"];

/// Prints the steps.
pub(crate) fn list() {
    for step in STEPS {
        let note = if PARALLEL_STEPS.contains(&step.name) { " (parallel to the tests)" } else { "" };
        println!("{:<10} {}{note}", step.name, step.command);
    }
    for step in WIDE {
        println!("{:<10} {} (with --wide)", step.name, step.command);
    }
}

/// Runs the steps named by `only`, in order; without names all steps, the wide ones if asked, some in parallel.
pub(crate) fn run(workspace: &Workspace, only: &[String], wide: bool) -> Result<()> {
    let named = chosen(only, wide)?;
    let is_parallel = |step: &&Step| only.is_empty() && PARALLEL_STEPS.contains(&step.name);
    let steps: Vec<&Step> = named.into_iter().filter(|step| !is_parallel(step)).collect();
    let start = Instant::now();
    let (mut summary, mut remarks) = (String::new(), String::new());
    for (index, step) in steps.iter().enumerate() {
        println!("ci: [{}/{}] {}: {}", index + 1, steps.len(), step.name, step.command);
        let began = Instant::now();
        let parallel = (only.is_empty() && step.name == HOST_STEP)
            .then(|| ParallelSteps::start(workspace))
            .transpose()?;
        let outcome = (step.run)(workspace);
        let took = seconds(began.elapsed());
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        writeln!(summary, "  {:<10} {verdict:<7} {took:>8}", step.name)?;
        let others = parallel.map_or(Ok(()), |parallel| parallel.end(&mut summary));
        match outcome.and_then(|line| others.map(|()| line)) {
            Ok(line) if line.is_empty() => {}
            Ok(line) => {
                println!("{line}");
                remarks += &format!("{line}\n");
            }
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
        "\nci: summary\n{summary}{remarks}ci: {} passed in {}",
        counted(summary.lines().count(), "step"),
        seconds(start.elapsed())
    );
    Ok(())
}

/// The steps that run in parallel with the tests: a second call of this command, whose output is kept until it ends.
struct ParallelSteps {
    child: Child,
    log: PathBuf,
    began: Instant,
}

impl ParallelSteps {
    fn start(workspace: &Workspace) -> Result<Self> {
        let log = workspace.target().join("ci-parallel.log");
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let only = PARALLEL_STEPS.iter().flat_map(|name| ["--only", name]);
        // Tests have deadlines, builds have none: builds get the processor time that the tests leave.
        let child = Command::new("nice")
            .args(["-n", "10"])
            .arg(std::env::current_exe()?)
            .arg("ci")
            .args(only)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start a second xtask")?;
        println!("ci: in parallel: {}; their output follows when they have ended", PARALLEL_STEPS.join(", "));
        Ok(Self { child, log, began: Instant::now() })
    }

    /// Waits for these steps and prints their output.
    fn end(mut self, summary: &mut String) -> Result<()> {
        let status = self.child.wait()?;
        print!("{}", fs::read_to_string(&self.log)?);
        let verdict = if status.success() { "ok" } else { "FAILED" };
        let took = seconds(self.began.elapsed());
        for name in PARALLEL_STEPS {
            writeln!(summary, "  {name:<10} {verdict:<7} {took:>8}  (all parallel to {HOST_STEP})")?;
        }
        if !status.success() {
            bail!("a step parallel to `{HOST_STEP}` failed; its output is above");
        }
        Ok(())
    }
}

/// The steps with these names, in CI's order; without names all steps, the wide ones only if asked.
fn chosen(only: &[String], wide: bool) -> Result<Vec<&'static Step>> {
    let all = || STEPS.iter().chain(WIDE);
    if let Some(unknown) = only.iter().find(|name| !all().any(|step| step.name == **name)) {
        let known: Vec<&str> = all().map(|step| step.name).collect();
        bail!("there is no step '{unknown}'; the steps are {}", known.join(", "));
    }
    Ok(match only {
        [] if wide => all().collect(),
        [] => STEPS.iter().collect(),
        only => all().filter(|step| only.iter().any(|name| name == step.name)).collect(),
    })
}

/// Runs cargo with its output visible.
fn cargo(workspace: &Workspace, arguments: &[&str], variable: Option<(&str, &str)>) -> Result<String> {
    run_command(workspace.cargo(arguments).envs(variable))?;
    Ok(String::new())
}

/// Installs what CI needs and this machine lacks; says what it did. A target that cannot be fetched, as without a network, is left to
/// its step.
pub(crate) fn setup() -> Result<String> {
    let done = packages::setup()?;
    for target in [WASM, ARM64] {
        targets::provide(target)?;
    }
    Ok(done)
}

/// Builds the protocol for a target without an operating system. Where the target is missing, the step says so instead of failing.
fn wasm(workspace: &Workspace) -> Result<String> {
    if targets::provide(WASM)? {
        return cargo(workspace, &["build", "--package", "iwarp", "--target", WASM], None);
    }
    println!("wasm: NOT CHECKED: the target {WASM} is missing");
    Ok(String::new())
}

/// A short siege, repeated once if the stack fails: as [`suite`] does with tests.
fn short_siege(workspace: &Workspace) -> Result<String> {
    let attack = || {
        let arguments = ["--minutes", "1", "--shared"].map(str::to_owned);
        siege::check(workspace, &arguments, true)
    };
    let Err(first) = attack() else { return Ok(String::new()) };
    println!("siege: repeating after: {first:#}");
    attack()?;
    Ok("siege: FLAKY: failed, and passed the second time; find out why before anything else".into())
}

/// Builds what ships, starts the command once, and checks that no test code is included.
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
    fn all_steps_are_chosen_without_names() {
        assert_eq!(chosen(&[], false).expect("no unknown name").len(), STEPS.len());
        assert_eq!(chosen(&[], true).expect("no unknown name").len(), STEPS.len() + WIDE.len());
    }

    #[test]
    fn parallel_steps_are_steps_of_ci() {
        assert!(
            PARALLEL_STEPS.iter().chain([&HOST_STEP]).all(|name| STEPS.iter().any(|step| step.name == *name))
        );
    }

    #[test]
    fn chosen_steps_keep_their_order() {
        let steps = chosen(&["tidy".to_owned(), "fmt".to_owned()], false).expect("both exist");
        assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["fmt", "tidy"]);
    }

    #[test]
    fn unknown_step_is_refused_with_known_steps() {
        let error = chosen(&["format".to_owned()], false).err().expect("no such step").to_string();
        assert!(error.contains("'format'") && error.contains("fmt, clippy, doc, test"), "{error}");
    }
}
