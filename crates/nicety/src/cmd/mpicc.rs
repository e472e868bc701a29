//! `nicety mpicc`, `nicety mpicxx` and `nicety mpifort`: run the compiler with the paths of MPI's header or modules, and of the library
//! of MPI's standard ABI.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fortran_modules;
use crate::args::MpiccArgs;
use crate::error::{Failure, OK, Outcome};
use crate::term::Stream;
use launcher::install_paths;
use launcher::quote::shell_words;

const HEADER: &str = "mpi.h";
/// The library of entry points for Fortran: its name for linkers, by which cargo builds it, and the name that programs are linked to.
const FORTRAN_LINK_NAME: &str = "libmpi_abi_fortran.so";
const FORTRAN_SONAME: &str = "libmpi_abi_fortran.so.1";
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
    Fortran,
}

impl Language {
    /// The variable that names the compiler, and the default compiler.
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::C => ("CC", "cc"),
            Self::Cxx => ("CXX", "c++"),
            Self::Fortran => ("FC", "gfortran"),
        }
    }

    /// All variables that name the compiler, also those of other MPI compilers; the first that is set counts.
    fn variables(self) -> [&'static str; 4] {
        match self {
            Self::C => ["OMPI_CC", "MPICH_CC", "I_MPI_CC", "CC"],
            Self::Cxx => ["OMPI_CXX", "MPICH_CXX", "I_MPI_CXX", "CXX"],
            Self::Fortran => ["OMPI_FC", "MPICH_FC", "I_MPI_FC", "FC"],
        }
    }

    /// The option of MPICH's compilers that names the compiler.
    fn option(self) -> &'static str {
        match self {
            Self::C => "-cc=",
            Self::Cxx => "-cxx=",
            Self::Fortran => "-fc=",
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
    let own = install_paths::own_directory()?;
    let toolchain = Toolchain { own: &own, compiler: language.command(named), language };
    if let Some(wanted) = wanted {
        let text = match wanted {
            ShowPart::Version => format!("nicety {}", env!("CARGO_PKG_VERSION")),
            ShowPart::Help => help(),
            _ => shell_words(&toolchain.requested_part(&arguments, wanted)?),
        };
        Stream::Out.data(&format!("{text}\n"))?;
        return Ok(OK);
    }
    let line = toolchain.command_line(&arguments)?;
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
    format!(
        "{}, -cc=COMPILER, -cxx=COMPILER, -fc=COMPILER, and the options of the compiler",
        names.join(", ")
    )
}

/// A compiler, and where the files for it are.
struct Toolchain<'a> {
    /// The directory of this program.
    own: &'a Path,
    /// The compiler with its options.
    compiler: Vec<OsString>,
    language: Language,
}

