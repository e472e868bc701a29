//! Lock for atomics on the private memory of a device's process: its users take turns, whichever way they
//! access the memory. A word in the device's header names the holder.
//!
//! A holder marks itself inside ([`crate::memory::layout::PeerWords`]) before it takes the lock, and outside
//! after it has released it. So a holder that is not inside has lost the lock or never had it: it died, its
//! queue pair was destroyed, or the word is forged. The owner's NIC thread then clears the word; a waiter
//! wakes that thread when its wait takes too long.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::layout::Header;
use crate::memory::segment::MappedSegment;
use nic_util::sync::fence;

/// The held lock, released when dropped.
pub(crate) struct AtomicLock<'m> {
    word: &'m AtomicU64,
    mine: u64,
}

impl<'m> AtomicLock<'m> {
    /// Takes the lock for queue pair `index` of the device, for the `count`th time; `None` if it stays taken
    /// for long.
    pub(crate) fn try_lock(map: &'m MappedSegment, index: usize, count: u32) -> Option<Self> {
        let word = holder(map)?;
        // The count distinguishes two acquisitions by one holder, for the thread that clears the word.
        let mine = u64::from(count) << 32 | (index as u64 + 1);
        (0..1000)
            .any(|_| {
                let free = word.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if !free {
                    std::hint::spin_loop();
                }
                free
            })
            .then_some(Self { word, mine })
    }
}

impl Drop for AtomicLock<'_> {
    fn drop(&mut self) {
        // This fails if the lock was taken away because the holder seemed dead.
        let _ = self.word.compare_exchange(self.mine, 0, Ordering::Release, Ordering::Relaxed);
    }
}

fn holder(map: &MappedSegment) -> Option<&AtomicU64> {
    map.get::<Header>(0).map(|header| &header.atomic_holder.0)
}

/// Takes the lock away from a holder that is not inside (any more), according to `is_inside`, which gets a
/// queue pair's number. `seen` is the holder at the last check. Must run on the NIC thread:
/// [`crate::receive::service_server`] holds the lock there for peers that are not inside. Returns whether to check
/// again soon.
pub(crate) fn release_if_dead(
    map: &MappedSegment,
    seen: &AtomicU64,
    is_inside: impl Fn(usize) -> bool,
) -> bool {
    let Some(word) = holder(map) else { return false };
    let held = word.load(Ordering::Acquire);
    // Most holders have released the lock by the next check.
    let stays = seen.swap(held, Ordering::Relaxed) == held;
    if held == 0 || !stays {
        return held != 0;
    }
    let index = (held as u32 as usize).wrapping_sub(1);
    if !is_inside(index) {
        // A peer that enters from now on uses another count; an earlier entry is visible after the fence.
        fence::heavy();
        if !is_inside(index) {
            let _ = word.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
    true
}

/// Releases the lock if the peer of a queue pair held it: the peer is not inside any more, so it died with
/// the lock held.
pub(crate) fn release_if_held_by(map: &MappedSegment, index: usize) {
    if let Some(word) = holder(map) {
        let its = |held: u64| (held as u32 as usize == index + 1).then_some(0);
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, its);
    }
}
