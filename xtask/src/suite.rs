//! The test step: all tests, and once more, alone, the few that failed.
//!
//! Tests start hundreds of programs, ours and third-party ones, on machines whose cores may be shared. A test that
//! fails and then passes has a defect, in itself or in the tested code; it is named prominently, and does not prevent
//! the other checks. A test that fails twice has failed. A program that is silent for long has hung: it is killed, and
//! has failed.

use crate::silent;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use xtask::workspace::{Workspace, counted, run};

/// Only up to this many failures can be accidents.
const REPEATED_MAX: usize = 5;
/// A program that is silent for this long has hung: the longest test takes a minute, on busy machines ten times that.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// A test program that failed: the cargo options that run it again, and the names of the failed tests. Without names
/// the program itself died.
#[derive(Debug, Default, PartialEq, Eq)]
struct FailedProgram {
    options: Vec<String>,
    names: Vec<String>,
}

/// Runs all tests. Returns the line that names the tests that passed only the second time.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    // Separate from the tests: a compiler is silent for as long as it takes, and must not count as a hung test.
    run(&mut workspace.cargo(&["test", "--workspace", "--no-run"]))?;
    let mut command = workspace.cargo(&["test", "--workspace", "--no-fail-fast"]);
    let mut parser = FailureParser::default();
    if run_with_output(&mut command, |line| parser.read_line(line))? {
        return Ok(String::new());
    }
    let failed = parser.failed;
    let all: Vec<&str> = failed.iter().flat_map(FailedProgram::shown).collect();
    if failed.is_empty() || all.len() > REPEATED_MAX {
        bail!("`cargo test --workspace --no-fail-fast` failed in {}", counted(failed.len(), "program"));
    }
    for program in &failed {
        println!("test: repeating: {}", program.shown().join(", "));
        let mut again = workspace.cargo(&["test"]);
        again.args(&program.options).args(["--", "--exact", "--test-threads=1"]).args(&program.names);
        if !run_with_output(&mut again, |_| {})? {
            bail!("failed twice: {}", program.shown().join(", "));
        }
    }
    Ok(format!("ci: FLAKY: failed, and passed alone: {}; find out why before anything else", all.join(", ")))
}

impl FailedProgram {
    /// The names for a report.
    fn shown(&self) -> Vec<&str> {
        let of = if self.names.is_empty() { &self.options } else { &self.names };
        of.iter().map(String::as_str).collect()
    }
}

/// Runs a command, prints each line and passes it to `on_line`. Returns whether the command succeeded.
pub(crate) fn run_with_output(command: &mut Command, on_line: impl FnMut(&str)) -> Result<bool> {
    run_until_silent(command, SILENCE_MAX, on_line)
}

/// Like [`run_with_output`], but after each `silence` without a line, the command's descendants are killed.
fn run_until_silent(command: &mut Command, silence: Duration, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let (reader, writer) = pipe().context("no pipe for the output of tests")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start cargo")?;
    // The command's copies of the pipe are dropped; they would keep the reader waiting.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let lines = lines(reader);
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                println!("{line}");
                on_line(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                let ended = silent::kill_descendants(child.id());
                println!("test: no output for {} s; ended:\n  {}", silence.as_secs(), ended.join("\n  "));
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?.success()),
        }
    }
}

/// The lines of a pipe as they arrive, until all writers have closed it.
fn lines(pipe: PipeReader) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let text = |line: Vec<u8>| String::from_utf8_lossy(&line).into_owned();
        let mut lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok).map(text);
        lines.try_for_each(|line| sender.send(line))
    });
    receiver
}

/// Parses from the output which tests failed.
#[derive(Default)]
struct FailureParser {
    failed: Vec<FailedProgram>,
    names: Vec<String>,
    is_list: bool,
}

impl FailureParser {
    /// Processes a line. A program lists failed tests at its end, after a line "failures:"; then cargo prints how to
    /// run it again.
    fn read_line(&mut self, line: &str) {
        if let Some(rest) =
            line.split_once("failed, to rerun pass `").and_then(|(_, rest)| rest.strip_suffix('`'))
        {
            let options = rest.split(' ').map(str::to_owned).collect();
            self.failed.push(FailedProgram { options, names: std::mem::take(&mut self.names) });
        } else if line.trim_start().starts_with("Running ") {
            self.names.clear();
        } else if line == "failures:" {
            self.names.clear();
            self.is_list = true;
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.is_list) {
            self.names.push(name.to_owned());
        } else if self.is_list && !self.names.is_empty() {
            self.is_list = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str) -> Vec<FailedProgram> {
        let mut parser = FailureParser::default();
        lines.lines().for_each(|line| parser.read_line(line));
        parser.failed
    }

    fn failed(options: &[&str], names: &[&str]) -> FailedProgram {
        let owned = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
        FailedProgram { options: owned(options), names: owned(names) }
    }

    #[test]
    fn failures_are_parsed_from_output_of_tests() {
        let lines = "     Running tests/launch.rs (target/debug/deps/launch-1)\ntest a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\n\
                     thread 'a::b' panicked at x.rs:1:5:\n    no name\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 0 passed\n\n    no name\n\
                     error: test failed, to rerun pass `-p bench --test launch`\n     Running unittests src/lib.rs (target/debug/deps/x-2)\n\
                     error: test failed, to rerun pass `-p x --lib`\nerror: 2 targets failed:\n    `-p bench --test launch`\n    `-p x --lib`";
        let expected = [
            failed(&["-p", "bench", "--test", "launch"], &["a::b", "c"]),
            failed(&["-p", "x", "--lib"], &[]),
        ];
        assert_eq!(parse(lines), expected);
    }

    #[test]
    fn output_without_failures_has_none() {
        assert_eq!(parse("test a ... ok\nerror: could not compile `x`\n"), []);
    }

    /// Goal: a hung test fails, and does not prevent others from running. Method: like cargo, a shell that continues
    /// when its first program is killed.
    #[test]
    fn silent_command_is_killed() {
        let (mut shell, mut lines) = (Command::new("sh"), Vec::new());
        shell.args(["-c", "echo before; sleep 300; echo behind; exit 3"]);
        let silence = Duration::from_millis(300);
        let is_well = run_until_silent(&mut shell, silence, |line| lines.push(line.to_owned()));
        assert!(!is_well.expect("a shell"));
        assert_eq!(lines.last().map(String::as_str), Some("behind"), "{lines:?}");
        assert_eq!(lines[0], "before");
    }
}
