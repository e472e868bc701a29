//! What a program that was built for libibverbs and librdmacm is given: a folder in which it finds ours by their names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::Failure;
use launcher::beside;

/// The library, as cargo names it.
const LIBRARY: &str = "libnicety_verbs.so";
/// The folder of its other names, beside it: nothing else is found there.
const FOLDER: &str = "nicety-verbs";
/// What programs ask for. Both are one file: the loader, which sees that, maps it once, and either knows the other's objects.
const NAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// What the loader loads before all else: programs look at paths of devices, too.
const PRELOAD: &str = "LD_PRELOAD";
/// Where the loader looks first.
const SEARCH: &str = "LD_LIBRARY_PATH";
/// Which devices the library lists.
const DEVICES: &str = "NICETY_VERBS_DEVICES";
/// What they look like.
const KIND: &str = "NICETY_VERBS_KIND";

/// The variables that the program needs, beside those that there are: the library at `given`, or beside this program.
///
/// # Errors
/// A library that is missing, a folder that takes no links.
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
        None => beside::find(own, &beside::LIBRARIES, &[LIBRARY]).ok_or_else(|| {
            Failure::usage(format!(
                "{LIBRARY} is neither beside this program nor in ../lib; in the sources: cargo build --release -p abi-verbs; or \
                 say --library PATH"
            ))
        })?,
    };
    let path = before(folder(&library)?.into_os_string(), search);
    let preload = before(library.into_os_string(), preload);
    let kind = if is_rnic { "rnic" } else { "hca" };
    Ok(vec![(PRELOAD, preload), (SEARCH, path), (DEVICES, devices.join(";").into()), (KIND, kind.into())])
}

/// A path in front of those that there are.
fn before(mut path: OsString, others: Option<&OsStr>) -> OsString {
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

/// The folder of the library's other names, which is made if it is not there.
fn folder(library: &Path) -> Result<PathBuf, Failure> {
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
                // Another has done that just now.
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
    fn a_program_finds_the_library_by_both_names_and_what_it_found_before() {
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
