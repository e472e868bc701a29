//! Random numbers of the kernel's, and the one that this process was born with.

use std::sync::OnceLock;

/// A random number that this process was born with; it stands still in memory, for peers to probe.
pub(super) fn process_token() -> &'static u64 {
    static TOKEN: OnceLock<u64> = OnceLock::new();
    TOKEN.get_or_init(random)
}

/// 64 random bits from the kernel; never 0.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    // The kernel's generator is always ready by the time programs run; a short read leaves zeros, handled below.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes) | 1
}
