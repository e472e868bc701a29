//! `nicety mpicc`: a compiler that is told where `mpi.h` and the library of MPI's standard ABI lie.

use std::ffi::OsString;
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
/// What makes a compiler stop before it links.
const NO_LINKING: [&str; 5] = ["-c", "-S", "-E", "-M", "-MM"];

/// Becomes the compiler.
///
/// # Errors
/// A header or library that is missing; a compiler that cannot be started.
pub(crate) fn run(args: &MpiccArgs) -> Outcome {
    let is_show = |word: &OsString| ["--show", "-show", "--showme"].iter().any(|show| word == show);
    let (shows, arguments): (Vec<_>, Vec<_>) = args.arguments.iter().cloned().partition(is_show);
    let line = line(&beside::own_directory()?, std::env::var_os("CC"), &arguments)?;
    if args.show || !shows.is_empty() {
        Stream::Out.print(&format!("{}\n", shell_words(&line)))?;
        return Ok(OK);
    }
    let why = Command::new(&line[0]).args(&line[1..]).exec();
    Err(Failure::usage(format!(
        "the compiler {} cannot be started: {why}; install one, or name it by CC",
        Path::new(&line[0]).display()
    )))
}

/// The compiler with all that it is told.
fn line(own: &Path, compiler: Option<OsString>, arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let missing = |name: &str| {
        Failure::run(format!(
            "{name} is not beside this program in {}; build it with `cargo build --release -p abi-mpi`",
            own.display()
        ))
    };
    let header = beside::find(own, &HEADERS, &[HEADER]).ok_or_else(|| missing(HEADER))?;
    let compiler = compiler.filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into());
    // It may be a name with options, such as `ccache gcc`.
    let mut line: Vec<OsString> = compiler.to_string_lossy().split_whitespace().map(Into::into).collect();
    line.push(joined("-I", header.parent()));
    line.extend_from_slice(arguments);
    let links = |word: &OsString| !NO_LINKING.iter().any(|option| word == option);
    if !arguments.is_empty() && arguments.iter().all(links) {
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
        let line = line(&root.join("bin"), Some(compiler.into()), &arguments);
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
        assert_eq!(shown(root.path(), "", &["-c", "a.c"]), format!("cc -I{at}/include -c a.c"));
        assert_eq!(shown(root.path(), "cc", &[]), format!("cc -I{at}/include"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = installed();
        let said = |arguments: &[OsString]| {
            line(&root.path().join("bin"), None, arguments).expect_err("something is missing").lines[0]
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
