//! Checks of memory: free memory, shared memory, huge pages, and access to another process's memory.

use fabric::CopyPath;
use host::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use super::check::Check;
use super::system::System;

/// Room for the largest transfer on both sides, with a margin.
const MEMORY_WANTED: u64 = 512 << 20;
/// Room for the NIC memory and queues of one device on each side.
const SHARED_WANTED: u64 = 64 << 20;

/// Whether there is enough memory for large messages.
pub(super) fn available(system: &System) -> Check {
    let id = "memory";
    match (system.meminfo("MemAvailable"), system.meminfo("MemTotal")) {
        (Some(free), Some(total)) if free < MEMORY_WANTED => Check::warn(
            id,
            format!("{} of {} available", approximate_size(free), approximate_size(total)),
            "Large messages need buffers on both sides; a machine that swaps measures its disk.",
            "ps -eo rss,pid,comm --sort=-rss | head",
        ),
        (Some(free), Some(total)) => {
            Check::ok(id, format!("{} of {} available", approximate_size(free), approximate_size(total)))
        }
        _ => Check::ok(id, "the kernel does not report free memory"),
    }
}

/// Shared memory. Segments are anonymous files, so the size and contents of /dev/shm do not matter.
pub(super) fn shared(system: &System) -> Check {
    let made = memfd_create("nicety-doctor", MemfdFlags::CLOEXEC).map(drop);
    check_shared(made.map_err(|why| why.to_string()), control_group_room(system))
}

fn check_shared(made: Result<(), String>, room: Option<u64>) -> Check {
    let id = "shared-memory";
    match (made, room) {
        (Err(why), _) => Check::bad(
            id,
            format!("memfd_create is refused: {why}"),
            "The shm device needs memfd_create for its segments.",
            "allow memfd_create in the container's seccomp profile",
        ),
        (Ok(()), Some(room)) if room < SHARED_WANTED => Check::warn(
            id,
            format!("the control group allows {} more", approximate_size(room)),
            "Segments of the shm device count as memory of the group; beyond the limit, the process is killed.",
            "raise the limit (memory.max of the control group; --memory=1g or more of a container)",
        ),
        (Ok(()), _) => Check::ok(id, "anonymous (memfd): limited by free memory only, not by /dev/shm"),
    }
}

/// Bytes that the process's control group may still use, if it has a limit.
fn control_group_room(system: &System) -> Option<u64> {
    let of = |group: String| {
        let limit = system.number(&format!("sys/fs/cgroup/{group}/memory.max"))?;
        Some(limit.saturating_sub(system.number(&format!("sys/fs/cgroup/{group}/memory.current"))?))
    };
    system.control_groups().into_iter().filter_map(of).min()
}

/// Transparent huge pages. Never a warning: they change the bandwidth of large transfers and of the floor alike.
pub(super) fn huge_pages(system: &System) -> Check {
    let text = system.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Check::ok(
        "huge-pages",
        match chosen {
            Some((mode @ "never", _)) => {
                format!("transparent: {mode} (address translation of large copies takes longer)")
            }
            Some((mode, _)) => format!("transparent: {mode}"),
            None => "the kernel has no transparent huge pages".to_owned(),
        },
    )
}

/// How the shm device copies from and to another process's private memory, and why.
pub(super) fn process_access(system: &System) -> Check {
    let (path, why) = fabric::copy_path();
    check_process_access(path, why, system.number("proc/sys/kernel/yama/ptrace_scope"))
}

fn check_process_access(path: CopyPath, found: String, scope: Option<u64>) -> Check {
    let id = "process-access";
    let remedy = match scope {
        Some(1..) => "sudo sysctl kernel.yama.ptrace_scope=0",
        _ => "allow process_vm_readv and process_vm_writev in the container's seccomp profile",
    };
    let why = "Transfers into private memory need two copies and the owner's processor, at about half the bandwidth.";
    match path {
        CopyPath::Service => Check::warn(id, found, why, remedy),
        CopyPath::Auto | CopyPath::Kernel => Check::ok(id, found),
    }
}

/// A size with about two significant digits.
fn approximate_size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) if !bytes.is_multiple_of(1 << shift) => {
            let scaled = bytes as f64 / f64::from(1u32 << shift);
            format!("{scaled:.*} {unit}", usize::from(scaled < 10.0))
        }
        _ => Bytes(bytes).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Severity;
    use super::super::system::tests::Fake;
    use super::*;

    #[test]
    fn little_memory_is_a_warning() {
        let fake = Fake::new(&[("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n")]);
        assert_eq!(available(&fake.system).found, "6.7 GiB of 7.6 GiB available");
        assert_eq!(available(&fake.system).state, Severity::Ok);
        fake.set(&[("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 70000 kB\n")]);
        assert_eq!(available(&fake.system).state, Severity::Warn);
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let fake = Fake::new(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "400\n"),
        ]);
        assert_eq!(control_group_room(&fake.system), Some(600));
        assert_eq!(check_shared(Ok(()), Some(600)).state, Severity::Warn);
        assert_eq!(check_shared(Ok(()), None).state, Severity::Ok);
        assert_eq!(check_shared(Err("no".to_owned()), None).state, Severity::Bad);
    }

    #[test]
    fn two_copies_are_a_warning_with_the_remedy_for_their_cause() {
        let of = |path, scope| check_process_access(path, "because".to_owned(), scope);
        assert_eq!(of(CopyPath::Kernel, Some(1)).state, Severity::Ok);
        assert!(of(CopyPath::Service, Some(2)).remedy.is_some_and(|r| r.contains("ptrace_scope=0")));
        assert!(of(CopyPath::Service, None).remedy.is_some_and(|r| r.contains("seccomp")));
    }
}
