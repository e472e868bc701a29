//! Lap marks: mark a ring slot as filled without a shared index.
//!
//! The upper half of a slot's first word holds the lap in which it was filled (1 for the first), so that one
//! cache line carries both the notification and the content. A producer that dies half-way has published
//! nothing.

use super::atomics::*;

/// The lap mark of position `index` in a ring of `1 << shift` slots.
#[inline]
pub fn lap(index: u64, shift: u32) -> u32 {
    ((index >> shift) as u32).wrapping_add(1)
}

/// Publishes a slot: a reader that sees the mark sees everything written before. `low` is stored with it.
#[inline]
pub fn publish(word: &AtomicU64, lap: u32, low: u32) {
    word.store(u64::from(lap) << 32 | u64::from(low), Ordering::Release);
}

/// The low half of a slot's word if the slot is filled in this lap.
#[inline]
pub fn filled(word: &AtomicU64, lap: u32) -> Option<u32> {
    let w = word.load(Ordering::Acquire);
    ((w >> 32) as u32 == lap).then_some(w as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slot_is_filled_in_its_lap_only() {
        let word = AtomicU64::new(0);
        assert_eq!(filled(&word, lap(3, 2)), None);
        publish(&word, lap(3, 2), 9);
        assert_eq!(filled(&word, lap(3, 2)), Some(9));
        assert_eq!(filled(&word, lap(7, 2)), None, "the next lap");
        assert_eq!(
            lap(u64::from(u32::MAX) << 2, 2),
            0,
            "wraps after 2^32 laps; distinct from its neighbours"
        );
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: the content is complete when the mark is seen, and a slot is not refilled before it was read.
    #[test]
    fn loom_content_is_complete_when_the_mark_is_seen() {
        loom::model(|| {
            let s = Arc::new((AtomicU64::new(0), loom::cell::UnsafeCell::new(0_u32), AtomicU32::new(0)));
            let producer = {
                let s = s.clone();
                loom::thread::spawn(move || {
                    for index in 0..2_u64 {
                        while index > u64::from(s.2.load(Ordering::Acquire)) {
                            loom::thread::yield_now();
                        }
                        // SAFETY: the consumer has read the slot (its count says so).
                        s.1.with_mut(|p| unsafe { *p = index as u32 + 10 });
                        publish(&s.0, lap(index, 0), 0);
                    }
                })
            };
            for index in 0..2_u64 {
                while filled(&s.0, lap(index, 0)).is_none() {
                    loom::thread::yield_now();
                }
                // SAFETY: published, and the producer waits for the count.
                assert_eq!(s.1.with(|p| unsafe { *p }), index as u32 + 10);
                s.2.store(index as u32 + 1, Ordering::Release);
            }
            producer.join().unwrap();
        });
    }
}
