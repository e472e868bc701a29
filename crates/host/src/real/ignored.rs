//! Signals that this process was started with as ignored.

use crate::bounded;

/// Whether this process was started with a signal (1 to 64) ignored. The kernel's mask has one bit for each signal, the
/// lowest for signal 1.
pub fn is_ignored(signal: i32) -> bool {
    let status = bounded::kernel_text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
