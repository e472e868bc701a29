//! The command line itself, end to end: start text, help, errors in one line, pipes.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use crate::common::{command, nicety};

const COMMANDS: [&str; 10] = [
    "bench",
    "serve",
    "devices",
    "compare",
    "report",
    "reproduce",
    "mpirun",
    "mpicc",
    "doctor",
    "completions",
];

#[test]
fn alone_it_says_where_to_start() {
    let ended = nicety([""; 0]);
    assert_eq!(ended.status, Some(0));
    let steps = ["nicety doctor", "nicety bench --quick", "nicety bench latency"];
    assert!(steps.iter().all(|step| ended.out.contains(step)), "{}", ended.out);
}

#[test]
fn help_is_short_or_long_and_the_long_one_has_examples() {
    for name in COMMANDS {
        let short = nicety([name, "-h"]);
        let long = nicety([name, "--help"]);
        assert_eq!((short.status, long.status), (Some(0), Some(0)));
        assert!(!short.out.contains("EXAMPLES"), "{}", short.out);
        assert!(long.out.contains(&format!("EXAMPLES\n  nicety {name}")), "{}", long.out);
    }
    let ended = nicety(["--version"]);
    assert_eq!(ended.out, format!("nicety {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_is_unknown_is_answered_in_one_line_with_what_was_meant() {
    nicety(["doktor"]).is_error(2, "did you mean 'doctor'?");
    nicety(["doctor", "--jsn"]).is_error(2, "did you mean '--json'?");
    nicety(["compare"]).is_error(2, "<RUN.json>");
    nicety(["compare", "a", "b", "c"]).is_error(2, "see `nicety compare --help`");
    nicety(["completions", "fsh"]).is_error(2, "possible values: bash, zsh, fish");
    nicety(["--wrong"]).is_error(2, "unexpected argument '--wrong'");
}

/// Method: the pipe is closed before the command, which first watches the load, has written anything.
#[test]
fn a_reader_who_leaves_is_no_failure() {
    let mut child = command()
        .arg("doctor")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().expect("standard error").read_to_string(&mut err).expect("text");
    assert_eq!((child.wait().expect("it ends").code(), err.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_said() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = command().arg("doctor").stdout(full).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .starts_with("nicety: cannot write to standard output: No space")
    );
}
