//! The environment of a program that was built for libibverbs and librdmacm: a folder in which our library has their names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::Failure;
use launcher::install_paths;

/// The library's name as built by cargo.
const LIBRARY: &str = "libnicety_verbs.so";
/// The folder with the other names, next to the library; it contains names of the library only.
const FOLDER: &str = "nicety-verbs";
/// The names that programs are linked to. Both are links to one file: the loader maps it once, and both names share their
/// state.
const NAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// Libraries that the loader loads first; preloaded because programs also access paths of devices.
const PRELOAD: &str = "LD_PRELOAD";
/// The loader's search path for libraries.
const SEARCH: &str = "LD_LIBRARY_PATH";
/// The devices that the library lists.
const DEVICES: &str = "NICETY_VERBS_DEVICES";
/// The kind of devices that they appear as.
const KIND: &str = "NICETY_VERBS_KIND";

/// The variables to set for the program: the library at `given`, or the one relative to this program.
///
/// # Errors
/// If the library is missing, or the folder cannot be filled.
pub(super) fn environment(
    own: &Path,
    given: Option<&Path>,
    devices: &[String],
    is_rnic: bool,
    search: Option<&OsStr>,
    preload: Option<&OsStr>,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let library = match given {
        Some(path) => path.canonicalize().map_err(|why| {
            Failure::usage(format!("cannot read the library {}: {why}; check its name", path.display()))
        })?,
        None => install_paths::find(own, &install_paths::LIBRARIES, &[LIBRARY]).ok_or_else(|| {
            Failure::usage(format!(
                "{LIBRARY} is neither next to this program nor in ../lib; in the sources: cargo build --release -p abi-verbs; or \
                 give --library PATH"
            ))
        })?,
    };
    let path = prepend_path(create_link_folder(&library)?.into_os_string(), search);
    let preload = prepend_path(library.into_os_string(), preload);
    let kind = if is_rnic { "rnic" } else { "hca" };
    Ok(vec![(PRELOAD, preload), (SEARCH, path), (DEVICES, devices.join(";").into()), (KIND, kind.into())])
}

/// Prepends a path to the existing ones.
fn prepend_path(mut path: OsString, others: Option<&OsStr>) -> OsString {
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

/// The folder of the library's other names; created if it does not exist.
fn create_link_folder(library: &Path) -> Result<PathBuf, Failure> {
    let folder = library.parent().unwrap_or(Path::new("")).join(FOLDER);
    let file = library.file_name().unwrap_or_default();
    let make = || {
        fs::create_dir_all(&folder)?;
        NAMES.iter().try_for_each(|name| {
            let link = folder.join(name);
            if link.exists() {
                return Ok(());
            }
            symlink(Path::new("..").join(file), &link).or_else(|why| match why.kind() {
                // Another process may have created it at the same time.
                ErrorKind::AlreadyExists if link.exists() => Ok(()),
                _ => Err(why),
            })
        })
    };
    make().map_err(|why: std::io::Error| {
        let (folder, library) = (folder.display(), library.display());
        Failure::run(format!(
            "cannot give the library its names {} in {folder}: {why}; make links to {library} there",
            NAMES.join(" and ")
        ))
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_has_both_names_and_earlier_search_paths_stay() {
        let root = tempfile::tempdir().expect("a folder");
        let own = root.path().canonicalize().expect("a path");
        let devices = ["shm".to_owned(), "iwarp@10.0.0.1".to_owned()];
        let missing = environment(&own, None, &devices, false, None, None).expect_err("no library is there");
        assert!(missing.lines[0].contains("cargo build"), "{missing:?}");
        fs::write(own.join(LIBRARY), "library").expect("a file");
        for (before, behind, kind) in [(None, "", "hca"), (Some("/a:/b"), ":/a:/b", "rnic")] {
            let (is_rnic, before) = (kind == "rnic", before.map(OsStr::new));
            let found = environment(&own, None, &devices, is_rnic, before, before).expect("it is there");
            let path = own.join(FOLDER).display().to_string() + behind;
            let named = (DEVICES, "shm;iwarp@10.0.0.1".into());
            let library = own.join(LIBRARY).display().to_string() + behind;
            let loaded = [(PRELOAD, library.into()), (SEARCH, path.into())];
            assert_eq!(found, [&loaded[..], &[named, (KIND, kind.into())]].concat());
        }
        for name in NAMES {
            assert_eq!(fs::read_to_string(own.join(FOLDER).join(name)).expect("a link"), "library");
        }
        let elsewhere = own.join("other.so");
        assert!(environment(&own, Some(&elsewhere), &devices, false, None, None).is_err());
    }
}
