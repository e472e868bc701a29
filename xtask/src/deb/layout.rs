//! Where the package has its files, and how they are written.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use xtask::workspace::capture;

/// The folder of libraries, which is on no search path: some have the names of Debian's own.
pub(super) const LIBRARIES: &str = "usr/lib/nicety";
/// The folder of the C headers.
pub(super) const INCLUDE: &str = "usr/include/nicety";
pub(super) const DOC: &str = "usr/share/doc/nicety";
/// The library for verbs programs, and the subfolder with links of the names that programs load, which `nicety run`
/// puts on their search path. No other program searches that folder.
pub(super) const VERBS: (&str, &str, [&str; 2]) =
    ("libnicety_verbs.so", "nicety-verbs", ["libibverbs.so.1", "librdmacm.so.1"]);
/// The library for programs of MPICH's ABI, and the subfolder with links of the names that programs load, MPICH's own and Debian's, which
/// `nicety mpirun` puts on their search path. No other program searches that folder.
pub(super) const MPICH: (&str, &str, [&str; 2]) =
    ("libmpi_mpich.so", "nicety-mpich", ["libmpi.so.12", "libmpich.so.12"]);
/// The unit for `nicety serve`.
pub(super) const UNIT: &str = "usr/lib/systemd/system/nicety-serve.service";

/// Writes a file, and makes the folders above it.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a link to a path that is relative to the link, and the folders above it.
pub(super) fn link(target: impl AsRef<Path>, link: &Path) -> Result<()> {
    make_parent(link)?;
    symlink(target, link).with_context(|| format!("cannot make the link {}", link.display()))
}

pub(super) fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path with a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// The SONAME of a library, if it has one.
pub(super) fn soname(library: &Path) -> Result<Option<String>> {
    let headers = capture(Command::new("objdump").arg("-p").arg(library))?;
    Ok(headers.lines().find_map(|line| line.trim().strip_prefix("SONAME")).map(|name| name.trim().to_owned()))
}
