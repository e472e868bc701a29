//! What builds of programs find in the package: headers, files for pkg-config, links for the linker, and a folder with the names of MPI's
//! commands, which CMake's FindMPI finds by `-DMPI_HOME`.

use super::layout::{INCLUDE, LIBRARIES, MPICH, VERBS, link, write};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const HEADERS: [&str; 3] = [
    "crates/abi-mpi/include/mpi.h",
    "crates/abi-portals/include/portals4.h",
    "crates/abi-verbs/include/nicety_fault.h",
];
/// The files for pkg-config. Their paths are relative to them, so that they also work where a tarball was unpacked.
const CONFIGS: [&str; 5] = ["mpi.pc", "mpi-c.pc", "portals4.pc", "libibverbs.pc", "librdmacm.pc"];
/// What a file for pkg-config has instead of the version.
const VERSION: &str = "@VERSION@";
/// The names of MPI's commands, by which `nicety` knows what to do.
const COMMANDS: [&str; 10] =
    ["mpicc", "mpicc_abi", "mpicxx", "mpic++", "mpiCC", "mpifort", "mpif90", "mpif77", "mpirun", "mpiexec"];

/// Places everything but the libraries' own files.
pub(super) fn place(root: &Path, stage: &Path, version: &str) -> Result<()> {
    let libraries = stage.join(LIBRARIES);
    for header in HEADERS {
        let name = Path::new(header).file_name().context("a file with a name")?;
        write(&stage.join(INCLUDE).join(name), &read(root, header)?)?;
    }
    for config in CONFIGS {
        let text = read(root, &format!("share/pkgconfig/{config}"))?.replace(VERSION, version);
        write(&libraries.join("pkgconfig").join(config), &text)?;
    }
    for command in COMMANDS {
        link("../../../bin/nicety", &libraries.join("bin").join(command))?;
    }
    let (library, folder, names) = VERBS;
    for name in names {
        link(Path::new("..").join(library), &libraries.join(folder).join(name))?;
        link_for_linker(&libraries.join(folder).join(name))?;
    }
    let (library, folder, names) = MPICH;
    for name in names {
        link(Path::new("..").join(library), &libraries.join(folder).join(name))?;
    }
    Ok(())
}

/// Links `libNAME.so`, which the linker finds by `-lNAME`, to a library that has a version in its name.
pub(super) fn link_for_linker(library: &Path) -> Result<()> {
    let name = library.file_name().and_then(|name| name.to_str()).context("a library with a name")?;
    match name.split_once(".so.") {
        Some((stem, _)) => link(name, &library.with_file_name(format!("{stem}.so"))),
        None => Ok(()),
    }
}

fn read(root: &Path, file: &str) -> Result<String> {
    let path: PathBuf = root.join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
