//! `nicety mpicc`, end to end.

use std::os::unix::fs::PermissionsExt;

use crate::common::{command, wait};

/// Goal: `CC` may name a script that calls this program, as with a build's `CC=mpicc`: it compiles, and does not call itself
/// endlessly.
#[test]
fn mpicc_accepts_a_script_that_calls_it_as_cc() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (script, source, object) = (at("mpicc"), at("a.c"), at("a.o"));
    let text = format!("#!/bin/sh\nexec {} mpicc \"$@\"\n", env!("CARGO_BIN_EXE_nicety"));
    std::fs::write(&script, text).expect("a script");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("it runs");
    std::fs::write(&source, "#include <mpi.h>\nint size(void) { return sizeof(MPI_Status); }\n")
        .expect("a source");
    let mut compiles = command();
    compiles.args(["mpicc", "-c", &source, "-o", &object]).env("CC", &script);
    let status = wait(&mut compiles.spawn().expect("it starts"));
    assert_eq!(status, Some(0));
    assert!(std::fs::exists(&object).expect("a folder"));
}
