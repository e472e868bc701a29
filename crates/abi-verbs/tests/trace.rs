//! Traces of C programs: an unmodified program on a recorded device leaves its requests and completions, also if it is killed.

mod common;

use std::fs;
use std::path::Path;

use common::{Names, compile, end, has_compiler, said};
use trace::{Job, Selection, What, queues, read};

/// The trace in a file, as a job of one process.
fn job(file: &Path) -> Job {
    let trace = read(&fs::read(file).expect("a file")).expect("a trace");
    Job::new(vec![("x".into(), trace)])
}

#[test]
fn requests_of_a_program_are_recorded() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "../../examples/put.c");
    for device in ["shm", "iwarp@127.0.0.1"] {
        let file = names.path().join("put.trace");
        let _ = fs::remove_file(&file);
        let recorded = format!("trace({device},file={},size=1M)", file.display());
        let ended = end(names.command(&program, &recorded).spawn().expect("it starts"), "put");
        assert!(ended.status.success(), "{ended:?}");
        let job = job(&file);
        let process = &job.processes[0];
        assert!(process.trace.has_ended && process.trace.damaged == 0, "{device}: {process:?}");
        let sends = queues(process)
            .into_iter()
            .find(|queue| queue.is_send && queue.posted > 0)
            .expect("a send queue");
        assert_eq!(
            (sends.posted, sends.refused, sends.failed, sends.open, sends.size),
            (16, 0, 0, 0, 16),
            "{device}"
        );
        let done = process.trace.records.iter().filter(|record| record.what == What::Completion).count();
        assert_eq!((done, process.requests.of_completion.len()), (16, 16), "{device}");
        let text = trace::text(&job, &Selection::default());
        for words in ["alloc_pd", "create_qp", "reg_mr", "post write", "wr_id 15", "4096 B"] {
            assert!(text.contains(words), "{device}: {words} is missing:\n{text}");
        }
    }
}

/// Goal: a program that dies leaves its trace. Method: a fault kills it at its third write.
#[test]
fn program_that_is_killed_leaves_its_trace() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "../../examples/put.c");
    let (file, rules) = (names.path().join("put.trace"), names.path().join("rules.toml"));
    fs::write(&rules, "[[fault]]\non = \"write\"\nnth = 3\naction = \"vanish\"\n").expect("a file");
    let device = format!("trace(faults(shm,rules={}),file={})", rules.display(), file.display());
    let ended = end(names.command(&program, &device).spawn().expect("it starts"), "put");
    assert!(!ended.status.success(), "{ended:?}");
    let job = job(&file);
    let process = &job.processes[0];
    let sends = queues(process).into_iter().find(|queue| queue.is_send).expect("a send queue");
    assert_eq!((sends.posted, process.trace.has_ended), (3, false));
    // The program posts while its connection is not yet established. The library keeps these requests, and its thread posts them
    // to the device later, when the program polls already. So the program may get the completions of the first two.
    assert!((1..=3).contains(&sends.open), "{sends:?}");
    assert_eq!(process.requests.all.last().map(|request| request.completed), Some(None));
}

/// Goal: the guide shows what its commands print. Method: its program runs before and after the guide's change, on a recorded
/// device. Numbers of the process and times differ; counts of requests do not.
#[test]
fn guide_shows_what_a_trace_says() {
    if !has_compiler() {
        return;
    }
    let (guide, example) =
        (include_str!("../../../docs/guides/tracing.md"), include_str!("../examples/stream.c"));
    let (_, rest) = guide.split_once("```c\n").expect("a change");
    let (change, _) = rest.split_once("\n```").expect("its end");
    let mended = example.replace(".send_flags = piece == 0 ? IBV_SEND_SIGNALED : 0,", change);
    assert_ne!(mended, example);
    let counts = [
        ": 65 posted, at most 64 of 64 at a time, full for ",
        ": 100 posted, at most 32 of 64 at a time, 3 without completion; ",
    ];
    for (source, code, last, count) in [(example, 1, 2, counts[0]), (&mended, 0, 0, counts[1])] {
        let names = Names::new();
        let (file, path) = (names.path().join("stream.trace"), names.path().join("stream.c"));
        fs::write(&path, source).expect("a file");
        let program = compile(&names, path.to_str().expect("a path"));
        let device = format!("trace(shm,file={})", file.display());
        let mut command = names.command(&program, &device);
        let output =
            end(command.arg("100").env("NICETY_LOG", "errors").spawn().expect("it starts"), "stream");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let trace = read(&fs::read(&file).expect("a file")).expect("a trace");
        let job = Job::new(vec![("stream.trace".into(), trace)]);
        let text = trace::text(&job, &Selection { qp: Some(2), last: Some(last), ..Selection::default() });
        assert!(text.contains(count) && guide.contains(count), "{text}");
        for line in text.lines().chain(said(&output).lines()) {
            let is_shown = guide.lines().any(|shown| without_numbers(shown) == without_numbers(line));
            assert!(is_shown || line.starts_with("copied"), "the guide lacks: {line}");
        }
    }
}

/// A line without numbers, names that have one, and units of time.
fn without_numbers(line: &str) -> String {
    let is_plain = |word: &&str| {
        let is_unit = ["ns", "us", "ms", "s"].contains(&word.trim_end_matches([',', ';']));
        !is_unit && !word.contains(|letter: char| letter.is_ascii_digit())
    };
    line.split_whitespace().filter(is_plain).collect::<Vec<_>>().join(" ")
}
