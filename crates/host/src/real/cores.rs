//! Which cores this process may use, and pinning to one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this thread may run on, in ascending order; empty where the kernel will not say.
pub fn allowed_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Pins the calling thread to one core.
///
/// # Errors
/// The operating system's, for a core that does not exist or is not allowed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_an_allowed_core_and_refuses_one_that_is_not() {
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
