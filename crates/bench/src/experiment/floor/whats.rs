//! The floors, the kind of device that each belongs to, and the sizes at which they are meaningful.

use fabric::Baseline;

/// Name of the experiment.
pub const FLOOR: &str = "floor";

/// Every floor, and its kind of device.
pub(crate) const WHATS: [(&str, Baseline); 10] = [
    ("line", Baseline::Memory),
    ("mailbox", Baseline::Memory),
    ("memcpy", Baseline::Memory),
    ("process_vm_writev", Baseline::Memory),
    ("futex", Baseline::Memory),
    // A socket's floor consists of system calls, but a system call alone is no floor.
    ("syscall", Baseline::Memory),
    ("tcp", Baseline::Sockets),
    ("tcp-sleep", Baseline::Sockets),
    ("tcp-stream", Baseline::Sockets),
    ("tcp-both", Baseline::Sockets),
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
