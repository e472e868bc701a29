//! Finds the file of a program as a shell does, or explains why it cannot be started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The file for a program name: searched in the directories of `path`, or, if the name contains a slash, relative to
/// `directory`.
///
/// # Errors
/// A text that says why the program cannot be started, and a remedy.
pub(super) fn find(name: &OsStr, directory: &Path, path: Option<OsString>) -> Result<PathBuf, String> {
    let shown = Path::new(name).display();
    if !directory.is_dir() {
        return Err(format!("there is no directory {}; choose another by --wdir", directory.display()));
    }
    if name.as_encoded_bytes().contains(&b'/') {
        let file = directory.join(name);
        return match obstacle(&file) {
            None => Ok(file),
            Some(why) => Err(format!("{shown} cannot be started: {why}")),
        };
    }
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let files = std::env::split_paths(&path).map(|entry| directory.join(entry).join(name));
    if let Some(file) = files.into_iter().find(|file| obstacle(file).is_none()) {
        return Ok(file);
    }
    let is_here = obstacle(&directory.join(name)).is_none();
    let how = if is_here {
        format!("write ./{shown} for the program in this directory")
    } else {
        "give its path, or add its directory to PATH".to_owned()
    };
    Err(format!("there is no program {shown} in PATH; {how}"))
}

/// The reason why a file cannot be started.
fn obstacle(file: &Path) -> Option<String> {
    match std::fs::metadata(file) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            Some("there is no such file; check the path, which is relative to --wdir".to_owned())
        }
        Err(why) => Some(format!("{why}; check the path")),
        Ok(data) if !data.is_file() => Some("it is not a file; name the program itself".to_owned()),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => {
            Some(format!("it is not executable; run chmod +x {}", file.display()))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn program_is_found_or_refused_with_a_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in [("good", 0o755), ("plain", 0o644)] {
            std::fs::write(at(name), "#!/bin/sh\n").expect("a file");
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).expect("a mode");
        }
        let find = |name: &str, path: &str| find(name.as_ref(), dir.path(), Some(path.into()));
        assert_eq!(find("./good", ""), Ok(at("./good")));
        assert_eq!(find("good", &format!("/nowhere:{}", dir.path().display())), Ok(at("good")));
        assert!(find("sh", "/bin").is_ok());
        for (name, hint) in [
            ("good", "write ./good"),
            ("missing", "add its directory to PATH"),
            ("./missing", "no such file"),
            ("./plain", "chmod +x"),
            ("./", "it is not a file"),
        ] {
            let why = find(name, "/nowhere").expect_err(name);
            assert!(why.contains(hint) && why.contains("; "), "{why}");
        }
        let why = super::find("sh".as_ref(), &at("missing"), None).expect_err("no directory");
        assert!(why.contains("--wdir"), "{why}");
    }
}
