//! Programs in C of MPICH's ABI: compiled with a header of its facts, and with MPICH's own header where it is installed. Each runs on our
//! libraries, alone and as ranks of a job. The sources are in tests/c.

#[path = "../../abi-mpi/tests/common/job.rs"]
#[allow(dead_code, reason = "the tests of abi-mpi use the rest")]
mod job;

use std::path::{Path, PathBuf};
use std::process::Command;

use job::run_job;

/// The header of the facts that these tests use, and that of Debian's libmpich-dev.
const FACTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/facts");
const MPICH: [&str; 2] = ["/usr/include/x86_64-linux-gnu/mpich", "/usr/include/aarch64-linux-gnu/mpich"];

/// The folders of headers: ours, and MPICH's if it is installed.
fn headers() -> Vec<&'static str> {
    let installed = MPICH.into_iter().find(|folder| Path::new(folder).join("mpi.h").exists());
    if installed.is_none() {
        eprintln!("SKIPPED: programs compiled with MPICH's own header; apt-get install libmpich-dev");
    }
    std::iter::once(FACTS).chain(installed).collect()
}

/// A library that cargo has built for this test.
fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join(name));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).unwrap_or_else(|| panic!("cargo has built {name} for its tests"))
}

/// Runs a command, which must succeed; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// A folder with the libraries under their sonames, and a program in it that searches them there.
struct Program(tempfile::TempDir);

impl Program {
    /// Compiles a program of tests/c.
    fn compile(source: &str, headers: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, soname) in [("libmpi_mpich.so", "libmpi.so.12"), ("libmpi_abi.so", "libmpi_abi.so.1")] {
            std::os::unix::fs::symlink(library(name), folder.path().join(soname)).expect("a link");
        }
        let mut compiler = Command::new("cc");
        // MPI_STATUSES_IGNORE is an address at which the compiler sees no memory.
        compiler.args(["-O1", "-Wall", "-Wno-stringop-overflow", "-Wno-stringop-overread"]).args(options);
        compiler.arg("-I").arg(headers).arg("-o").arg(folder.path().join("program"));
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source));
        // By the older tag the folder precedes those of LD_LIBRARY_PATH: cargo sets it to a folder that may hold older libraries.
        compiler.arg(folder.path().join("libmpi.so.12"));
        compiler.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.path().display()));
        run(&mut compiler);
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("program")
    }

    /// Runs it in a job of three ranks, with a file as its argument.
    fn run(&self, device: &str) -> Vec<String> {
        // A job has no arguments: a script passes the file's name.
        let script = self.0.path().join("script");
        let file = self.0.path().join("file");
        std::fs::write(&script, format!("#!/bin/sh\nexec {} {}\n", self.path().display(), file.display()))
            .expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("a script");
        run_job(&script, 3, &[("NICETY_DEVICE", device)])
    }
}

const PROGRAMS: [(&str, &str); 3] = [
    ("messages.c", "all messages are right"),
    ("objects.c", "all objects are right"),
    ("callbacks.c", "all functions were called"),
];

/// Goal: programs of MPICH's ABI run on our libraries: handles, statuses, constants and functions of the program are converted. Method:
/// three programs check what each call returns; they are compiled as fixed and as position-independent code, because variables such as
/// MPI_UNWEIGHTED are copied into the former.
#[test]
fn programs_run() {
    for headers in headers() {
        for (source, wanted) in PROGRAMS {
            for options in [&["-fno-pie", "-no-pie"][..], &["-fPIE", "-pie"]] {
                let program = Program::compile(source, headers, options);
                for device in ["shm", "iwarp"] {
                    assert_eq!(program.run(device), [wanted], "{source} with {headers} on {device}");
                }
            }
        }
    }
}

/// The dynamic symbols of the library.
fn symbols() -> Vec<String> {
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library("libmpi_mpich.so")));
    listed.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// Goal: every function of the table is exported by both names.
#[test]
fn every_function_is_exported_under_both_names() {
    let (symbols, table) = (symbols(), include_str!("../../abi-mpi/functions.txt"));
    let names: Vec<&str> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('(')?.0.split(' ').next_back())
        .collect();
    assert!(names.len() > 600, "{}", names.len());
    for name in names.into_iter().chain(["MPI_Comm_c2f", "MPI_Type_struct", "MPIX_Query_cuda_support"]) {
        for full in [name.to_owned(), format!("P{name}")] {
            assert!(symbols.contains(&full), "{full}");
        }
    }
    assert!(["MPI_UNWEIGHTED", "MPIR_Dup_fn"].iter().all(|name| symbols.iter().any(|symbol| symbol == name)));
}

/// Goal: without the library of the standard ABI a program ends with a line that says what is missing.
#[test]
fn missing_library_is_named() {
    let program = Program::compile("callbacks.c", FACTS, &[]);
    // A copy, because the library is also searched next to the file behind a link.
    let copy = program.0.path().join("libmpi.so.12");
    std::fs::remove_file(&copy).expect("a link");
    std::fs::copy(library("libmpi_mpich.so"), &copy).expect("a copy");
    std::fs::remove_file(program.0.path().join("libmpi_abi.so.1")).expect("a link");
    let mut command = Command::new(program.path());
    let output = command.env_remove("LD_LIBRARY_PATH").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("needs libmpi_abi.so.1"), "{said}");
}
