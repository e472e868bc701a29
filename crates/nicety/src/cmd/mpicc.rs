//! `nicety mpicc` and `nicety mpicxx`: run the compiler with the paths of `mpi.h` and of the library of MPI's standard ABI.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::MpiccArgs;
use crate::error::{Failure, OK, Outcome};
use crate::term::Stream;
use launcher::install_paths;
use launcher::quote::shell_words;

const HEADER: &str = "mpi.h";
/// Where the header is: as installed, and in the sources that this program was built from.
const HEADER_FOLDERS: [&str; 4] =
    ["../include", "../include/nicety", "../../crates/abi-mpi/include", "../../../crates/abi-mpi/include"];
/// Set in the compiler's environment: if the compiler calls this program again, `CC` is ignored, as it would lead to an endless
/// loop.
const STARTED_BY_US: &str = "NICETY_MPICC";
/// Options with which a compiler does not link.
const NO_LINK_OPTIONS: [&str; 5] = ["-c", "-S", "-E", "-M", "-MM"];
/// Options that print a command line or a part of it, by their names in other MPI compilers; one dash or two precede them.
const SHOW_OPTIONS: [(&str, ShowPart); 14] = [
    ("show", ShowPart::Line),
    ("showme", ShowPart::Line),
    ("compile-info", ShowPart::Compiling),
    ("compile_info", ShowPart::Compiling),
    ("link-info", ShowPart::Line),
    ("link_info", ShowPart::Line),
    ("showme:command", ShowPart::Compiler),
    ("showme:compile", ShowPart::Options),
    ("showme:link", ShowPart::Linking),
    ("showme:incdirs", ShowPart::HeaderFolder),
    ("showme:libdirs", ShowPart::LibraryFolder),
    ("showme:libs", ShowPart::Libraries),
    ("showme:version", ShowPart::Version),
    ("showme:help", ShowPart::Help),
];
/// Options of other MPI compilers that have no effect here.
const IGNORED_OPTIONS: [&str; 3] = ["-nativelinking", "-echo", "-static_mpi"];

/// The part of a command line to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShowPart {
    /// All of it.
    Line,
    /// The command line that only compiles.
    Compiling,
    /// The compiler.
    Compiler,
    /// The options for compiling.
    Options,
    /// The options for linking.
    Linking,
    /// The folders of headers, of libraries, and the names of libraries, as Open MPI prints them.
    HeaderFolder,
    LibraryFolder,
    Libraries,
    /// The version of this program.
    Version,
    /// These options.
    Help,
}

/// The language of the sources.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
}

impl Language {
    /// The variable that names the compiler, and the default compiler.
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::C => ("CC", "cc"),
            Self::Cxx => ("CXX", "c++"),
        }
    }

    /// All variables that name the compiler, also those of other MPI compilers; the first that is set counts.
    fn variables(self) -> [&'static str; 4] {
        match self {
            Self::C => ["OMPI_CC", "MPICH_CC", "I_MPI_CC", "CC"],
            Self::Cxx => ["OMPI_CXX", "MPICH_CXX", "I_MPI_CXX", "CXX"],
        }
    }

    /// The option of MPICH's compilers that names the compiler.
    fn option(self) -> &'static str {
        match self {
            Self::C => "-cc=",
            Self::Cxx => "-cxx=",
        }
    }

    /// The first of these variables that is set. `None` if it led back to this program, such as through a script in `CC` that calls
    /// this program.
    fn configured_compiler(self, read: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
        let set = |name: &str| read(name).filter(|value| !value.is_empty());
        self.variables().into_iter().find_map(set).filter(|_| read(STARTED_BY_US).is_none())
    }

    /// The compiler with its options, such as `ccache gcc`. `named` is the value of its variable; if that names this program,
    /// as in `make CC="nicety mpicc"`, the default compiler is used.
    fn command(self, named: Option<OsString>) -> Vec<OsString> {
        let named = named.unwrap_or_default();
        let named: Vec<OsString> = named.to_string_lossy().split_whitespace().map(Into::into).collect();
        if named.is_empty() || named.iter().any(|word| is_this_program(word)) {
            return vec![self.compiler().1.into()];
        }
        named
    }
}

/// Whether a word of a command names this program, directly or by a link.
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

/// Replaces this process by the compiler.
///
/// # Errors
/// If the header or library is missing, or the compiler cannot be started.
pub(crate) fn run(args: &MpiccArgs, language: Language) -> Outcome {
    let Requested { named, wanted, arguments } = requested(&args.arguments, language);
    let wanted = wanted.or(args.show.then_some(ShowPart::Line));
    let named = named.or_else(|| language.configured_compiler(|name| std::env::var_os(name)));
    let (own, compiler) = (install_paths::own_directory()?, language.command(named));
    if let Some(wanted) = wanted {
        let text = match wanted {
            ShowPart::Version => format!("nicety {}", env!("CARGO_PKG_VERSION")),
            ShowPart::Help => help(),
            _ => shell_words(&requested_part(&own, compiler, &arguments, wanted)?),
        };
        Stream::Out.data(&format!("{text}\n"))?;
        return Ok(OK);
    }
    let line = command_line(&own, compiler, &arguments)?;
    let why = Command::new(&line[0]).args(&line[1..]).env(STARTED_BY_US, "1").exec();
    Err(Failure::usage(format!(
        "the compiler {} cannot be started: {why}; install one, or name it by {}",
        Path::new(&line[0]).display(),
        language.compiler().0
    )))
}

