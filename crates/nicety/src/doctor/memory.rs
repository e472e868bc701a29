//! Memory: how much there is, for sharing too; large pages; reaching another process's.

use super::{Check, System};
use crate::term::size;

/// The largest transfer, on both sides, with room to spare.
const MEMORY_WANTED: u64 = 512 << 20;
/// NIC memory and queues of one device on each side.
const SHARED_WANTED: u64 = 64 << 20;

/// Free memory.
pub(super) fn available(system: &System) -> Check {
    let id = "memory";
    match (system.meminfo("MemAvailable"), system.meminfo("MemTotal")) {
        (Some(free), Some(total)) if free < MEMORY_WANTED => Check::warn(
            id,
            format!("{} of {} available", about(free), about(total)),
            "Large messages need buffers on both sides; a machine that swaps times its disk.",
            "ps -eo rss,pid,comm --sort=-rss | head",
        ),
        (Some(free), Some(total)) => Check::ok(id, format!("{} of {} available", about(free), about(total))),
        _ => Check::ok(id, "the kernel does not say how much is free"),
    }
}

/// Room in /dev/shm.
pub(super) fn shared(system: &System) -> Check {
    let Ok(room) = rustix::fs::statvfs("/dev/shm") else {
        return shared_of(None, system.meminfo("MemAvailable"));
    };
    shared_of(
        Some((room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)),
        system.meminfo("MemAvailable"),
    )
}

fn shared_of(room: Option<(u64, u64)>, available: Option<u64>) -> Check {
    let id = "shared-memory";
    let why = "Segments of the shm device live there: a measurement with large messages would find it full.";
    let Some((total, free)) = room else {
        return Check::bad(id, "/dev/shm is not there", why, "sudo mount -t tmpfs -o size=1G tmpfs /dev/shm");
    };
    let found = format!("{} of {} free in /dev/shm", about(free), about(total));
    match free.min(available.unwrap_or(u64::MAX)) {
        n if n >= SHARED_WANTED => Check::ok(id, found),
        _ if total > 2 * SHARED_WANTED => {
            Check::warn(id, found, why, "ls -lhS /dev/shm; remove what nobody uses")
        }
        _ => Check::warn(
            id,
            found,
            why,
            "sudo mount -o remount,size=1G /dev/shm, or --shm-size=1g of a container",
        ),
    }
}

/// Transparent huge pages: no warning, but it changes the bandwidth of large transfers and of the floor alike.
pub(super) fn huge_pages(system: &System) -> Check {
    let text = system.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Check::ok(
        "huge-pages",
        match chosen {
            Some((mode @ "never", _)) => {
                format!("transparent ones: {mode} (large copies pay more for address translation)")
            }
            Some((mode, _)) => format!("transparent ones: {mode}"),
            None => "the kernel offers no transparent ones".to_owned(),
        },
    )
}

/// Whether one process may copy from and to another's private memory.
pub(super) fn process_access(system: &System) -> Check {
    let id = "process-access";
    let scope = system.number("proc/sys/kernel/yama/ptrace_scope");
    let why = "The shm device then copies private memory through a bounce buffer: two copies instead of one.";
    let remedy = "sudo sysctl kernel.yama.ptrace_scope=0";
    match scope {
        None => Check::ok(id, "no ptrace_scope; processes of one user may copy from and to each other"),
        Some(0) => Check::ok(id, "ptrace_scope is 0; processes of one user may copy from and to each other"),
        Some(1) => {
            Check::ok(id, "ptrace_scope is 1; a process must allow its peer, which the shm device does")
        }
        Some(n) => {
            Check::warn(id, format!("ptrace_scope is {n}; no process may reach into another"), why, remedy)
        }
    }
}

/// A size with two digits or so.
fn about(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) if !bytes.is_multiple_of(1 << shift) => {
            let scaled = bytes as f64 / f64::from(1u32 << shift);
            format!("{scaled:.*} {unit}", usize::from(scaled < 10.0))
        }
        _ => size(bytes),
    }
}
