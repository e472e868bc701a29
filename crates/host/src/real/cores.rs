//! The cores that this process may use, and pinning to one.

use crate::bounded;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this thread may run on, in ascending order; empty if the kernel does not report them.
pub fn allowed_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Pins the calling thread to one core.
///
/// # Errors
/// The operating system's error, for a core that does not exist or is not allowed.
pub fn pin_to_core(core: usize) -> std::io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(std::io::Error::other(format!(
            "core {core} is beyond the {} that exist",
            CpuSet::MAX_CPU
        )));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Whether `processes` processes of this host, including this one, outnumber their cores; `None` if the kernel does not
/// report the cores. The processes are assumed to be bound to different cores if there are enough cores, and otherwise
/// to have the same number of allowed cores as this one.
pub fn is_oversubscribed(processes: usize) -> Option<bool> {
    let allowed = allowed_cores().len();
    (allowed > 0).then(|| outnumber(processes, allowed, online_cores()))
}

/// The number of cores of this host that are in use; that of the allowed ones if the kernel does not report it.
pub fn online_cores() -> usize {
    let list = bounded::kernel_text("/sys/devices/system/cpu/online").ok();
    let online = list.and_then(|list| parse_core_list(&list));
    online.map_or_else(|| allowed_cores().len(), |cores| cores.len())
}

fn outnumber(processes: usize, allowed: usize, online: usize) -> bool {
    processes > allowed && processes * allowed > online
}

/// A core for another thread of a caller that is pinned to one core: the second next, as the next one often belongs to
/// the peer; the next one if there are fewer than four. `None` if the caller may run on several cores, or their number
/// is unknown.
pub fn other_core() -> Option<usize> {
    let [own] = allowed_cores()[..] else { return None };
    other_core_of(own, &bounded::kernel_text("/sys/devices/system/cpu/online").ok()?)
}

/// The numbers of a list such as `0-3` or `0,2-5`.
fn parse_core_list(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        cores.extend(first..=last.min(CpuSet::MAX_CPU));
    }
    Some(cores)
}

/// The core for another thread of a caller pinned to `own`, among the cores of a list.
fn other_core_of(own: usize, online: &str) -> Option<usize> {
    let cores = parse_core_list(online)?;
    let (at, count) = (cores.iter().position(|&core| core == own)?, cores.len());
    let other = cores[(at + if count < 4 { 1 } else { 2 }) % count];
    (other != own).then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_outnumber_cores() {
        for (processes, allowed, online, is_oversubscribed) in [
            (1, 1, 1, false),
            (2, 1, 1, true),
            (2, 2, 2, false),
            (3, 2, 2, true),
            // Each bound to its own core, to several cores, and two to each core.
            (2, 1, 2, false),
            (2, 4, 8, false),
            (4, 1, 2, true),
            // Free to run on half of the cores.
            (6, 4, 8, true),
        ] {
            assert_eq!(
                outnumber(processes, allowed, online),
                is_oversubscribed,
                "{processes} on {allowed} of {online}"
            );
        }
        assert!(is_oversubscribed(usize::MAX >> 20).is_none_or(|is_oversubscribed| is_oversubscribed));
    }

    #[test]
    fn other_core_is_second_next_or_next() {
        for (own, online, other) in [
            (0, "0\n", None),
            (0, "0-1\n", Some(1)),
            (1, "0-1\n", Some(0)),
            (1, "0-3\n", Some(3)),
            (5, "0,2-5\n", Some(2)),
            (1, "0,2-5\n", None),
            (0, "nonsense", None),
        ] {
            assert_eq!(other_core_of(own, online), other, "{own} of {online}");
        }
    }

    #[test]
    fn pin_to_core_accepts_allowed_cores_only() {
        let cores = allowed_cores();
        assert!(!cores.is_empty());
        std::thread::spawn(move || {
            pin_to_core(cores[0]).expect("an allowed core");
            assert_eq!(allowed_cores(), vec![cores[0]]);
        })
        .join()
        .expect("no panic");
        assert!(pin_to_core(usize::MAX).is_err());
    }
}
