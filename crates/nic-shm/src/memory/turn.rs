//! Turns at atomics on the private memory of a device's process: its users pass one by one, whichever way they reach the
//! memory. A word in the device's header says who has the turn.
//!
//! Whoever has it is inside ([`crate::memory::layout::PeerWords`]) before, and leaves after. So a holder that is not inside has lost
//! its turn or never had it: it died, its queue pair is gone, or the word is a lie. The owner's NIC thread clears the word
//! then; whoever waits for long asks it to look.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::layout::Header;
use crate::memory::segment::Map;
use nic_util::sync::fence;

/// The turn, given back when dropped.
pub(crate) struct Turn<'m> {
    word: &'m AtomicU64,
    mine: u64,
}

impl<'m> Turn<'m> {
    /// For the user that comes over queue pair `index` of the device, for the `count`th time; `None` if somebody else has it for long.
    pub(crate) fn take(map: &'m Map, index: usize, count: u32) -> Option<Self> {
        let word = holder(map)?;
        // The count tells two turns of one holder apart, for whoever clears the word.
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Taken away, if it was held to be dead.
        let _ = self.word.compare_exchange(self.mine, 0, Ordering::Release, Ordering::Relaxed);
    }
}

fn holder(map: &Map) -> Option<&AtomicU64> {
    map.get::<Header>(0).map(|header| &header.atomic_holder.0)
}

/// Takes the turn from a holder that is not inside (any more), as `is_inside` says of a queue pair's number. `seen` is who had it
/// at the last look. On the NIC thread, as the other user of queue pairs' turns there, [`crate::receive::serving`]. Whether to look again
/// soon.
pub(crate) fn look_at(map: &Map, seen: &AtomicU64, is_inside: impl Fn(usize) -> bool) -> bool {
    let Some(word) = holder(map) else { return false };
    let held = word.load(Ordering::Acquire);
    // Most are gone by the next look.
    let stays = seen.swap(held, Ordering::Relaxed) == held;
    if held == 0 || !stays {
        return held != 0;
    }
    let index = (held as u32 as usize).wrapping_sub(1);
    if !is_inside(index) {
        // Who enters from now on takes another turn than this; who entered before is seen now.
        fence::heavy();
        if !is_inside(index) {
            let _ = word.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
    true
}

/// The peer of a queue pair is inside nothing any more: a turn that it had died with it.
pub(crate) fn free_of(map: &Map, index: usize) {
    if let Some(word) = holder(map) {
        let its = |held: u64| (held as u32 as usize == index + 1).then_some(0);
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, its);
    }
}
