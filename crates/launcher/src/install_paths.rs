//! Finds files that are built or installed with this program, relative to its own path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The path of this program: from /proc, or, where /proc is not mounted, the path that was passed to execve. The latter is
/// resolved from the current directory.
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

/// The first existing file: tries each of `names` in each of `places`, which are relative to `own`.
pub fn find(own: &Path, places: &[&str], names: &[&str]) -> Option<PathBuf> {
    let places = places.iter().filter_map(|place| own.join(place).canonicalize().ok());
    places.flat_map(|place| names.iter().map(move |name| place.join(name))).find(|path| path.exists())
}

/// Where libraries are, relative to this program: as built by cargo, and as installed (README.md).
pub const LIBRARIES: [&str; 4] = [".", "deps", "../lib", "../lib/nicety"];

/// The library of MPI's standard ABI, by the name that programs are linked to.
pub const MPI_SONAME: &str = "libmpi_abi.so.1";
/// Its name for linkers, by which cargo builds it.
pub const MPI_LINK_NAME: &str = "libmpi_abi.so";

/// The directory in which programs find the library of MPI's standard ABI.
///
/// Next to a library as cargo built it, this creates a link of the name that programs are linked to.
pub fn mpi_directory(own: &Path) -> Option<PathBuf> {
    let file = find(own, &LIBRARIES, &[MPI_SONAME, MPI_LINK_NAME])?;
    let directory = file.parent()?;
    with_soname(directory, MPI_LINK_NAME, MPI_SONAME)?;
    Some(directory.to_owned())
}

/// The library for programs of MPICH's ABI, and the folder next to it with the names that they are linked to: MPICH's own, and Debian's.
/// No other program searches that folder.
const MPICH: (&str, &str, [&str; 2]) =
    ("libmpi_mpich.so", "nicety-mpich", ["libmpi.so.12", "libmpich.so.12"]);

/// The directory in which programs of MPICH's ABI find their library.
///
/// Next to a library as cargo built it, this creates the folder and the links in it.
pub fn mpich_directory(own: &Path) -> Option<PathBuf> {
    let (library, folder, names) = MPICH;
    let folder = find(own, &LIBRARIES, &[library])?.parent()?.join(folder);
    for name in names.map(|name| folder.join(name)) {
        if !name.exists() {
            // Another process may create them at the same time.
            let _ = std::fs::create_dir(&folder);
            let _ = std::os::unix::fs::symlink(Path::new("..").join(library), &name);
        }
    }
    names.iter().all(|name| folder.join(name).exists()).then_some(folder)
}

/// The path of a library in a directory by the name that programs are linked to; next to a library as cargo built it, this creates a
/// link of that name. `None` if there is no library, or the link cannot be created.
pub fn with_soname(directory: &Path, link_name: &str, soname: &str) -> Option<PathBuf> {
    let path = directory.join(soname);
    if !path.exists() && directory.join(link_name).exists() {
        // Another process may have created it at the same time.
        let _ = std::os::unix::fs::symlink(link_name, &path);
    }
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_for_mpich_programs_is_linked_by_both_names() {
        let root = tempfile::tempdir().expect("a directory");
        let own = root.path().canonicalize().expect("a path");
        assert_eq!(mpich_directory(&own), None);
        std::fs::create_dir(own.join("deps")).expect("a directory");
        std::fs::write(own.join("deps/libmpi_mpich.so"), "library").expect("a file");
        for _ in 0..2 {
            let folder = mpich_directory(&own).expect("a folder");
            assert_eq!(folder, own.join("deps/nicety-mpich"));
            for name in ["libmpi.so.12", "libmpich.so.12"] {
                assert_eq!(std::fs::read_to_string(folder.join(name)).expect("a link"), "library");
            }
        }
    }

    #[test]
    fn built_library_is_linked_by_its_soname() {
        let root = tempfile::tempdir().expect("a directory");
        let own = root.path().canonicalize().expect("a path");
        assert_eq!(mpi_directory(&own), None);
        std::fs::create_dir(own.join("deps")).expect("a directory");
        std::fs::write(own.join("deps").join(MPI_LINK_NAME), "library").expect("a file");
        for _ in 0..2 {
            assert_eq!(mpi_directory(&own), Some(own.join("deps")));
            assert_eq!(
                std::fs::read_to_string(own.join("deps").join(MPI_SONAME)).expect("a link"),
                "library"
            );
        }
    }
}
