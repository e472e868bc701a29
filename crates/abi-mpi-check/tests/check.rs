//! Programs with a bug each, and correct ones, as ranks of a job with the checks preloaded. The sources are in tests/c.

#[path = "../../abi-mpi/tests/common/job.rs"]
#[allow(dead_code, reason = "the tests of abi-mpi use the rest")]
mod job;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use job::run_job_to_its_end;

/// A library that cargo has built for this test.
fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join(name));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).unwrap_or_else(|| panic!("cargo has built {name} for its tests"))
}

/// A folder with the MPI library and a program.
struct Program(tempfile::TempDir);

impl Program {
    /// Compiles a source of this crate; `None` without a compiler.
    fn compile(source: &str) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        if Command::new("cc").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no C compiler; apt-get install gcc");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mpi = folder.path().join("libmpi_abi.so.1");
        std::os::unix::fs::symlink(library("libmpi_abi.so"), &mpi).expect("a link");
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-Wall", "-Werror"]).arg("-I").arg(root.join("../abi-mpi/include"));
        compiler.arg("-o").arg(folder.path().join("program")).arg(root.join(source)).arg(&mpi);
        // By the older tag the folder precedes those of LD_LIBRARY_PATH: cargo sets it to a folder that may hold older libraries.
        compiler.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.path().display()));
        let output = compiler.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self(folder))
    }

    /// Runs the program with one of its bugs as two ranks. Returns what they end with.
    fn run(&self, bug: &str, more: &[(&str, &str)]) -> Vec<Output> {
        let check = library("libnicety_mpi_check.so");
        let check = check.to_str().expect("a path of text");
        let mut variables =
            vec![("LD_PRELOAD", check), ("NICETY_MPI_CHECK", "on"), ("NICETY_DEVICE", "shm"), ("WRONG", bug)];
        variables.extend_from_slice(more);
        run_job_to_its_end(&self.0.path().join("program"), 2, &variables).0
    }

    /// The errors of all ranks.
    fn errors(&self, bug: &str, more: &[(&str, &str)]) -> String {
        let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        self.run(bug, more).iter().map(text).collect()
    }
}

/// The program with all bugs.
const WRONG: &str = "tests/c/wrong.c";

/// The bugs of wrong.c, with the word of their finding and what else it says.
const BUGS: &[(&str, &str, &[&str])] = &[
    (
        "changed-short",
        "buffer-changed",
        &["MPI_Isend", "1 byte at", "from byte 4", "changed_short at", "remedy"],
    ),
    ("changed-one-of-many", "buffer-changed", &["MPI_Isend", "1 byte at"]),
    ("changed-long", "buffer-changed", &["4096 bytes at", "changed_long at"]),
    ("changed-with-gaps", "buffer-changed", &["from byte 8 of the data"]),
    ("changed-persistent", "buffer-changed", &["MPI_Send_init", "1 byte"]),
    ("gone", "memory-gone", &["MPI_Isend", "gone at"]),
    ("overlap-receives", "overlap", &["two outstanding operations write", "MPI_Irecv writes"]),
    ("overlap-send", "overlap", &["MPI_Send sends", "other called"]),
    (
        "types",
        "type-mismatch",
        &["4 MPI_INT at types at", "4 MPI_FLOAT", "element        0: MPI_INT was sent, MPI_FLOAT"],
    ),
    (
        "types-struct",
        "type-mismatch",
        &["1 x (1 MPI_INT, 1 MPI_DOUBLE)", "element        1: MPI_DOUBLE was sent"],
    ),
    ("types-out-of-order", "type-mismatch", &["4 MPI_DOUBLE", "8 MPI_FLOAT"]),
    (
        "collective-kinds",
        "collective-mismatch",
        &["rank 0: MPI_Allgather (4 bytes) at", "rank 1: MPI_Alltoall (4 bytes)"],
    ),
    ("collective-roots", "collective-mismatch", &["root 0", "root 1"]),
    ("collective-counts", "collective-mismatch", &["8 bytes", "12 bytes"]),
    ("collective-ops", "collective-mismatch", &["MPI_SUM", "MPI_MAX"]),
    ("collective-types", "collective-mismatch", &["MPI_INT", "MPI_FLOAT"]),
    ("request-left", "request-left", &["MPI_Isend", "never completed", "request_left at"]),
    ("request-persistent-left", "request-left", &["MPI_Recv_init", "MPI_Request_free"]),
    ("request-collective-left", "request-left", &["MPI_Ibarrier"]),
    ("not-received", "not-received", &["from rank 0, tag 9, 4 MPI_INT", "not_received at"]),
    ("leak-comm", "leak", &["an MPI_Comm is left", "MPI_Comm_free"]),
    ("leak-type", "leak", &["3 objects of type MPI_Datatype", "MPI_Type_free"]),
    ("leak-group", "leak", &["MPI_Group_free"]),
    ("leak-op", "leak", &["MPI_Op_free"]),
    ("leak-info", "leak", &["MPI_Info_free"]),
];

