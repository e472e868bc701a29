//! Traces of C programs: an unmodified program on a recorded device leaves its requests and completions, also if it is killed.

mod common;

use std::fs;
use std::path::Path;

use common::{Names, compile, end, has_compiler};
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
    // The library may have polled the completions of the first two.
    assert_eq!((sends.posted, process.trace.has_ended), (3, false));
    assert!((1..=3).contains(&sends.open), "{sends:?}");
    assert_eq!(process.requests.all.last().map(|request| request.completed), Some(None));
}
