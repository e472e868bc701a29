//! `nicety mpicc` and `nicety mpicxx`: a compiler that is told where `mpi.h` and the library of MPI's standard ABI lie.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::args::MpiccArgs;
use crate::beside;
use crate::error::{Failure, OK, Outcome};
use crate::quote::shell_words;
use crate::term::Stream;

const HEADER: &str = "mpi.h";
/// Where the header lies: as installed, and in the sources that this program was built from.
const HEADERS: [&str; 4] =
    ["../include", "../include/nicety", "../../crates/abi-mpi/include", "../../../crates/abi-mpi/include"];
/// Set for the compiler: who is called by what this program has become is not to become the same again.
const BECOME: &str = "NICETY_MPICC";
/// What makes a compiler stop before it links.
const NO_LINKING: [&str; 5] = ["-c", "-S", "-E", "-M", "-MM"];

/// What is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
}

impl Language {
    /// The variable that names the compiler, and its name if that is not set.
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::C => ("CC", "cc"),
            Self::Cxx => ("CXX", "c++"),
        }
    }

    /// What its variable says, unless that has led back here, as a script does that calls this program and is named by `CC`.
    fn named(self) -> Option<OsString> {
        std::env::var_os(self.compiler().0).filter(|_| std::env::var_os(BECOME).is_none())
    }

    /// The compiler with its options, such as `ccache gcc`. `named` is what its variable says; where that is this very program, as
    /// `make CC="nicety mpicc"` has it, the compiler is the usual one.
    fn words(self, named: Option<OsString>) -> Vec<OsString> {
        let named = named.unwrap_or_default();
        let named: Vec<OsString> = named.to_string_lossy().split_whitespace().map(Into::into).collect();
        if named.is_empty() || named.iter().any(|word| is_this_program(word)) {
            return vec![self.compiler().1.into()];
        }
        named
    }
}

/// Whether a word of a command is this program, by whatever link.
fn is_this_program(word: &OsStr) -> bool {
    let Ok(own) = std::env::current_exe().and_then(|own| own.canonicalize()) else { return false };
    let is_own = |path: &Path| path.canonicalize().is_ok_and(|path| path == own);
    if Path::new(word).components().count() > 1 {
        return is_own(Path::new(word));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(word)).find(|path| path.exists());
    found.is_some_and(|path| is_own(&path))
}

/// Becomes the compiler.
///
/// # Errors
/// A header or library that is missing; a compiler that cannot be started.
pub(crate) fn run(args: &MpiccArgs, language: Language) -> Outcome {
    let is_show = |word: &OsString| ["--show", "-show", "--showme"].iter().any(|show| word == show);
    let (shows, arguments): (Vec<_>, Vec<_>) = args.arguments.iter().cloned().partition(is_show);
    let line = line(&beside::own_directory()?, language.words(language.named()), &arguments)?;
    if args.show || !shows.is_empty() {
        Stream::Out.print(&format!("{}\n", shell_words(&line)))?;
        return Ok(OK);
    }
    let why = Command::new(&line[0]).args(&line[1..]).env(BECOME, "1").exec();
    Err(Failure::usage(format!(
        "the compiler {} cannot be started: {why}; install one, or name it by {}",
        Path::new(&line[0]).display(),
        language.compiler().0
    )))
}

/// The compiler with all that it is told.
fn line(own: &Path, compiler: Vec<OsString>, arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let missing = |name: &str| {
        Failure::run(format!(
            "{name} is not beside this program in {}; build it with `cargo build --release -p abi-mpi`",
            own.display()
        ))
    };
    let header = beside::find(own, &HEADERS, &[HEADER]).ok_or_else(|| missing(HEADER))?;
    let mut line = compiler;
    line.push(joined("-I", header.parent()));
    line.extend_from_slice(arguments);
    let links = |word: &OsString| !NO_LINKING.iter().any(|option| word == option);
    if arguments.iter().all(links) {
        let library = beside::mpi(own).ok_or_else(|| missing(beside::MPI))?;
        line.extend([joined("-L", Some(&library)), joined("-Wl,-rpath,", Some(&library))]);
        // By its full name, so that no other file of the directory is needed.
        line.extend(["-Wl,--enable-new-dtags".into(), joined("-l:", Some(Path::new(beside::MPI)))]);
    }
    Ok(line)
}

fn joined(option: &str, path: Option<&Path>) -> OsString {
    let mut word = OsString::from(option);
    word.push(path.unwrap_or(Path::new("")));
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the files lie when they are installed.
    fn installed() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (place, name) in [("bin", "nicety"), ("lib", beside::MPI), ("include", HEADER)] {
            std::fs::create_dir(root.path().join(place)).expect("a directory");
            std::fs::write(root.path().join(place).join(name), "").expect("a file");
        }
        root
    }

    fn shown(root: &Path, compiler: &str, arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let compiler = compiler.split(' ').map(Into::into).collect();
        let line = line(&root.join("bin"), compiler, &arguments);
        shell_words(&line.unwrap_or_else(|failure| panic!("{failure:?}")))
    }

    #[test]
    fn a_program_is_linked_and_an_object_is_not() {
        let root = installed();
        let at = root.path().canonicalize().expect("a path");
        let at = at.display();
        assert_eq!(
            shown(root.path(), "ccache gcc", &["-o", "a b", "a.c"]),
            format!(
                "ccache gcc -I{at}/include -o 'a b' a.c -L{at}/lib -Wl,-rpath,{at}/lib -Wl,--enable-new-dtags \
                 -l:libmpi_abi.so.1"
            )
        );
        assert_eq!(shown(root.path(), "c++", &["-c", "a.c"]), format!("c++ -I{at}/include -c a.c"));
        // What build systems ask for by `mpicc -show`.
        assert!(shown(root.path(), "cc", &[]).ends_with("-l:libmpi_abi.so.1"));
    }

    /// Goal: who is told to use himself does not, however he is called. The test stands for the program.
    #[test]
    fn this_program_is_no_compiler() {
        let folder = tempfile::tempdir().expect("a directory");
        let (own, link) = (std::env::current_exe().expect("this test"), folder.path().join("mpicc"));
        std::os::unix::fs::symlink(&own, &link).expect("a link");
        let words = |named: String| Language::Cxx.words(Some(named.into()));
        assert_eq!(words(format!("ccache {} mpicxx", own.display())), ["c++"]);
        assert_eq!(words(link.display().to_string()), ["c++"]);
        assert_eq!(words(" ".into()), ["c++"]);
        assert_eq!(words("ccache no-such-compiler".into()), ["ccache", "no-such-compiler"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = installed();
        let said = |arguments: &[OsString]| {
            line(&root.path().join("bin"), Language::C.words(None), arguments)
                .expect_err("something is missing")
                .lines[0]
                .clone()
        };
        std::fs::remove_file(root.path().join("lib").join(beside::MPI)).expect("a file");
        assert!(
            said(&["a.c".into()]).starts_with("libmpi_abi.so.1 is not beside"),
            "{}",
            said(&["a.c".into()])
        );
        std::fs::remove_file(root.path().join("include").join(HEADER)).expect("a file");
        assert!(said(&["-c".into()]).starts_with("mpi.h is not beside"));
    }
}