/// What the arguments request from this program, and those for the compiler.
#[derive(Debug, PartialEq, Eq)]
struct Requested {
    /// The compiler, by `-cc=`.
    named: Option<OsString>,
    wanted: Option<ShowPart>,
    arguments: Vec<OsString>,
}

/// Separates the options of this program from those of the compiler.
fn requested(words: &[OsString], language: Language) -> Requested {
    let mut found = Requested { named: None, wanted: None, arguments: Vec::new() };
    for word in words {
        let text = word.to_str().unwrap_or_default();
        let bare = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
        let shown = SHOW_OPTIONS.iter().find(|(name, _)| bare == Some(name)).map(|(_, shown)| *shown);
        if shown.is_some() {
            found.wanted = found.wanted.or(shown);
        } else if let Some(compiler) = text.strip_prefix(language.option()) {
            found.named = Some(compiler.into());
        } else if !IGNORED_OPTIONS.contains(&text) {
            found.arguments.push(word.clone());
        }
    }
    found
}

/// The options that print something.
fn help() -> String {
    let names: Vec<String> = SHOW_OPTIONS.iter().map(|(name, _)| format!("-{name}")).collect();
    format!("{}, -cc=COMPILER, -cxx=COMPILER, and the options of the compiler", names.join(", "))
}

/// The requested part of the command line.
fn requested_part(
    own: &Path,
    compiler: Vec<OsString>,
    arguments: &[OsString],
    wanted: ShowPart,
) -> Result<Vec<OsString>, Failure> {
    match wanted {
        ShowPart::Line | ShowPart::Version | ShowPart::Help => command_line(own, compiler, arguments),
        ShowPart::Compiler => Ok(compiler),
        ShowPart::HeaderFolder => Ok(vec![header_folder(own)?.into()]),
        ShowPart::LibraryFolder => Ok(vec![library_folder(own)?.into()]),
        ShowPart::Libraries => Ok(vec!["mpi_abi".into()]),
        ShowPart::Compiling => command_line(own, compiler, &[arguments, &["-c".into()]].concat()),
        ShowPart::Options => Ok(vec![header_option(own)?]),
        ShowPart::Linking => link_options(own),
    }
}

/// The whole command line of the compiler.
fn command_line(
    own: &Path,
    compiler: Vec<OsString>,
    arguments: &[OsString],
) -> Result<Vec<OsString>, Failure> {
    let mut line = compiler;
    line.push(header_option(own)?);
    line.extend_from_slice(arguments);
    let links = |word: &OsString| !NO_LINK_OPTIONS.iter().any(|option| word == option);
    if arguments.iter().all(links) {
        line.extend(link_options(own)?);
    }
    Ok(line)
}

/// The compiler's option for the header.
fn header_option(own: &Path) -> Result<OsString, Failure> {
    Ok(joined_option("-I", Some(&header_folder(own)?)))
}

fn header_folder(own: &Path) -> Result<PathBuf, Failure> {
    let header =
        install_paths::find(own, &HEADER_FOLDERS, &[HEADER]).ok_or_else(|| missing_file(own, HEADER))?;
    Ok(header.parent().unwrap_or(own).to_owned())
}

fn library_folder(own: &Path) -> Result<PathBuf, Failure> {
    install_paths::mpi_directory(own).ok_or_else(|| missing_file(own, install_paths::MPI_SONAME))
}

/// The linker's options for the library: by `-l:` and its full name if only that exists, as not every tool
/// that reads these options supports `-l:`.
fn link_options(own: &Path) -> Result<Vec<OsString>, Failure> {
    let library = library_folder(own)?;
    let name = match library.join(install_paths::MPI_LINK_NAME).exists() {
        true => "-lmpi_abi".into(),
        false => joined_option("-l:", Some(Path::new(install_paths::MPI_SONAME))),
    };
    let path = joined_option("-Wl,-rpath,", Some(&library));
    Ok(vec![joined_option("-L", Some(&library)), path, "-Wl,--enable-new-dtags".into(), name])
}

/// The failure for a file that was not installed with this program.
fn missing_file(own: &Path, name: &str) -> Failure {
    Failure::run(format!(
        "{name} is not installed with this program in {}; build it with `cargo build --release -p abi-mpi`",
        own.display()
    ))
}

