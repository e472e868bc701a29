//! `nicety mpifort`, end to end.

use std::process::{Command, Stdio};

use crate::common::{command, wait};

/// Whether there is a Fortran compiler; prints what is skipped if not.
fn has_compiler() -> bool {
    let probe =
        Command::new("gfortran").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = probe.is_ok_and(|status| status.success());
    if !there {
        eprintln!("SKIPPED: there is no gfortran here; apt-get install gfortran");
    }
    there
}

/// Goal: programs of all three interfaces compile at the first use of a compiler, also when a build compiles several files concurrently,
/// and one line says where the modules are.
#[test]
fn modules_are_compiled_once_for_builds_with_several_processes() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let sources = [
        ("a.f90", "use mpi_f08\ntype(MPI_Comm) :: c\nc = MPI_COMM_WORLD\ncall MPI_Barrier(c)\nend\n"),
        ("b.f90", "use mpi\ninteger :: e\ncall MPI_Barrier(MPI_COMM_WORLD, e)\nend\n"),
        ("c.f", "      INCLUDE 'mpif.h'\n      CALL MPI_BARRIER(MPI_COMM_WORLD, IE)\n      END\n"),
        ("d.f90", "include 'mpif.h'\ncall MPI_Barrier(MPI_COMM_WORLD, ie)\nend\n"),
    ];
    let compile = |name: &str| {
        let mut compiler = command();
        compiler.arg("mpifort").arg("-c").arg(at(name)).arg("-o").arg(at(&format!("{name}.o")));
        compiler.env("XDG_CACHE_HOME", at("cache")).stderr(Stdio::piped());
        compiler.spawn().expect("it starts")
    };
    for (name, text) in sources {
        std::fs::write(at(name), text).expect("a source");
    }
    let running: Vec<_> = sources.iter().map(|(name, _)| compile(name)).collect();
    for (child, (name, _)) in running.into_iter().zip(sources) {
        let ended = child.wait_with_output().expect("it ends");
        assert!(ended.status.success(), "{name}: {}", String::from_utf8_lossy(&ended.stderr));
        assert!(at(&format!("{name}.o")).is_file(), "{name}");
    }
    let made: Vec<_> = std::fs::read_dir(at("cache/nicety/fortran")).expect("the cache").collect();
    assert_eq!(made.len(), 1, "{made:?}");
    let again = compile("a.f90").wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&again.stderr), "", "it is said once");
}

/// Goal: a missing compiler is named, with the remedy.
#[test]
fn missing_compiler_is_an_error_with_a_remedy() {
    let mut compiler = command();
    compiler.args(["mpifort", "-c", "a.f90"]).env("FC", "/no/such/compiler").stderr(Stdio::piped());
    let mut child = compiler.spawn().expect("it starts");
    assert_eq!(wait(&mut child), Some(2));
    let said = std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text");
    assert!(said.contains("/no/such/compiler cannot be started") && said.contains("FC"), "{said}");
}
