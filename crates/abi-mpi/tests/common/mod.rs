//! Compiles and runs programs in C with the library and the header of this crate.
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

/// The language of a test program.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// The compiler, the file name extension of a source, and the package of the compiler.
    fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::C => ("cc", "c", "gcc"),
            Self::Cpp => ("c++", "cc", "g++"),
        }
    }

    /// Whether there is a compiler; prints what is skipped if not.
    pub(crate) fn has_compiler(self) -> bool {
        let (compiler, _, package) = self.parts();
        let probe =
            Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let there = probe.is_ok_and(|status| status.success());
        if !there {
            eprintln!("SKIPPED: there is no {compiler} here; apt-get install {package}");
        }
        there
    }
}

/// Whether there is a C compiler; prints what is skipped if not.
pub(crate) fn has_compiler() -> bool {
    Language::C.has_compiler()
}

/// A compiled program in its own folder, next to the library under its soname.
pub(crate) struct Compiled {
    folder: tempfile::TempDir,
    name: String,
}

impl Compiled {
    /// The path of the program or library.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// Compiles a C source with our header, and links it with our library.
pub(crate) fn compile(name: &str, source: &str, options: &[&str]) -> Compiled {
    compile_as(Language::C, name, source, options)
}

/// As [`compile`], for a source in another language.
pub(crate) fn compile_as(language: Language, name: &str, source: &str, options: &[&str]) -> Compiled {
    let (compiler, ending, _) = language.parts();
    let file = format!("source.{ending}");
    let folder = tempfile::tempdir().expect("a folder");
    let place = |file: &str| folder.path().join(file);
    std::fs::write(place(&file), source).expect("written");
    std::os::unix::fs::symlink(library(), place("libmpi_abi.so.1")).expect("a link");
    let mut cc = Command::new(compiler);
    cc.args(options).arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    cc.arg("-o").arg(place(name)).arg(place(&file)).arg(place("libmpi_abi.so.1"));
    // By the older tag this folder precedes those of LD_LIBRARY_PATH: cargo sets it to a folder that may hold an older library.
    cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.path().display()));
    let output = cc.output().expect("the compiler runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Compiled { folder, name: name.to_owned() }
}

/// Runs a program, which must succeed; returns its output.
pub(crate) fn run(mut program: Command) -> String {
    let output = program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program:?} ends with {}: {said}{wrong}", output.status);
    said
}
