//! Programs in C, built with our header against our library: alone, and as ranks of a job. The sources are in tests/c.

mod common;

use std::process::Command;

use common::job::run_job;
use common::{Compiled, compile, has_compiler, run};

/// A program of tests/c.
fn program(name: &str, source: &str) -> Compiled {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/c");
    compile(name, source, &[include, "-std=gnu11", "-Wall", "-Werror"])
}

#[test]
fn a_program_runs_alone() {
    if !has_compiler() {
        return;
    }
    let alone = program("alone", include_str!("c/alone.c"));
    assert_eq!(run(Command::new(alone.path())), "all is well 1\n");
}

#[test]
fn errors_have_their_class_and_name_the_argument() {
    if !has_compiler() {
        return;
    }
    let errors = program("errors", include_str!("c/errors.c"));
    assert_eq!(run(Command::new(errors.path())), "every error is named\n");
}

/// The default error handler ends the program with one line, which says who did what wrong.
#[test]
fn an_error_ends_the_program_with_a_line() {
    if !has_compiler() {
        return;
    }
    let source = "#include <mpi.h>\nint main(void) {\n\
        MPI_Init(0, 0);\nint x = 0;\nMPI_Send(&x, 1, MPI_INT, 5, 0, MPI_COMM_WORLD);\nreturn 0;\n}\n";
    let output = Command::new(program("wrong", source).path()).output().expect("it starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.starts_with("nicety: rank 0: MPI_Send: ") && said.contains('5'), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A program of ranks at several sizes over one device.
fn ranks(name: &str, source: &str, device: &str, sizes: &[usize]) {
    if !has_compiler() {
        return;
    }
    let program = program(name, source);
    for &size in sizes {
        let expected: Vec<String> = (0..size).map(|rank| format!("rank {rank} of {size} is done")).collect();
        assert_eq!(run_job(&program.path(), size, &[("NICETY_DEVICE", device)]), expected);
    }
}

#[test]
fn messages_go_round_on_shm() {
    ranks("ring", include_str!("c/ring.c"), "shm", &[1, 2, 4]);
}

#[test]
fn messages_go_round_on_iwarp() {
    ranks("ring", include_str!("c/ring.c"), "iwarp", &[2, 4]);
}

#[test]
fn collectives_in_all_forms_on_shm() {
    ranks("collectives", include_str!("c/collectives.c"), "shm", &[1, 3, 4]);
}

#[test]
fn collectives_in_all_forms_on_iwarp() {
    ranks("collectives", include_str!("c/collectives.c"), "iwarp", &[3]);
}

#[test]
fn messages_go_round_with_all_connected_at_the_start() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let said = run_job(&ring.path(), 3, &[("NICETY_DEVICE", "shm"), ("NICETY_CONNECT", "all")]);
    assert_eq!(said.len(), 3);
}

/// Functions that end or begin what the others need.
const LEFT_OUT: [&str; 4] = ["MPI_Abort", "MPI_Finalize", "MPI_Init", "MPI_Init_thread"];

/// A call of a function of the table: every number is 0, every address `address`, and every handle `handle`.
fn call(line: &str, address: &str, handle: &str) -> Option<String> {
    let prototype = line.split(';').next()?;
    let (head, arguments) = prototype.trim().strip_suffix(')')?.split_once('(')?;
    let name = head.rsplit(' ').next()?;
    let value = |argument: &str| match argument {
        "void" => String::new(),
        "..." => "0".to_owned(),
        function if function.contains("_function ") || function.contains("_function_c ") => "0".to_owned(),
        pointer if pointer.contains(['*', '[']) => address.to_owned(),
        handles if handles.starts_with("MPI_") && !handles.contains("MPI_T_") => {
            let kind = handles.split(' ').next().unwrap_or_default();
            let is_number = ["MPI_Aint", "MPI_Count", "MPI_Offset"].contains(&kind);
            if is_number { "0".to_owned() } else { format!("({kind}) {handle}") }
        }
        _ => "0".to_owned(),
    };
    let arguments: Vec<String> = arguments.split(", ").map(value).collect();
    (!LEFT_OUT.contains(&name)).then(|| format!("{name}({});\n", arguments.join(", ")))
}

/// Every function bears zeros, null handles, and handles that are none, with no memory or some of zeros: it answers, and the
/// process lives.
#[test]
fn every_function_bears_nonsense() {
    if !has_compiler() {
        return;
    }
    let mut source = "#include <mpi.h>\n#include <stdio.h>\nstatic long long zeros[8192];\n\
        int main(void) {\nMPI_Init(0, 0);\n\
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);\n"
        .to_owned();
    let table = include_str!("../functions.txt");
    let lines = || table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut calls = 0;
    for (address, handle) in
        [("0", "0"), ("0", "0x400"), ("(void *) zeros", "0"), ("(void *) zeros", "0x123456789ab8")]
    {
        for call in lines().filter_map(|line| call(line, address, handle)) {
            // What was not allocated cannot be freed.
            if address == "0" || !call.starts_with("MPI_Free_mem") {
                source.push_str(&call);
            }
            calls += 1;
        }
    }
    source.push_str("puts(\"alive\");\nreturn 0;\n}\n");
    assert_eq!(calls, 4 * (664 - LEFT_OUT.len()));
    assert_eq!(run(Command::new(compile("nonsense", &source, &[]).path())), "alive\n");
}
