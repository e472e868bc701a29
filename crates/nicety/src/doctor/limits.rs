//! Limits of the process and the age of the kernel.

use host::Bytes;
use rustix::process::{Resource, getrlimit};

use super::Check;

/// A connection takes about four descriptors on each side.
const FILES_WANTED: u64 = 1024;
/// Below this not even one measurement has enough.
const FILES_NEEDED: u64 = 64;
/// Newest system call that is needed: pidfd_open, which tells at once that a peer has died.
const KERNEL_NEEDED: (u32, u32) = (5, 3);

/// Memory that may be locked. The devices of this program lock none, hardware does.
pub(super) fn memlock() -> Check {
    let limit = getrlimit(Resource::Memlock).current;
    let text = limit.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string());
    let found = match limit {
        None => text,
        Some(_) => format!(
            "{text}; enough here: software devices lock no memory (a hardware card would: ulimit -l unlimited)"
        ),
    };
    Check::ok("memlock", found)
}

/// Files that may be open.
pub(super) fn files() -> Check {
    let limits = getrlimit(Resource::Nofile);
    files_of(limits.current, limits.maximum)
}

fn files_of(now: Option<u64>, most: Option<u64>) -> Check {
    let id = "open-files";
    let Some(now) = now else { return Check::ok(id, "unlimited") };
    let remedy = match most {
        Some(most) if most < FILES_WANTED => format!(
            "raise the hard limit, which is {most}: nofile in /etc/security/limits.conf, --ulimit nofile=65536 of a container"
        ),
        Some(most) => format!("ulimit -n {most}"),
        None => "ulimit -n 65536".to_owned(),
    };
    let found = format!("{now} may be open");
    let why = "Each connection takes about four of them on each side; when they run out, connecting fails.";
    match now {
        n if n < FILES_NEEDED => Check::bad(id, found, why, remedy),
        n if n < FILES_WANTED => Check::warn(id, found, why, remedy),
        _ => Check::ok(id, found),
    }
}

/// The kernel's version.
pub(super) fn kernel() -> Check {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    kernel_of(&text(uname.sysname()), &text(uname.release()))
}

fn kernel_of(name: &str, release: &str) -> Check {
    let id = "kernel";
    let found = format!("{name} {release}");
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = parts.next().zip(parts.next());
    let (major, minor) = KERNEL_NEEDED;
    match version {
        Some(version) if version < KERNEL_NEEDED => Check::bad(
            id,
            found,
            "A system call is missing that tells at once when a peer has died.",
            format!("use Linux {major}.{minor} or newer"),
        ),
        _ => Check::ok(id, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn few_files_are_a_warning_and_very_few_are_bad() {
        assert_eq!(files_of(Some(1024), Some(4096)).state, State::Ok);
        assert_eq!(files_of(None, None).state, State::Ok);
        let few = files_of(Some(256), Some(4096));
        assert_eq!((few.state, few.remedy.as_deref()), (State::Warn, Some("ulimit -n 4096")));
        let stuck = files_of(Some(32), Some(32));
        assert_eq!(stuck.state, State::Bad);
        assert!(stuck.remedy.is_some_and(|r| r.contains("hard limit, which is 32")));
    }

    #[test]
    fn kernels_by_number_and_not_by_text() {
        assert_eq!(kernel_of("Linux", "6.18.44-fc").state, State::Ok);
        assert_eq!(kernel_of("Linux", "5.10").state, State::Ok);
        assert_eq!(kernel_of("Linux", "4.19.0-21-amd64").state, State::Bad);
        assert_eq!(kernel_of("Linux", "strange").state, State::Ok);
    }
}
