//! Where a process gets its key from: the launcher of its job, or else a file that only its user can read, which is created on
//! first use.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use host::bounded;
use rustix::fs::OFlags;

use crate::key::{Key, NoRandom};

/// The variable by which a launcher gives its processes the key of their job, as 32 hexadecimal digits. The environment of a
/// process can be read by its user only (proc(5), /proc/pid/environ).
pub const JOB_KEY: &str = "NICETY_JOB_KEY";
/// The variable that names another file.
pub const KEY_FILE: &str = "NICETY_KEY_FILE";
/// An upper bound for the size of a key file.
const FILE_MAX: u64 = 256;

/// The reason why a process has no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The launcher's variable holds something else.
    #[error("{JOB_KEY} holds no key, which is 32 hexadecimal digits; leave it to the launcher, or unset it")]
    JobKey,
    /// None of the variables that lead to the file is set.
    #[error("no key: neither {KEY_FILE} nor XDG_CONFIG_HOME nor HOME says where it is kept; set one of them")]
    NoPlace,
    /// The file cannot be created or read.
    #[error("the key in {path} cannot be {what}: {why}; check the directory, or name another file by {KEY_FILE}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        why: io::Error,
    },
    /// The path is not a regular file.
    #[error("the key in {path}: that is no file; remove it, or name another file by {KEY_FILE}", path = .0.display())]
    NoFile(PathBuf),
    /// The file belongs to another user.
    #[error(
        "the key in {path} belongs to user {owner}, and this is user {user}; name a file of your own by {KEY_FILE}",
        path = .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user that it belongs to.
        owner: u32,
        /// The user that this process runs as.
        user: u32,
    },
    /// Other users may read or change the file.
    #[error(
        "the key in {path} can be read or changed by others (mode {mode:04o}), so it may be known: remove the file, and a new one is made",
        path = .path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file does not contain a key.
    #[error("{path} holds no key, which is 32 hexadecimal digits; remove it, and a new one is made", path = .0.display())]
    Content(PathBuf),
    /// A new key needs random bytes.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
}

/// The key that this process shares with the processes that it connects to: the key of its job, or without a launcher the key of
/// its user. `variable` reads the environment.
///
/// # Errors
/// As [`user_key_path`] and [`user_key`]; [`KeyError::JobKey`] if the launcher's variable holds no key.
pub fn shared_key(variable: impl Fn(&str) -> Option<OsString>) -> Result<Key, KeyError> {
    match variable(JOB_KEY) {
        Some(text) => text.to_str().and_then(Key::from_hex).ok_or(KeyError::JobKey),
        None => user_key(&user_key_path(variable)?),
    }
}

/// The path of the user's key: `NICETY_KEY_FILE`, else `nicety/key` in `XDG_CONFIG_HOME`, else `.config/nicety/key` in `HOME`.
/// `variable` reads the environment.
///
/// # Errors
/// [`KeyError::NoPlace`].
pub fn user_key_path(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, KeyError> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = || set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let file = set(KEY_FILE).or_else(|| config().map(|config| config.join("nicety/key")));
    file.ok_or(KeyError::NoPlace)
}

/// Reads the key from a file. If the file does not exist, it is created with a new key and mode 0600, and its directory with mode
/// 0700. Processes that create it at the same time all get the same key.
///
/// # Errors
/// A file that belongs to another user, that others can read or write, or that holds something else is refused.
pub fn user_key(path: &Path) -> Result<Key, KeyError> {
    match open(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => create_key_file(path)?,
        Err(why) => return Err(io_error(path, "read", why)),
        Ok(file) => return read(path, &file),
    }
    read(path, &open(path).map_err(|why| io_error(path, "read", why))?)
}

fn io_error(path: &Path, what: &'static str, why: io::Error) -> KeyError {
    KeyError::Io { path: path.to_owned(), what, why }
}

/// Opens the file without blocking if it is a pipe.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32).open(path)
}

