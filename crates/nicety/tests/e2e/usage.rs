//! The command line, end to end: the start text, help, one-line errors, and pipes.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use crate::common::{Ended, command, made_up_run, nicety, save};

const COMMANDS: [&str; 12] = [
    "bench",
    "serve",
    "devices",
    "compare",
    "report",
    "reproduce",
    "mpirun",
    "mpicc",
    "mpicxx",
    "mpifort",
    "doctor",
    "completions",
];

#[test]
fn command_without_arguments_prints_where_to_start() {
    let ended = nicety([""; 0]);
    assert_eq!(ended.status, Some(0));
    let steps = ["nicety doctor", "nicety bench --quick", "nicety bench latency"];
    assert!(steps.iter().all(|step| ended.out.contains(step)), "{}", ended.out);
}

#[test]
fn long_help_has_examples_and_short_help_has_none() {
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
fn help_for_a_command_is_its_long_help() {
    for name in COMMANDS {
        let (asked, option) = (nicety(["help", name]), nicety([name, "--help"]));
        assert_eq!((asked.status, asked.out), (Some(0), option.out), "{name}");
    }
    let all = nicety(["help"]);
    assert!(all.status == Some(0) && all.out.contains("nicety help COMMAND"), "{all:?}");
    nicety(["help", "doktor"]).is_error(2, "there is no command 'doktor', did you mean 'doctor'?");
}

#[test]
fn unknown_words_are_refused_in_one_line_with_a_suggestion() {
    nicety(["doktor"]).is_error(2, "there is no command 'doktor', did you mean 'doctor'?");
    nicety(["doctor", "--jsn"]).is_error(2, "did you mean '--json'?");
    nicety(["compare"]).is_error(2, "<RUN.json>... is missing");
    nicety(["compare", "a", "b", "c"]).is_error(2, "see `nicety compare --help`");
    nicety(["completions", "fsh"]).is_error(2, "'fsh' is not a value of <SHELL>; there are: bash, zsh, fish");
    nicety(["--wrong"]).is_error(2, "there is no option '--wrong'");
}

/// Goal: errors of the command line are reported in this program's words. Method: mistakes of every kind that the parser
/// detects; each must give the expected text, without the parser's words.
#[test]
fn parser_errors_are_reported_in_own_words() {
    let mistakes: &[(&[&str], &str)] = &[
        (&["bench", "--launches", "x"], "'x' is not a whole number, or too large; write, for example, 10"),
        (&["bench", "--launches", "-1"], "'-1' is not a whole number"),
        (&["bench", "--launches", "5000000000"], "too large"),
        (&["bench", "--seed", "1.5"], "'1.5' is not a whole number"),
        (&["bench", "-n", "many"], "'many' is not a whole number"),
        (&["bench", "-D", "long"], "'long' is not a number of seconds"),
        (&["bench", "-D", "-1"], "budget"),
        (&["bench", "--size", "-8"], "--size"),
        (&["bench", "-1"], "there is no option '-1' here"),
        (&["doctor", "hw", "1"], "'1' is one argument too many"),
        (&["doctor", "1"], "'1' is not a value of [TOPIC]; there are: hw"),
        (&["bench", "--set"], "needs a value"),
        (&["bench", "--set", "window"], "'window' is not KEY=VALUE"),
        (&["bench", "--full", "--line"], "cannot be combined with"),
        (&["bench", "--seed", "1", "--seed", "2"], "given twice"),
        (&["compare", "a", "b", "--threshold", "-5%"], "is not a share"),
        (&["run", "--dat"], "is missing"),
        (&["serve", "--listen", "x"], "is not an address of this host"),
    ];
    for (arguments, said) in mistakes {
        let ended = nicety(*arguments);
        ended.is_error(2, said);
        for word in ["invalid", "unexpected", "found", "error:", "required", "supplied"] {
            assert!(!ended.err.contains(word), "{word:?} is the parser's: {ended:?}");
        }
    }
}

/// Goal: scripts can distinguish a missing file from a failed run. Method: a missing file for every option and argument that
/// names one.
#[test]
fn missing_file_exits_with_2_for_every_option() {
    let dir = tempfile::tempdir().expect("a directory");
    let there = save(dir.path(), "there.json", &made_up_run(1.0, 9000.0));
    let there = there.to_str().expect("a name");
    let cases: &[&[&str]] = &[
        &["bench", "--plan", "/no/plan.toml"],
        &["bench", "--config", "/no/config.toml"],
        &["bench", "--token-file", "/no/token"],
        &["bench", "--device", "model:/no/card.toml"],
        &["bench", "--quick", "--json", "/no/run.json"],
        &["serve", "--token-file", "/no/token"],
        &["compare", there, "/no/run.json"],
        &["compare", "/no/run.json", there],
        &["compare", there, there, "--junit", "/no/junit.xml"],
        &["compare", "--baseline", "nobody-kept-this", there],
        &["report", "/no/run.json"],
        &["report", there, "--output", "/no/page.html"],
        &["reproduce", "NM-054", "--json", "/no/rows.json"],
        &["run", "--dat", "--library", "/no/library.so", "--", "true"],
        &["man", "/no/folder"],
    ];
    for arguments in cases {
        let ended = nicety(*arguments);
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("nicety: ") && ended.err.contains(';'), "{arguments:?}: {ended:?}");
    }
}

/// A program that does not exist has the status that shells give it.
#[test]
fn missing_program_is_status_127() {
    let library = std::env::current_exe().expect("this test");
    let library = library.to_str().expect("a name");
    for arguments in [
        &["run", "--library", library, "--", "/no/program"][..],
        &["run", "--dat", "--library", library, "--", "/no/program"],
    ] {
        let ended = nicety(arguments);
        assert_eq!((ended.status, ended.out.as_str()), (Some(127), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("nicety: cannot start /no/program: "), "{arguments:?}: {ended:?}");
    }
}

/// Method: the pipe is closed before the command has written anything, as it first watches the load.
#[test]
fn closed_output_pipe_is_no_failure() {
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

/// Goal: no command succeeds if its output is lost. Method: all commands that write to standard output, with a full device.
#[test]
fn full_disk_is_an_error_of_every_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = save(dir.path(), "run.json", &made_up_run(1.0, 9000.0));
    let run = run.to_str().expect("a name");
    let commands: &[&[&str]] = &[
        &[],
        &["--version"],
        &["help"],
        &["bench", "-h"],
        &["bench", "latency", "--dry-run"],
        &["doctor"],
        &["devices"],
        &["devices", "--json"],
        &["explain"],
        &["explain", "latency"],
        &["explain", "mpi"],
        &["completions", "bash"],
        &["compare", run, run],
        &["compare", run, run, "--json", "-"],
        &["report", "--text", run],
        &["report", "-o", "-", run],
        &["reproduce", "NM-054"],
        &["mpirun", "--dry-run", "true"],
    ];
    for args in commands {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let ended: Ended = command().args(*args).stdout(full).output().expect("the command runs").into();
        assert_eq!(ended.status, Some(1), "{args:?}: {ended:?}");
        let line = ended.err.lines().last().unwrap_or_default();
        assert!(line.starts_with("nicety: cannot write to standard output: No space"), "{args:?}: {ended:?}");
    }
}
