//! Output files: checked for writability before anything is measured, and replaced as a whole.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::args::Target;
use crate::error::Failure;

/// An output that the user requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The option that requested it, such as `--json`.
    pub(crate) option: &'static str,
    /// Its destination.
    pub(crate) target: &'a Target,
}

/// Rejects outputs that would fail or overwrite each other later, before any work is done.
///
/// # Errors
/// The first output that cannot be written, and why.
pub(crate) fn check(wanted: &[Wanted<'_>]) -> Result<(), Failure> {
    for (i, one) in wanted.iter().enumerate() {
        if let Some(other) = wanted[..i].iter().find(|other| is_same_destination(other.target, one.target)) {
            let (first, second) = (other.option, one.option);
            let place = match one.target {
                Target::Stdout => "standard output".to_owned(),
                Target::File(path) => path.display().to_string(),
            };
            return Err(Failure::usage(format!(
                "{first} and {second} both write to {place}; give one of them another file"
            )));
        }
    }
    for one in wanted {
        if let Target::File(path) = one.target {
            check_writable(path).map_err(|why| {
                let (option, path) = (one.option, path.display());
                Failure::usage(format!("cannot write {option} {path}: {why}"))
            })?;
        }
    }
    Ok(())
}

/// Whether two outputs have the same destination.
fn is_same_destination(a: &Target, b: &Target) -> bool {
    match (a, b) {
        (Target::Stdout, Target::Stdout) => true,
        (Target::File(a), Target::File(b)) => resolved(a) == resolved(b),
        _ => false,
    }
}

/// The path with symbolic links resolved as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let whole = || std::fs::canonicalize(path).ok();
    let by_directory = || Some(std::fs::canonicalize(directory(path)).ok()?.join(path.file_name()?));
    whole().or_else(by_directory).unwrap_or_else(|| path.to_owned())
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != OsStr::new("")).unwrap_or(Path::new("."))
}

/// Whether the file can be replaced: creates a temporary file in its directory and removes it.
fn check_writable(path: &Path) -> Result<(), String> {
    const ELSEWHERE: &str = "give another path";
    match std::fs::metadata(path) {
        Ok(old) if old.is_dir() => return Err("it is a directory; name a file in it".to_owned()),
        // Devices and pipes are written in place.
        Ok(old) if !old.is_file() => return Ok(()),
        Ok(_) => match std::fs::OpenOptions::new().append(true).open(path) {
            Ok(_) => {}
            Err(why) => return Err(format!("the file exists: {}; {ELSEWHERE}", reason_text(&why))),
        },
        Err(_) if path.file_name().is_none() => return Err(format!("it names no file; {ELSEWHERE}")),
        Err(_) => {}
    }
    let target = resolved(path);
    let dir = directory(&target);
    match std::fs::metadata(dir) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("directory {0} does not exist; run mkdir -p {0}", dir.display()))
        }
        Err(why) => Err(format!("directory {}: {}; {ELSEWHERE}", dir.display(), reason_text(&why))),
        Ok(meta) if !meta.is_dir() => Err(format!("{} is not a directory; {ELSEWHERE}", dir.display())),
        Ok(_) => match tempfile::Builder::new().prefix(".nicety-").suffix(".tmp").tempfile_in(dir) {
            Ok(_) => Ok(()),
            Err(why) => {
                Err(format!("cannot create files in {}: {}; {ELSEWHERE}", dir.display(), reason_text(&why)))
            }
        },
    }
}

/// The system's reason, without the path that tempfile adds.
fn reason_text(why: &std::io::Error) -> String {
    let kind = why.kind();
    if kind == std::io::ErrorKind::Other { why.to_string() } else { kind.to_string() }
}

/// Writes text to its destination; a file is replaced as a whole or not at all.
///
/// # Errors
/// The system's error; an old file is unchanged then.
pub(crate) fn write(wanted: Wanted<'_>, text: &str) -> Result<(), Failure> {
    match wanted.target {
        Target::Stdout => crate::term::Stream::Out.data(text),
        Target::File(path) => write_bytes(wanted.option, path, text.as_bytes()),
    }
}

/// Like [`write()`], for a file that is not text.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_bytes(option: &str, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    results::schema::replace(path, bytes).map_err(|why| {
        let path = path.display();
        Failure::run(format!(
            "cannot write {option} {path}: {why}; an old file is unchanged; free space, or give another path"
        ))
    })
}

/// The destination of incomplete results, next to the requested one: `run.partial.json` for `run.json`. `None` for standard
/// output.
pub(crate) fn partial(target: &Target) -> Option<Target> {
    let path = target.file()?;
    let end = path.extension().map_or_else(|| "partial".into(), |end| format!("partial.{}", end.display()));
    Some(Target::File(path.with_extension(end)))
}

/// Like [`write()`], but does not touch a file that already contains this text.
///
/// # Errors
/// As [`write()`].
pub(crate) fn renew(wanted: Wanted<'_>, text: &str) -> Result<(), Failure> {
    // A longer file differs: the read fails.
    let old = wanted.target.file().map(|path| host::bounded::read(path, text.len() as u64));
    if old.is_some_and(|old| old.is_ok_and(|old| old == text.as_bytes())) {
        Ok(())
    } else {
        write(wanted, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: impl Into<PathBuf>) -> Target {
        Target::File(path.into())
    }

    fn problem(wanted: &[(&'static str, &Target)]) -> String {
        let wanted: Vec<Wanted<'_>> =
            wanted.iter().map(|(option, target)| Wanted { option, target }).collect();
        check(&wanted).map_or_else(|f| f.lines.join("\n"), |()| "fine".to_owned())
    }

    #[test]
    fn outputs_to_the_same_file_are_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let a = file(dir.path().join("a"));
        let roundabout = file(dir.path().join(".").join("a"));
        assert!(
            problem(&[("--json", &Target::Stdout), ("--csv", &Target::Stdout)])
                .contains("both write to standard")
        );
        assert!(problem(&[("--json", &a), ("--csv", &roundabout)]).contains("both write to"));
        assert_eq!(
            problem(&[("--json", &a), ("--csv", &file(dir.path().join("b"))), ("--html", &Target::Stdout)]),
            "fine"
        );
    }

    #[test]
    fn impossible_files_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("directory");
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "old").expect("file");
        let said = |path: PathBuf| problem(&[("--json", &file(path))]);
        assert!(said(dir.path().to_owned()).contains("is a directory"));
        assert!(said(dir.path().join("no/where.json")).contains("does not exist; run mkdir -p"));
        assert!(said(plain.join("under-a-file.json")).contains("cannot write"));
        assert!(said(PathBuf::from("")).contains("names no file"));
        assert_eq!(said(plain.clone()), "fine");
        assert_eq!(said(PathBuf::from("/dev/null")), "fine");
        assert_eq!(std::fs::read_to_string(&plain).expect("file"), "old", "checking changes nothing");
        assert_eq!(std::fs::read_dir(dir.path()).expect("directory").count(), 1, "and leaves nothing");
    }

    #[test]
    fn file_behind_a_link_is_replaced() {
        let dir = tempfile::tempdir().expect("directory");
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::write(&real, "old").expect("file");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        let target = file(&link);
        write(Wanted { option: "--html", target: &target }, "new").expect("written");
        assert_eq!(std::fs::read_to_string(&real).expect("file"), "new");
        assert!(std::fs::symlink_metadata(&link).expect("link").is_symlink());
    }
}
