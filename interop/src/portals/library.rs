//! The names of our library that programs are linked to and load.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The name for the linker, and the soname.
const NAMES: [&str; 2] = ["libportals.so", "libportals.so.4"];

/// Makes links with these names in a folder; replaces existing links.
pub(super) fn link(library: &Path, folder: &Path) -> io::Result<()> {
    for link in NAMES.map(|name| folder.join(name)) {
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(library, link)?;
    }
    Ok(())
}
