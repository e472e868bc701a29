//! The folder of a user, in which processes of one user on this host find each other's sockets, and no other user can
//! find or create any.
//!
//! Any user can take an abstract socket name, and a datagram socket does not reveal its owner. A folder with mode 0700
//! contains only this user's sockets. Its path depends on nothing that differs between processes of a user, such as the
//! environment. In a folder such as `/tmp`, whose sticky bit keeps other users from removing or renaming it, another
//! user can only take the name first. Then the next name is tried, so all processes of the user still choose the same
//! one.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, chmod, lstat, mkdir, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Candidates for the parent folder, in this order; the first suitable one is used.
const PARENTS: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];
/// Number of names tried in each parent. Taking all names costs another user more than checking them costs this user
/// (about 0.1 s).
const NAMES: u32 = 1 << 16;

/// The result of searching a parent folder.
enum Found {
    Own(PathBuf),
    /// The first name that is not taken.
    Free(PathBuf),
    /// Other users have taken all names, or the parent does not protect a folder from being replaced by others.
    Nothing,
}

/// The folder of this process's effective user, with mode 0700; created if it does not exist.
///
/// # Errors
/// Why it cannot be created in any of `/tmp`, `/dev/shm` and `/var/tmp`.
pub fn user_folder() -> io::Result<PathBuf> {
    folder_in(&PARENTS.map(Path::new))
}

/// As [`user_folder`], but only if the folder already exists.
pub fn find_user_folder() -> Option<PathBuf> {
    find(&PARENTS.map(Path::new))
}

/// The number of the network namespace of the calling thread; 0 without `/proc`. A folder is visible from all
/// namespaces, so sockets that belong to one have its number in their name.
pub fn network_namespace() -> u64 {
    stat("/proc/thread-self/ns/net").map_or(0, |found| found.st_ino)
}

fn folder_in(parents: &[&Path]) -> io::Result<PathBuf> {
    if let Some(folder) = find(parents) {
        return Ok(folder);
    }
    let mut reasons = Vec::new();
    for parent in parents {
        loop {
            let path = match find_name(parent) {
                Found::Own(path) => return Ok(path),
                Found::Free(path) => path,
                Found::Nothing => {
                    reasons.push(format!("{} offers no safe folder name", parent.display()));
                    break;
                }
            };
            match mkdir(&path, Mode::RWXU) {
                // Checked again, as its owner and mode decide.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(why) => {
                    reasons.push(format!("{}: {why}", path.display()));
                    break;
                }
            }
        }
    }
    Err(io::Error::other(format!(
        "this user has no folder for sockets ({}); make one of {} writable",
        reasons.join("; "),
        parents.iter().map(|parent| parent.display().to_string()).collect::<Vec<_>>().join(", ")
    )))
}

fn find(parents: &[&Path]) -> Option<PathBuf> {
    parents.iter().find_map(|parent| match find_name(parent) {
        Found::Own(path) => Some(path),
        Found::Free(_) | Found::Nothing => None,
    })
}

/// The first name in a parent that no other user has taken.
fn find_name(parent: &Path) -> Found {
    const WRITABLE_BY_OTHERS: Mode = Mode::WGRP.union(Mode::WOTH);
    let Ok(found) = stat(parent) else { return Found::Nothing };
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(WRITABLE_BY_OTHERS) && !mode.contains(Mode::SVTX) {
        return Found::Nothing;
    }
    let own = geteuid();
    for name in 0..NAMES {
        let suffix = if name == 0 { String::new() } else { format!("-{name}") };
        let path = parent.join(format!("nicety-{}{suffix}", own.as_raw()));
        match lstat(&path) {
            Err(_) => return Found::Free(path),
            Ok(found) => {
                let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                if is_folder && found.st_uid == own.as_raw() && restrict(&path, found.st_mode).is_ok() {
                    return Found::Own(path);
                }
            }
        }
    }
    Found::Nothing
}

/// Restricts a folder to its user, whatever the umask was when it was created.
fn restrict(path: &Path, mode: u32) -> rustix::io::Result<()> {
    if Mode::from_raw_mode(mode) == Mode::RWXU { Ok(()) } else { chmod(path, Mode::RWXU) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    /// A new parent folder with the given mode.
    fn parent(mode: u32) -> PathBuf {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("folder-test-{}-{count}", std::process::id()));
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    fn name(suffix: &str) -> String {
        format!("nicety-{}{suffix}", geteuid().as_raw())
    }

    #[test]
    fn user_folder_is_created_once_and_closed_to_others() {
        let parent = parent(0o1777);
        assert_eq!(find(&[&parent]), None);
        let made = folder_in(&[&parent]).expect("a folder");
        assert_eq!(made, parent.join(name("")));
        assert_eq!(made.metadata().expect("it is there").mode() & 0o7777, 0o700);
        assert_eq!(folder_in(&[&parent]).expect("the same"), made);
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_eq!(find(&[&parent]), Some(made.clone()));
        assert_eq!(made.metadata().expect("it is there").mode() & 0o7777, 0o700, "wider once, and no more");
        fs::remove_dir_all(&parent).expect("removed");
    }

    #[test]
    fn taken_names_are_skipped() {
        let parent = parent(0o1777);
        fs::write(parent.join(name("")), "").expect("a file");
        symlink("/tmp", parent.join(name("-1"))).expect("a link");
        assert_eq!(folder_in(&[&parent]).expect("a folder"), parent.join(name("-2")));
        if geteuid().is_root() {
            let other = parent.join(name("-2"));
            std::os::unix::fs::chown(&other, Some(65_534), None).expect("another's");
            assert_eq!(find(&[&parent]), None);
            assert_eq!(folder_in(&[&parent]).expect("a folder"), parent.join(name("-3")));
        }
        fs::remove_dir_all(&parent).expect("removed");
    }

    #[test]
    fn parent_writable_by_others_is_not_used() {
        let (loose, firm) = (parent(0o777), parent(0o1777));
        let made = folder_in(&[&loose, &firm]).expect("a folder");
        assert!(made.starts_with(&firm), "{made:?}");
        let nowhere = Path::new("/proc/nowhere");
        let why = folder_in(&[&loose, nowhere]).expect_err("nowhere to be").to_string();
        assert!(
            why.contains("offers no safe folder name") && why.contains("/proc/nowhere writable"),
            "{why}"
        );
        [loose, firm].iter().for_each(|path| fs::remove_dir_all(path).expect("removed"));
    }

    #[test]
    fn network_namespace_has_a_number() {
        assert_ne!(network_namespace(), 0);
    }
}
