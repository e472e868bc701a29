//! Programs whose callbacks leave MPI calls by C++ exceptions and `longjmp`.

mod common;

use std::process::Command;

use common::job::run_job;
use common::{Compiled, Language, compile, compile_as, has_compiler};

const OPTIONS: [&str; 3] = [concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/c"), "-Wall", "-Werror"];

/// The compiled exceptions.cc; `None` without a compiler.
fn exceptions() -> Option<Compiled> {
    let source = include_str!("c/exceptions.cc");
    Language::Cpp.has_compiler().then(|| compile_as(Language::Cpp, "exceptions", source, &OPTIONS))
}

/// Goal: an exception of any callback leaves the MPI call that ran the callback, and the objects of that call work afterwards, in
/// blocking and other calls. Method: error handlers of all kinds of objects, operators, functions of attributes, generalized requests,
/// data representations and events throw; the program identifies each exception by its text.
#[test]
fn exceptions_of_callbacks_leave_the_call() {
    let Some(program) = exceptions() else { return };
    for (device, size) in [("shm", 1), ("shm", 2), ("iwarp", 2)] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("data").display().to_string();
        let expected: Vec<String> = (0..size).map(|rank| format!("rank {rank} of {size} is done")).collect();
        let variables = [("NICETY_DEVICE", device), ("TEST_FILE", &file)];
        assert_eq!(run_job(&program.path(), size, &variables), expected, "{device}");
    }
}

/// Goal: an uncaught exception ends the program with a sentence that names the call.
#[test]
fn an_exception_that_nothing_catches_is_named() {
    let Some(program) = exceptions() else { return };
    let output = Command::new(program.path()).env("TEST_UNCAUGHT", "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !said.contains("Rust"), "{said}");
    assert!(said.contains("MPI_Reduce_local: a function of the program threw an exception"), "{said}");
}

#[test]
fn longjmp_out_of_an_error_handler_works() {
    if !has_compiler() {
        return;
    }
    let program = compile("longjmp", include_str!("c/longjmp.c"), &OPTIONS);
    for size in [1, 2] {
        assert_eq!(run_job(&program.path(), size, &[("NICETY_DEVICE", "shm")]).len(), size);
    }
}