/// Reads the key from an open file, so that the file that was checked is the file that is read.
fn read(path: &Path, file: &File) -> Result<Key, KeyError> {
    let cannot = |why| io_error(path, "read", why);
    let about = file.metadata().map_err(cannot)?;
    let (owner, user) = (about.uid(), rustix::process::geteuid().as_raw());
    if !about.is_file() {
        return Err(KeyError::NoFile(path.to_owned()));
    }
    if owner != user {
        return Err(KeyError::Owner { path: path.to_owned(), owner, user });
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode { path: path.to_owned(), mode });
    }
    let other = || KeyError::Content(path.to_owned());
    let bytes = bounded::read_all(&mut &*file, FILE_MAX).map_err(|why| match why.kind() {
        ErrorKind::FileTooLarge => other(),
        _ => cannot(why),
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|_| other())?;
    Key::from_hex(text.trim_end()).ok_or_else(other)
}

/// Creates the file with its content in one step. Another process may create it first.
fn create_key_file(path: &Path) -> Result<(), KeyError> {
    let cannot = |why| io_error(path, "made", why);
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
    let key = Key::random()?;
    // The name is random, and the file must not exist.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", Key::random()?.to_hex()));
    let new = PathBuf::from(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(cannot)?;
    let written = file.write_all((key.to_hex() + "\n").as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&new, path));
    let removed = fs::remove_file(&new);
    match linked {
        Err(why) if why.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and(removed).map_err(cannot),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    #[test]
    fn the_key_path_follows_the_environment() {
        let with = |set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            user_key_path(value).ok()
        };
        let all = [("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), (KEY_FILE, "/k")];
        assert_eq!(with(&all), Some("/k".into()));
        assert_eq!(with(&all[..2]), Some("/x/nicety/key".into()));
        assert_eq!(with(&[all[0], ("XDG_CONFIG_HOME", "")]), Some("/h/.config/nicety/key".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_launchers_key_has_precedence_over_the_users() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let with = |job: Option<&str>| {
            shared_key(|name| match name {
                JOB_KEY => job.map(OsString::from),
                KEY_FILE => Some(path.clone().into()),
                _ => None,
            })
        };
        let (of_job, of_user) = (Key::from_bytes([7; 16]), with(None).expect("made"));
        assert_eq!(with(Some(&of_job.to_hex())).expect("given"), of_job);
        assert_eq!(user_key(&path).expect("made"), of_user);
        for wrong in ["", "7", &format!("{} ", of_job.to_hex())] {
            assert!(
                matches!(with(Some(wrong)), Err(KeyError::JobKey)),
                "{wrong:?} is not replaced by the user's"
            );
        }
    }

    #[test]
    fn a_key_is_created_once_and_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config/nicety/key");
        let key = user_key(&path).expect("made");
        assert_eq!(user_key(&path).expect("read"), key);
        assert_eq!((mode(&path), mode(path.parent().expect("one"))), (0o600, 0o700));
        assert_eq!(
            fs::read_dir(path.parent().expect("one")).expect("a folder").count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn concurrent_creators_get_the_same_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nicety/key");
        let keys: Vec<Key> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| user_key(&path).expect("a key"))).collect();
            makers.into_iter().map(|maker| maker.join().expect("a key")).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn accessible_or_malformed_key_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        user_key(&path).expect("made");
        for bits in [0o644, 0o640, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).expect("a mode");
            let refused = user_key(&path).expect_err("others can use it");
            assert!(matches!(refused, KeyError::Mode { mode, .. } if mode == bits), "{refused}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        for text in ["", "00", "no key, but as long as a key has to", &"0".repeat(1000), "\u{e9}\u{e9}"] {
            fs::write(&path, text).expect("written");
            assert!(matches!(user_key(&path), Err(KeyError::Content(_))), "{text}");
        }
        fs::write(&path, [0xff; 32]).expect("written");
        assert!(matches!(user_key(&path), Err(KeyError::Content(_))), "no text");
        assert!(matches!(user_key(folder.path()), Err(KeyError::NoFile(_))));
    }

    /// Root alone can make the file of another user.
    #[test]
    fn a_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        user_key(&path).expect("made");
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            let refused = user_key(&path).expect_err("it belongs to another user");
            assert!(matches!(refused, KeyError::Owner { owner: 65534, .. }), "{refused}");
        }
    }
}
