//! How many queue pairs there are, and giving the memory of a crowd back when it has gone.
//!
//! A queue pair takes its rings and its state from malloc(3). glibc returns what is freed to the system only at the end of a
//! heap: one small piece above it, of whomever, and all below stays resident. After 8,192 queue pairs that were 450 MB. So a
//! device's thread has it look for whole free pages when half of a crowd has gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Fewer queue pairs than that are not worth the look, which takes milliseconds.
const CROWD: usize = 512;

/// The queue pairs of a device.
#[derive(Debug, Default)]
pub(crate) struct Tide {
    now: AtomicUsize,
    /// The most since the last ebb.
    high: AtomicUsize,
    /// Nobody has given back yet what an ebb has left.
    ebbed: AtomicBool,
}

impl Tide {
    /// One more.
    pub(crate) fn rise(&self) {
        let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
        self.high.fetch_max(now, Ordering::AcqRel);
    }

    /// One less; whether that makes an ebb.
    pub(crate) fn fall(&self) -> bool {
        let now = self.now.fetch_sub(1, Ordering::AcqRel) - 1;
        let high = self.high.load(Ordering::Acquire);
        let is_ebb = now <= high / 2
            && high - now >= CROWD
            && self.high.compare_exchange(high, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ebb {
            self.ebbed.store(true, Ordering::Release);
        }
        is_ebb
    }

    /// After an ebb, once: gives free memory back to the system.
    pub(crate) fn give_back(&self) {
        if self.ebbed.swap(false, Ordering::AcqRel) {
            trim();
        }
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it looks at free memory only, under the allocator's own locks. Test: `crowds` of the siege.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves, or not at all.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_goes_ebbs_a_few_times_and_few_never_do() {
        let ebbs = |count: usize| {
            let tide = Tide::default();
            (0..count).for_each(|_| tide.rise());
            (0..count).filter(|_| tide.fall()).count()
        };
        assert_eq!((ebbs(CROWD - 1), ebbs(CROWD), ebbs(8192)), (0, 1, 5));
    }
}