/// An option and its path as one word.
fn joined_option(option: &str, path: Option<&Path>) -> OsString {
    let mut word = OsString::from(option);
    word.push(path.unwrap_or(Path::new("")));
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as they are installed.
    fn installed() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (place, name) in [("bin", "nicety"), ("lib", install_paths::MPI_SONAME), ("include", HEADER)] {
            std::fs::create_dir(root.path().join(place)).expect("a directory");
            std::fs::write(root.path().join(place).join(name), "").expect("a file");
        }
        root
    }

    fn shown(root: &Path, compiler: &str, arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let compiler = compiler.split(' ').map(Into::into).collect();
        let line = command_line(&root.join("bin"), compiler, &arguments);
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
        // Build systems use the options that `mpicc -show` prints.
        assert!(shown(root.path(), "cc", &[]).ends_with("-l:libmpi_abi.so.1"));
        std::fs::write(root.path().join("lib").join(install_paths::MPI_LINK_NAME), "").expect("a file");
        assert!(shown(root.path(), "cc", &[]).ends_with(" -lmpi_abi"));
    }

    #[test]
    fn parts_of_the_line_are_shown() {
        let root = installed();
        let at = root.path().canonicalize().expect("a path");
        let part = |wanted| {
            let words = requested_part(&root.path().join("bin"), vec!["cc".into()], &["-g".into()], wanted);
            shell_words(&words.unwrap_or_else(|failure| panic!("{failure:?}")))
        };
        assert_eq!(part(ShowPart::Options), format!("-I{}/include", at.display()));
        assert_eq!(part(ShowPart::Compiling), format!("cc -I{}/include -g -c", at.display()));
        assert!(part(ShowPart::Linking).starts_with(&format!("-L{}/lib ", at.display())));
        assert!(part(ShowPart::Line).contains("include -g -L"));
        assert_eq!(part(ShowPart::HeaderFolder), format!("{}/include", at.display()));
        assert_eq!(part(ShowPart::LibraryFolder), format!("{}/lib", at.display()));
        assert_eq!((part(ShowPart::Libraries), part(ShowPart::Compiler)), ("mpi_abi".into(), "cc".into()));
    }

    /// Goal: a compiler variable that names this program, by any name, is ignored. Method: the test binary takes the place of
    /// the program.
    #[test]
    fn this_program_is_not_taken_as_compiler() {
        let folder = tempfile::tempdir().expect("a directory");
        let (own, link) = (std::env::current_exe().expect("this test"), folder.path().join("mpicc"));
        std::os::unix::fs::symlink(&own, &link).expect("a link");
        let words = |named: String| Language::Cxx.command(Some(named.into()));
        assert_eq!(words(format!("ccache {} mpicxx", own.display())), ["c++"]);
        assert_eq!(words(link.display().to_string()), ["c++"]);
        assert_eq!(words(" ".into()), ["c++"]);
        assert_eq!(words("ccache no-such-compiler".into()), ["ccache", "no-such-compiler"]);
    }

    #[test]
    fn options_of_other_mpi_compilers_are_separated_from_the_compilers() {
        let split =
            |words: &[&str]| requested(&words.iter().map(OsString::from).collect::<Vec<_>>(), Language::C);
        let found = split(&["-O2", "-compile-info", "-cc=clang -g", "-echo", "-cxx=x", "--showme", "a.c"]);
        assert_eq!((found.wanted, found.named), (Some(ShowPart::Compiling), Some("clang -g".into())));
        assert_eq!(found.arguments, ["-O2", "-cxx=x", "a.c"], "-cxx= is for the other language");
        for name in ["-showme:incdirs", "--showme:incdirs"] {
            assert_eq!(split(&[name]).wanted, Some(ShowPart::HeaderFolder), "{name}");
        }
        assert_eq!(split(&["show", "-showx"]).arguments, ["show", "-showx"]);
    }

    /// Goal: variables of other MPI compilers name the compiler. Method: a made-up environment.
    #[test]
    fn first_compiler_variable_that_is_set_counts() {
        let configured = |language: Language, set: &[(&str, &str)]| {
            let read =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            language.configured_compiler(read)
        };
        let all = [("CC", "cc1"), ("MPICH_CC", "cc2"), ("OMPI_CC", "cc3"), ("MPICH_CXX", "cc4")];
        assert_eq!(configured(Language::C, &all), Some("cc3".into()));
        assert_eq!(configured(Language::Cxx, &all), Some("cc4".into()));
        assert_eq!(configured(Language::C, &[("CC", "cc1"), ("OMPI_CC", "")]), Some("cc1".into()));
        assert_eq!(configured(Language::C, &[("CC", "cc1"), (STARTED_BY_US, "1")]), None);
    }

    #[test]
    fn missing_header_or_library_is_named() {
        let root = installed();
        let said = |arguments: &[OsString]| {
            command_line(&root.path().join("bin"), Language::C.command(None), arguments)
                .expect_err("something is missing")
                .lines[0]
                .clone()
        };
        std::fs::remove_file(root.path().join("lib").join(install_paths::MPI_SONAME)).expect("a file");
        assert!(
            said(&["a.c".into()]).starts_with("libmpi_abi.so.1 is not installed"),
            "{}",
            said(&["a.c".into()])
        );
        std::fs::remove_file(root.path().join("include").join(HEADER)).expect("a file");
        assert!(said(&["-c".into()]).starts_with("mpi.h is not installed"));
    }
}
