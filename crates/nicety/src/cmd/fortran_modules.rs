//! The folder with `mpif.h` and the compiled modules `mpi` and `mpi_f08`, which `nicety mpifort` makes for a compiler at its first use.
//!
//! Files of modules have a format of the compiler, and of its version. Their folder is therefore in the user's cache, under a name made
//! of what the compiler says about its version and of the sources. It is made under another name and then renamed, so that
//! each of several concurrent processes finds a complete folder.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mpi_fortran::{Source, sources};

use crate::config::folder;
use crate::error::Failure;
use crate::term::remark;

/// The longest part of the compiler's version in a folder's name.
const NAME_MAX: usize = 60;

/// What is known about a Fortran compiler.
pub(super) struct Compiler {
    /// The folder with the files for it.
    pub(super) folder: PathBuf,
    /// Whether it is gfortran, which refuses calls of one procedure with arguments of several types unless it is asked not to.
    pub(super) is_gfortran: bool,
}

/// Finds or makes the folder for a compiler.
///
/// # Errors
/// If the compiler cannot be started or does not accept the sources, or the cache cannot be written.
pub(super) fn prepare(compiler: &[OsString]) -> Result<Compiler, Failure> {
    let version = version_of(compiler)?;
    let sources = sources();
    let cache = folder("XDG_CACHE_HOME", ".cache").ok_or_else(|| {
        Failure::usage("there is no place for Fortran's modules: set HOME or XDG_CACHE_HOME")
    })?;
    let cache = cache.join("fortran");
    let folder = cache.join(folder_name(&version, &sources));
    let is_gfortran = version.contains("GNU Fortran");
    if !folder.is_dir() {
        make(compiler, &sources, &cache, &folder)?;
        let first = version.lines().next().unwrap_or_default();
        remark(format!("compiled the modules mpi and mpi_f08 once for {first}, in {}", folder.display()));
    }
    Ok(Compiler { folder, is_gfortran })
}

/// What the compiler says about its version.
fn version_of(compiler: &[OsString]) -> Result<String, Failure> {
    let output = run(compiler, |command| command.arg("--version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of the folder for a compiler and these sources.
fn folder_name(version: &str, sources: &[Source]) -> String {
    let mut hash = DefaultHasher::new();
    version.hash(&mut hash);
    sources.iter().for_each(|source| (source.name, &source.text).hash(&mut hash));
    let first = version.lines().next().unwrap_or_default();
    let mut name: String =
        first.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    name.truncate(NAME_MAX);
    format!("{name}-{:016x}", hash.finish())
}

/// Makes the folder.
fn make(compiler: &[OsString], sources: &[Source], cache: &Path, folder: &Path) -> Result<(), Failure> {
    let unwritable = |why: io::Error| {
        Failure::run(format!(
            "cannot make Fortran's modules in {}: {why}; set XDG_CACHE_HOME to another place",
            cache.display()
        ))
    };
    std::fs::create_dir_all(cache).map_err(unwritable)?;
    let new = tempfile::Builder::new().prefix("new-").tempdir_in(cache).map_err(unwritable)?;
    for source in sources {
        std::fs::write(new.path().join(source.name), &source.text).map_err(unwritable)?;
    }
    for source in sources.iter().filter(|source| source.is_module) {
        // Interfaces have no code: this writes the module's file only.
        run(compiler, |command| command.args(["-fsyntax-only", source.name]).current_dir(new.path()))?;
    }
    // The folder of a library that all users of a machine share has this mode, too.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(new.path(), mode).map_err(unwritable)?;
    match std::fs::rename(new.path(), folder) {
        Ok(()) => {
            // It has another name now, so that there is nothing to remove.
            let _ = new.keep();
            Ok(())
        }
        // Another process was faster.
        Err(_) if folder.is_dir() => Ok(()),
        Err(why) => Err(unwritable(why)),
    }
}

/// Runs the compiler; it must succeed.
fn run(compiler: &[OsString], set: impl FnOnce(&mut Command) -> &mut Command) -> Result<Output, Failure> {
    let (program, options) =
        compiler.split_first().ok_or_else(|| Failure::usage("no Fortran compiler is named"))?;
    let mut command = Command::new(program);
    let name = Path::new(program).display();
    let output = set(command.args(options)).output().map_err(|why| {
        Failure::usage(format!(
            "the compiler {name} cannot be started: {why}; install one (Debian: gfortran), or name it by FC"
        ))
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.contains("rror")).unwrap_or_default();
    Err(Failure::run(format!(
        "the compiler {name} does not accept MPI's interfaces: {error}; gfortran 12 and flang 19 do; name one by FC"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in place of a compiler, which notes its calls.
    fn script(folder: &Path, text: &str) -> Vec<OsString> {
        let path = folder.join("fc");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("it runs");
        vec![path.into()]
    }

    #[test]
    fn folder_is_complete_and_made_once_by_several_at_a_time() {
        let place = tempfile::tempdir().expect("a folder");
        let compiler = script(place.path(), "echo \"$2\" >>\"$PWD/calls\"");
        let (cache, folder) = (place.path().join("cache"), place.path().join("cache/made"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| make(&compiler, &sources(), &cache, &folder).expect("it is made"));
            }
        });
        let calls = std::fs::read_to_string(folder.join("calls")).expect("calls");
        assert_eq!(calls, "nicety_mpi_base.f90\nmpi.f90\nmpi_f08.f90\n");
        assert!(folder.join("mpif.h").is_file());
        assert_eq!(std::fs::read_dir(&cache).expect("a folder").count(), 1, "unfinished folders are removed");
    }

    #[test]
    fn compiler_that_refuses_the_sources_is_named_with_its_error() {
        let place = tempfile::tempdir().expect("a folder");
        let compiler = script(place.path(), "echo 'Error: no such thing' >&2; exit 1");
        let (cache, folder) = (place.path().join("cache"), place.path().join("cache/made"));
        let failure = make(&compiler, &sources(), &cache, &folder).expect_err("it is refused");
        assert!(failure.lines[0].contains("no such thing") && failure.lines[0].contains("FC"), "{failure:?}");
        assert!(!folder.exists());
    }

    #[test]
    fn folder_names_differ_by_version_and_by_sources() {
        let name = folder_name("GNU Fortran (Debian 12.2.0-14) 12.2.0\nmore", &sources());
        assert!(name.starts_with("GNU-Fortran--Debian-12.2.0-14--12.2.0-"), "{name}");
        assert_ne!(name, folder_name("GNU Fortran (Debian 12.2.0-14) 12.2.0\nother", &sources()));
        assert_ne!(name, folder_name("GNU Fortran (Debian 12.2.0-14) 12.2.0\nmore", &[]));
    }
}
