//! [`Busy`]: how an initiator tells that it is inside somebody's memory, and how the owner waits until it is out.
//!
//! The initiator sets the word, looks whether the access is (still) allowed, copies, clears the word. The owner
//! takes the right away, then waits until the word is clear. Either the initiator sees that the right is gone
//! or the owner sees the initiator inside.

use super::atomics::*;
use super::fence;

/// One initiator's word; lies in shared memory, all zero is "outside".
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Busy(AtomicU32);

impl Busy {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Enters; look at the right after this.
    #[inline]
    pub(crate) fn enter(&self) {
        self.0.store(1, Ordering::Relaxed);
        fence::light();
    }

    /// Leaves, after the last access.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The owner's view, after it took the right away and passed [`fence::heavy`].
    pub(crate) fn is_inside(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    /// Goal: no access after the owner has finished waiting. Method: the "memory" is a loom cell that the owner
    /// writes after the wait; loom reports any access that is not ordered before it.
    #[test]
    fn loom_nobody_is_inside_after_the_wait() {
        loom::model(|| {
            let shared = Arc::new((Busy::new(), Word::new(1), loom::cell::UnsafeCell::new(0_u32)));
            let initiator = {
                let s = shared.clone();
                loom::thread::spawn(move || {
                    s.0.enter();
                    if s.1.load(Ordering::Acquire) == 1 {
                        // SAFETY: allowed, and the owner waits for us.
                        s.2.with_mut(|p| unsafe { *p += 1 });
                    }
                    s.0.leave();
                })
            };
            shared.1.store(0, Ordering::Relaxed);
            fence::heavy();
            while shared.0.is_inside() {
                loom::thread::yield_now();
            }
            // SAFETY: nobody may be inside any more.
            shared.2.with_mut(|p| unsafe { *p += 1 });
            initiator.join().unwrap();
        });
    }
}
