//! Which signals this process ignores since it was started.

use crate::bounded;

/// Whether this process was started with a signal (1 to 64) ignored; the kernel's list has a bit for each, the first for signal 1.
pub fn is_ignored(signal: i32) -> bool {
    let status = bounded::kernel_text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