impl Toolchain<'_> {
    /// The requested part of the command line.
    fn requested_part(&self, arguments: &[OsString], wanted: ShowPart) -> Result<Vec<OsString>, Failure> {
        match wanted {
            ShowPart::Line | ShowPart::Version | ShowPart::Help => self.command_line(arguments),
            ShowPart::Compiler => Ok(self.compiler.clone()),
            ShowPart::HeaderFolder => Ok(vec![self.headers()?.0.into()]),
            ShowPart::LibraryFolder => Ok(vec![library_folder(self.own)?.into()]),
            ShowPart::Libraries => Ok(match self.language {
                Language::Fortran => vec!["mpi_abi_fortran".into(), "mpi_abi".into()],
                _ => vec!["mpi_abi".into()],
            }),
            ShowPart::Compiling => self.command_line(&[arguments, &["-c".into()]].concat()),
            ShowPart::Options => self.header_options(),
            ShowPart::Linking => self.link_options(),
        }
    }

    /// The whole command line of the compiler.
    fn command_line(&self, arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
        let mut line = self.compiler.clone();
        line.extend(self.header_options()?);
        line.extend_from_slice(arguments);
        let links = |word: &OsString| !NO_LINK_OPTIONS.iter().any(|option| word == option);
        if arguments.iter().all(links) {
            line.extend(self.link_options()?);
        }
        Ok(line)
    }

    /// The compiler's options for headers and modules.
    fn header_options(&self) -> Result<Vec<OsString>, Failure> {
        let (folder, option) = self.headers()?;
        Ok(option.into_iter().map(Into::into).chain([joined_option("-I", Some(&folder))]).collect())
    }

    /// The folder of headers and modules, and an option that the compiler needs for them: programs that include `mpif.h` call one
    /// procedure with buffers of several types, which gfortran accepts only by that option.
    fn headers(&self) -> Result<(PathBuf, Option<&'static str>), Failure> {
        match self.language {
            Language::C | Language::Cxx => Ok((header_folder(self.own)?, None)),
            Language::Fortran => {
                let modules = fortran_modules::prepare(&self.compiler)?;
                Ok((modules.folder, modules.is_gfortran.then_some("-fallow-argument-mismatch")))
            }
        }
    }

    /// The linker's options for the libraries.
    fn link_options(&self) -> Result<Vec<OsString>, Failure> {
        let library = library_folder(self.own)?;
        let path = joined_option("-Wl,-rpath,", Some(&library));
        let mut options = vec![joined_option("-L", Some(&library)), path, "-Wl,--enable-new-dtags".into()];
        if let Language::Fortran = self.language {
            if install_paths::with_soname(&library, FORTRAN_LINK_NAME, FORTRAN_SONAME).is_none() {
                return Err(missing_file(self.own, FORTRAN_SONAME, "abi-mpi-fortran"));
            }
            options.push(library_option(&library, FORTRAN_LINK_NAME, FORTRAN_SONAME));
        }
        options.push(library_option(&library, install_paths::MPI_LINK_NAME, install_paths::MPI_SONAME));
        Ok(options)
    }
}

fn header_folder(own: &Path) -> Result<PathBuf, Failure> {
    let header = install_paths::find(own, &HEADER_FOLDERS, &[HEADER])
        .ok_or_else(|| missing_file(own, HEADER, "abi-mpi"))?;
    Ok(header.parent().unwrap_or(own).to_owned())
}

fn library_folder(own: &Path) -> Result<PathBuf, Failure> {
    install_paths::mpi_directory(own).ok_or_else(|| missing_file(own, install_paths::MPI_SONAME, "abi-mpi"))
}

/// The linker's option for a library: by `-l:` and its full name if only that exists, as not every tool that reads these options
/// supports `-l:`.
fn library_option(folder: &Path, link_name: &str, soname: &str) -> OsString {
    let stem = link_name.strip_prefix("lib").and_then(|name| name.strip_suffix(".so")).unwrap_or(link_name);
    match folder.join(link_name).exists() {
        true => format!("-l{stem}").into(),
        false => joined_option("-l:", Some(Path::new(soname))),
    }
}

/// The failure for a file that was not installed with this program.
fn missing_file(own: &Path, name: &str, package: &str) -> Failure {
    Failure::run(format!(
        "{name} is not installed with this program in {}; build it with `cargo build --release -p {package}`",
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
        let own = root.join("bin");
        let line = Toolchain { own: &own, compiler, language: Language::C }.command_line(&arguments);
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
            let own = root.path().join("bin");
            let toolchain = Toolchain { own: &own, compiler: vec!["cc".into()], language: Language::C };
            let words = toolchain.requested_part(&["-g".into()], wanted);
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
        let all =
            [("CC", "cc1"), ("MPICH_CC", "cc2"), ("OMPI_CC", "cc3"), ("MPICH_CXX", "cc4"), ("FC", "cc5")];
        assert_eq!(configured(Language::Fortran, &all), Some("cc5".into()));
        assert_eq!(configured(Language::C, &all), Some("cc3".into()));
        assert_eq!(configured(Language::Cxx, &all), Some("cc4".into()));
        assert_eq!(configured(Language::C, &[("CC", "cc1"), ("OMPI_CC", "")]), Some("cc1".into()));
        assert_eq!(configured(Language::C, &[("CC", "cc1"), (STARTED_BY_US, "1")]), None);
    }

    #[test]
    fn missing_header_or_library_is_named() {
        let root = installed();
        let said = |arguments: &[OsString]| {
            let own = root.path().join("bin");
            let toolchain =
                Toolchain { own: &own, compiler: Language::C.command(None), language: Language::C };
            toolchain.command_line(arguments).expect_err("something is missing").lines[0].clone()
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
