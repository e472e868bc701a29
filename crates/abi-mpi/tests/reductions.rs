//! Operators and types in every reducing call.

mod common;

use common::job::run_job_to_its_end;
use common::{Compiled, compile, has_compiler};

const OPTIONS: [&str; 4] =
    [concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/c"), "-std=gnu11", "-Wall", "-Werror"];

fn program() -> Option<Compiled> {
    has_compiler().then(|| compile("reductions", include_str!("c/reductions.c"), &OPTIONS))
}

/// The output of each rank on standard error; all must succeed.
fn printed_lines(program: &Compiled, size: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let (ended, _) = run_job_to_its_end(&program.path(), size, variables);
    let printed_lines: Vec<String> =
        ended.iter().map(|rank| String::from_utf8_lossy(&rank.stderr).into()).collect();
    assert!(ended.iter().all(|rank| rank.status.success()), "{printed_lines:?}");
    printed_lines
}

/// Goal: programs that reduce characters run, as under other implementations, and print one warning; operators accept the other types
/// that MPI lists, and no more. Method: all pairs of operator and type in each call that reduces, and the values of reduced characters
/// compared with those of signed ones.
#[test]
fn chars_are_reduced_as_signed_with_one_warning() {
    let Some(program) = program() else { return };
    for (device, size) in [("shm", 1), ("shm", 3), ("iwarp", 2)] {
        for (rank, printed_lines) in
            printed_lines(&program, size, &[("NICETY_DEVICE", device)]).iter().enumerate()
        {
            let is_it = printed_lines.starts_with(&format!("nicety: rank {rank}: "))
                && printed_lines.contains("MPI 5.0, section 6.9.2")
                && printed_lines.contains("NICETY_STRICT=1");
            assert!(is_it && printed_lines.lines().count() == 1, "{printed_lines}");
        }
    }
}

#[test]
fn strict_programs_have_chars_refused() {
    let Some(program) = program() else { return };
    let variables = [("NICETY_DEVICE", "shm"), ("NICETY_STRICT", "1")];
    assert_eq!(printed_lines(&program, 2, &variables), [String::new(), String::new()]);
}

#[test]
fn an_invalid_strict_value_is_an_error() {
    let Some(program) = program() else { return };
    let (ended, _) = run_job_to_its_end(&program.path(), 1, &[("NICETY_STRICT", "yes")]);
    let printed_lines = String::from_utf8_lossy(&ended[0].stderr);
    assert!(
        !ended[0].status.success() && printed_lines.contains("NICETY_STRICT=yes: it is 0 or 1"),
        "{printed_lines}"
    );
}
