//! Checks of the process's limits and the kernel's version.

use host::Bytes;
use rustix::process::{Resource, getrlimit};

use super::check::Check;
use super::system::System;

/// Wanted open files: a connection uses about four descriptors on each side.
const FILES_WANTED: u64 = 1024;
/// Needed open files: with fewer, no measurement can run.
const FILES_NEEDED: u64 = 64;
/// Wanted free processes: fewer are soon used up.
const PROCESSES_WANTED: u64 = 64;
/// The kernel that introduced the newest required system call, pidfd_open, which detects the death of a peer without delay.
const KERNEL_NEEDED: (u32, u32) = (5, 3);

/// The limit of locked memory. Devices of this program lock none; hardware does.
pub(super) fn memlock() -> Check {
    let limit = getrlimit(Resource::Memlock).current;
    let text = limit.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string());
    let found = match limit {
        None => text,
        Some(_) => format!(
            "{text}; sufficient, as software devices lock no memory (a hardware card needs ulimit -l unlimited)"
        ),
    };
    Check::ok("memlock", found)
}

/// The limit of open files.
pub(super) fn files() -> Check {
    let limits = getrlimit(Resource::Nofile);
    check_files(limits.current, limits.maximum)
}

fn check_files(now: Option<u64>, most: Option<u64>) -> Check {
    let id = "open-files";
    let Some(now) = now else { return Check::ok(id, "unlimited") };
    let remedy = match most {
        Some(most) if most < FILES_WANTED => format!(
            "raise the hard limit of {most}: nofile in /etc/security/limits.conf, --ulimit nofile=65536 of a container"
        ),
        Some(most) => format!("ulimit -n {most}"),
        None => "ulimit -n 65536".to_owned(),
    };
    let found = format!("limited to {now}");
    let why = "Each connection uses about four files on each side; when none are left, connecting fails.";
    match now {
        n if n < FILES_NEEDED => Check::bad(id, found, why, remedy),
        n if n < FILES_WANTED => Check::warn(id, found, why, remedy),
        _ => Check::ok(id, found),
    }
}

/// The user's limit of processes, and how many more the control groups allow.
pub(super) fn processes(system: &System) -> Check {
    let left = |group: String| {
        let number = |file: &str| system.number(&format!("sys/fs/cgroup/{group}/{file}"));
        Some(number("pids.max")?.saturating_sub(number("pids.current")?))
    };
    let left = system.control_groups().into_iter().filter_map(left).min();
    check_processes(getrlimit(Resource::Nproc).current, left)
}

fn check_processes(user: Option<u64>, left: Option<u64>) -> Check {
    let id = "processes";
    let text = match (user, left) {
        (None, None) => "unlimited".to_owned(),
        (Some(user), None) => format!("{user} for this user"),
        (None, Some(left)) => format!("{left} more in the control group"),
        (Some(user), Some(left)) => format!("{user} for this user, {left} more in the control group"),
    };
    let least = user.into_iter().chain(left).min();
    if least.is_none_or(|n| n >= PROCESSES_WANTED) {
        return Check::ok(id, text);
    }
    Check::warn(
        id,
        text,
        "Each launch starts two to eight processes, hotspot one per slave; threads of other programs count, too.",
        "ulimit -u unlimited, or pids.max of the control group (--pids-limit of a container)",
    )
}

/// The limit of processor time, after which the kernel ends a process.
pub(super) fn processor_time() -> Check {
    check_processor_time(getrlimit(Resource::Cpu).current)
}

fn check_processor_time(seconds: Option<u64>) -> Check {
    let id = "cpu-time";
    let Some(seconds) = seconds else { return Check::ok(id, "unlimited") };
    Check::warn(
        id,
        format!("{seconds} s per process"),
        "Measuring processes spin, so a longer launch is killed before it has finished.",
        "ulimit -t unlimited",
    )
}

/// The kernel's version.
pub(super) fn kernel() -> Check {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    check_kernel(&text(uname.sysname()), &text(uname.release()))
}

fn check_kernel(name: &str, release: &str) -> Check {
    let id = "kernel";
    let found = format!("{name} {release}");
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = parts.next().zip(parts.next());
    let (major, minor) = KERNEL_NEEDED;
    match version {
        Some(version) if version < KERNEL_NEEDED => Check::bad(
            id,
            found,
            "The system call that reports the death of a peer is missing, so peers notice it later.",
            format!("use Linux {major}.{minor} or newer"),
        ),
        _ => Check::ok(id, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::*;

    #[test]
    fn few_files_are_a_warning_and_very_few_are_bad() {
        assert_eq!(check_files(Some(1024), Some(4096)).state, Severity::Ok);
        assert_eq!(check_files(None, None).state, Severity::Ok);
        let few = check_files(Some(256), Some(4096));
        assert_eq!((few.state, few.remedy.as_deref()), (Severity::Warn, Some("ulimit -n 4096")));
        let stuck = check_files(Some(32), Some(32));
        assert_eq!(stuck.state, Severity::Bad);
        assert!(stuck.remedy.is_some_and(|r| r.contains("hard limit of 32")));
    }

    #[test]
    fn few_processes_and_little_processor_time_are_warned_of() {
        assert_eq!(check_processes(None, None).state, Severity::Ok);
        assert_eq!(check_processes(Some(4096), Some(1000)).state, Severity::Ok);
        let few = check_processes(Some(4096), Some(7));
        assert_eq!(
            (few.state, few.found.as_str()),
            (Severity::Warn, "4096 for this user, 7 more in the control group")
        );
        assert_eq!(check_processor_time(None).state, Severity::Ok);
        assert_eq!(check_processor_time(Some(60)).state, Severity::Warn);
    }

    #[test]
    fn kernels_by_number_and_not_by_text() {
        assert_eq!(check_kernel("Linux", "6.18.44-fc").state, Severity::Ok);
        assert_eq!(check_kernel("Linux", "5.10").state, Severity::Ok);
        assert_eq!(check_kernel("Linux", "4.19.0-21-amd64").state, Severity::Bad);
        assert_eq!(check_kernel("Linux", "strange").state, Severity::Ok);
    }
}