/// Goal: each kind of bug is found, with its objects and places, and nothing else is.
#[test]
fn seeded_bugs_are_found() {
    let Some(program) = Program::compile(WRONG) else { return };
    for (bug, word, parts) in BUGS {
        let said = program.errors(bug, &[]);
        let findings: Vec<&str> = said.lines().filter(|line| line.starts_with("nicety: check: [")).collect();
        assert!(!findings.is_empty(), "{bug} was not found: {said}");
        let other = findings.iter().find(|line| !line.starts_with(&format!("nicety: check: [{word}]")));
        assert_eq!(other, None, "{bug}: {said}");
        for part in *parts {
            assert!(said.contains(part), "{bug}: '{part}' is not in: {said}");
        }
    }
}

/// Goal: a program that uses MPI as it should has no findings, on both devices and at both levels.
#[test]
fn correct_programs_have_no_findings() {
    let Some(program) = Program::compile(WRONG) else { return };
    for (device, level) in [("shm", "on"), ("shm", "strict"), ("iwarp", "on")] {
        let said = program.errors("nothing", &[("NICETY_DEVICE", device), ("NICETY_MPI_CHECK", level)]);
        assert_eq!(said, "nicety: check: 0 findings in 2 ranks\n", "{device}, {level}");
    }
}

/// Goal: what many programs do on purpose is a finding of the strict level only.
#[test]
fn names_of_types_are_compared_if_strict() {
    let Some(program) = Program::compile(WRONG) else { return };
    assert!(program.errors("types-strict", &[]).contains("0 findings"));
    let said = program.errors("types-strict", &[("NICETY_MPI_CHECK", "strict")]);
    assert!(said.contains("[type-mismatch]") && said.contains("MPI_BYTE"), "{said}");
}

/// Goal: findings go to the file, and the status of processes with findings is the one asked for.
#[test]
fn findings_go_to_a_file_and_change_the_exit_status() {
    let Some(program) = Program::compile(WRONG) else { return };
    let file = program.0.path().join("log");
    let log = file.to_str().expect("a path of text");
    let ended = program.run("types", &[("NICETY_MPI_CHECK_LOG", log), ("NICETY_MPI_CHECK_EXIT", "9")]);
    let statuses: Vec<Option<i32>> = ended.iter().map(|rank| rank.status.code()).collect();
    assert_eq!(statuses, [Some(0), Some(9)], "only rank 1 has a finding");
    assert!(ended.iter().all(|rank| rank.stderr.is_empty()));
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.contains("[type-mismatch]") && text.contains("1 finding in 1 of 2 ranks"), "{text}");
}

/// Goal: without the variable, the library only passes calls on.
#[test]
fn nothing_is_checked_unless_asked() {
    let Some(program) = Program::compile(WRONG) else { return };
    assert_eq!(program.errors("types", &[("NICETY_MPI_CHECK", "")]), "");
}

/// The guide shows lines of the example, and its mistake is found.
#[test]
fn guide_shows_the_example() {
    let (guide, example) =
        (include_str!("../../../docs/guides/checking-mpi.md"), include_str!("../examples/steps.c"));
    let (_, rest) = guide.split_once("```c\n").expect("some lines");
    let (shown, _) = rest.split_once("```").expect("their end");
    for line in shown.lines() {
        assert!(example.contains(line), "{line}");
    }
    let Some(program) = Program::compile("examples/steps.c") else { return };
    let ended = program.run("", &[]);
    let said = String::from_utf8_lossy(&ended[0].stderr);
    for part in ["[buffer-changed]", "MPI_Isend", "send_all at", "1 finding in 1 of 2 ranks"] {
        assert!(said.contains(part) && guide.contains(part), "{part}: {said}");
    }
    assert_eq!(String::from_utf8_lossy(&ended[1].stdout), "0 1 4 9 16 25 36 49 \n");
}
