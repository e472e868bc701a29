//! What is built or installed with this program, and found from where the program lies.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The file of this program: as /proc says, or where that is not mounted, as the kernel was asked to execute it. The latter is
/// found from the directory in which the program was started.
///
/// # Errors
/// If neither names a file.
pub fn own_program() -> Result<PathBuf, Failure> {
    let executed = || {
        let name = rustix::param::linux_execfn().to_bytes();
        std::fs::canonicalize(OsStr::from_bytes(name)).ok().filter(|path| path.is_file())
    };
    std::env::current_exe().or_else(|why| executed().ok_or(why)).map_err(|why| {
        Failure::run(format!(
            "cannot find the file of this program: {why}; mount /proc, or start it by its path"
        ))
    })
}

/// The directory of this program.
///
/// # Errors
/// As [`own_program`].
pub fn own_directory() -> Result<PathBuf, Failure> {
    Ok(own_program()?.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// The first of these names that is there, in the first of these places, as seen from a directory.
pub fn find(own: &Path, places: &[&str], names: &[&str]) -> Option<PathBuf> {
    let places = places.iter().filter_map(|place| own.join(place).canonicalize().ok());
    places.flat_map(|place| names.iter().map(move |name| place.join(name))).find(|path| path.exists())
}

/// Folders of libraries, relative to the program: those of cargo, and those of an installation (docs/start/install.md).
pub const LIBRARIES: [&str; 4] = [".", "deps", "../lib", "../lib/nicety"];

/// The library of MPI's standard ABI, as programs ask for it.
pub const MPI: &str = "libmpi_abi.so.1";
/// Its name for linkers, by which cargo builds it.
pub const MPI_BUILT: &str = "libmpi_abi.so";

/// The directory in which programs find the library of MPI's standard ABI.
///
/// Where it lies as it was built, it is given the name that programs ask for, too.
pub fn mpi(own: &Path) -> Option<PathBuf> {
    let file = find(own, &LIBRARIES, &[MPI, MPI_BUILT])?;
    let directory = file.parent()?;
    if !file.ends_with(MPI) {
        let linked = std::os::unix::fs::symlink(MPI_BUILT, directory.join(MPI));
        // Another may have done that just now.
        linked.ok().or_else(|| directory.join(MPI).exists().then_some(()))?;
    }
    Some(directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_was_built_is_found_by_the_name_that_programs_ask_for() {
        let root = tempfile::tempdir().expect("a directory");
        let own = root.path().canonicalize().expect("a path");
        assert_eq!(mpi(&own), None);
        std::fs::create_dir(own.join("deps")).expect("a directory");
        std::fs::write(own.join("deps").join(MPI_BUILT), "library").expect("a file");
        for _ in 0..2 {
            assert_eq!(mpi(&own), Some(own.join("deps")));
            assert_eq!(std::fs::read_to_string(own.join("deps").join(MPI)).expect("a link"), "library");
        }
    }
}
