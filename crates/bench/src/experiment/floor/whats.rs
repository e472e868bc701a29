//! The floors, the kind of device that each belongs to, and the sizes at which they are meaningful.

use fabric::FloorKind;

/// Name of the experiment.
pub const FLOOR: &str = "floor";

/// Every floor, and its kind of device.
pub(crate) const WHATS: [(&str, FloorKind); 10] = [
    ("line", FloorKind::Memory),
    ("mailbox", FloorKind::Memory),
    ("memcpy", FloorKind::Memory),
    ("process_vm_writev", FloorKind::Memory),
    ("futex", FloorKind::Memory),
    // A socket's floor consists of system calls, but a system call alone is no floor.
    ("syscall", FloorKind::Memory),
    ("tcp", FloorKind::Sockets),
    ("tcp-sleep", FloorKind::Sockets),
    ("tcp-stream", FloorKind::Sockets),
    ("tcp-both", FloorKind::Sockets),
];

/// Bytes of the messages that represent small ones: requests of reads, atomics, wake-ups.
pub(crate) const SMALL: u64 = 8;

/// The only size at which a floor is meaningful; `None` for all.
pub(crate) fn only_size(what: &str) -> Option<u64> {
    match what {
        "line" | "mailbox" => Some(64),
        "futex" | "syscall" => Some(0),
        "tcp-sleep" => Some(SMALL),
        _ => None,
    }
}
