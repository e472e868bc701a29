//! Faults in C: an unmodified program on a device of faults gets what the rules say, by a file and at run time.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use common::{Names, compile, end, has, has_compiler, said};

/// Runs a scenario of tests/c/faults.c on both kinds of devices; returns what each said, and whether it was killed.
fn run(scenario: &str, rules: &str) -> Vec<(String, Option<i32>)> {
    let names = Names::new();
    let program = compile(&names, "faults.c");
    let file = names.path().join("rules.toml");
    fs::write(&file, rules).expect("a file");
    let run = |device: &str| {
        let device = format!("faults({device},rules={})", file.display());
        let mut command = names.command(&program, &device);
        let ended =
            end(command.arg(scenario).env("NICETY_LOG", "errors").spawn().expect("it starts"), scenario);
        (said(&ended), ended.status.signal())
    };
    vec![run("shm"), run("iwarp@127.0.0.1")]
}

fn expect(scenario: &str, rules: &str, words: &[&str]) {
    if !has_compiler() {
        return;
    }
    for (said, signal) in run(scenario, rules) {
        assert_eq!(signal, None, "{said}");
        for word in words {
            assert!(said.contains(word), "{scenario} lacks {word:?}: {said}");
        }
    }
}

#[test]
fn write_of_a_program_fails_by_a_rule() {
    for (status, text) in [
        ("RETRY_EXC_ERR", "transport retry counter exceeded"),
        ("REM_ACCESS_ERR", "remote access error"),
        ("RNR_RETRY_EXC_ERR", "RNR retry counter exceeded"),
        ("LOC_PROT_ERR", "local protection error"),
    ] {
        let rules = format!(
            "[[fault]]\non = \"write\"\nnth = 3\nstatus = \"{status}\"\n\n[[fault]]\non = \"read\"\ndelay = \"1ms\"\n"
        );
        let third = format!("request 3: {text}\n");
        let log = format!("ended with IBV_WC_{status}: an injected fault: rule 1 (");
        let words = [
            "request 1: success\nrequest 2: success\n",
            third.as_str(),
            "request 4: Work Request Flushed Error\n",
            log.as_str(),
            "rules.toml:1: on=write nth=3 status=",
            // The process reports at its end.
            "fired 1 times in 4 operations",
            "rules.toml:6: on=read delay=1ms) never matched",
        ];
        expect("writes", &rules, &words);
    }
}

#[test]
fn registration_of_a_program_fails_by_a_rule() {
    let rules = "[[fault]]\non = \"reg_mr\"\nnth = 3\nevery = 2\nerror = \"ENOMEM\"\n";
    let words = [
        "region 2: ok\nregion 3: Cannot allocate memory\nregion 4: ok\nregion 5: Cannot allocate memory\n",
        "ibv_reg_mr: reg_mr fails by an injected fault: rule 1",
    ];
    expect("registers", rules, &words);
}

#[test]
fn port_of_a_program_fails_at_a_time() {
    let rules = "[[fault]]\non = \"time\"\nafter = \"50ms\"\nevent = \"PORT_ERR\"\n";
    expect("port", rules, &["event: port error, of port 1, DOWN\n"]);
}

#[test]
fn connection_of_a_program_is_rejected() {
    let rules = "[[fault]]\non = \"connect\"\naction = \"reject\"\n";
    expect("connects", rules, &["connecting: RDMA_CM_EVENT_REJECTED, status 28\n"]);
}

#[test]
fn program_vanishes_at_a_request() {
    if !has_compiler() {
        return;
    }
    for (said, signal) in run("writes", "[[fault]]\non = \"write\"\nnth = 2\naction = \"vanish\"\n") {
        assert_eq!(signal, Some(9), "{said}");
        assert!(!said.contains("request"), "{said}");
    }
}

#[test]
fn program_adds_rules_at_run_time() {
    let words = [
        "refused: status = BAD is unknown; there is LOC_LEN_ERR",
        "request 1: success\nrequest 2: remote access error\nrequest 3: Work Request Flushed Error\n",
        "list: rule 1 (run time: on=write nth=2 status=REM_ACCESS_ERR) fired 1 times",
    ];
    expect("run-time", "", &words);
}

/// Another process sends the rule, in Python as a test of a user does.
#[test]
fn another_process_makes_a_write_fail() {
    if !has_compiler() || !has("python3", "python3") {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "faults.c");
    let mut command = names.command(&program, "faults(iwarp@127.0.0.1)");
    let running = command.arg("until-failure").spawn().expect("it starts");
    let code = format!(
        "import nicety_fault as n\n\
         try: n.fault({0}, 'on=write status=BAD')\n\
         except ValueError as why: print('refused:', why)\n\
         n.fault({0}, 'on=write nth=100 status=REM_OP_ERR')\n",
        running.id()
    );
    let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut python = std::process::Command::new("python3");
    python.args(["-B", "-c", &code]).env("PYTHONPATH", modules);
    let python = python.output().expect("it starts");
    assert!(said(&python).starts_with("refused: status = BAD is unknown"), "{}", said(&python));
    let ended = said(&end(running, "until-failure"));
    assert!(ended.contains("failed: remote operation error"), "{ended}");
    assert!(ended.contains("rule 1 (run time: on=write nth=100 status=REM_OP_ERR) fired 1 times"), "{ended}");
}

/// Goal: a program under chosen faults ends, whatever they are, and not by a signal.
#[test]
fn program_ends_under_chaos() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "faults.c");
    for seed in 0..24 {
        let device = format!("faults({},chaos={seed})", ["shm", "iwarp@127.0.0.1"][seed % 2]);
        for scenario in ["writes", "registers"] {
            let ended =
                end(names.command(&program, &device).arg(scenario).spawn().expect("it starts"), scenario);
            assert_eq!(ended.status.signal(), None, "{device}: {}", said(&ended));
            assert!(said(&ended).contains(&format!("(chaos {seed}: ")), "{device}: {}", said(&ended));
        }
    }
}

/// The guide shows the loop that the example has.
#[test]
fn guide_shows_the_example() {
    let (guide, example) =
        (include_str!("../../../docs/guides/faults.md"), include_str!("../examples/put.c"));
    let (_, rest) = guide.split_once("```c\n").expect("a loop");
    let (shown, _) = rest.split_once("```").expect("its end");
    for line in shown.lines() {
        assert!(example.contains(line), "{line}");
    }
    if !has_compiler() {
        return;
    }
    let (rules, _) =
        guide.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("rules");
    let names = Names::new();
    let (file, program) = (names.path().join("rules.toml"), compile(&names, "../../examples/put.c"));
    fs::write(&file, rules).expect("a file");
    let device = format!("faults(shm,rules={})", file.display());
    let ended = end(names.command(&program, &device).spawn().expect("it starts"), "put");
    assert!(
        said(&ended).contains("copied 65536 bytes")
            && said(&ended).contains("fired 1 times in 16 operations")
    );
}

#[test]
fn wrong_rules_are_refused_with_their_line() {
    let names = Names::new();
    let file = names.path().join("rules.toml");
    fs::write(&file, "[[fault]]\non = \"write\"\nstatus = \"NONE\"\n").expect("a file");
    if !has_compiler() {
        return;
    }
    let program = compile(&names, "faults.c");
    let device = format!("faults(shm,rules={})", file.display());
    let ended = end(names.command(&program, &device).arg("writes").spawn().expect("it starts"), "writes");
    let said = said(&ended);
    assert!(said.contains("rules.toml:3: status = NONE is unknown"), "{said}");
}
