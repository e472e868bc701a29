//! Programs in C against the library and the header of this crate.
#![allow(dead_code)] // each test file uses a part of it

pub(crate) mod job;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library that cargo has built for this test.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("libmpi_abi.so"));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).expect("cargo builds the library for its tests")
}

/// Whether there is a C compiler; without one, says what is skipped.
pub(crate) fn has_compiler() -> bool {
    let probe = Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = probe.is_ok_and(|status| status.success());
    if !there {
        eprintln!("SKIPPED: no C compiler here; apt-get install gcc");
    }
    there
}

/// What was compiled, in a folder of its own, with the library under the name that programs look for.
pub(crate) struct Compiled {
    folder: tempfile::TempDir,
    name: String,
}

impl Compiled {
    /// The program, or the library.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// Compiles a source with our header, and links it with our library.
pub(crate) fn compile(name: &str, source: &str, options: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |file: &str| folder.path().join(file);
    std::fs::write(place("source.c"), source).expect("written");
    std::os::unix::fs::symlink(library(), place("libmpi_abi.so.1")).expect("a link");
    let mut cc = Command::new("cc");
    cc.args(options).arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    cc.arg("-o").arg(place(name)).arg(place("source.c")).arg(place("libmpi_abi.so.1"));
    cc.arg(format!("-Wl,-rpath,{}", folder.path().display()));
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Compiled { folder, name: name.to_owned() }
}

/// Runs a program, which must succeed; what it says.
pub(crate) fn run(mut program: Command) -> String {
    let output = program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program:?} ends with {}: {said}{wrong}", output.status);
    said
}
