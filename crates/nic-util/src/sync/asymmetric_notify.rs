//! [`AsymmetricNotify`]: notification for which waiters pay (membarrier(2)), and producers do not.
//!
//! A writer that publishes and then looks for sleepers needs a full fence between the two, and so does a sleeper that announces
//! itself and then looks for what was published. That fence would cost a write more than it may. So the first write says once
//! that notifications will follow. A sleeper that sees this passes [`fence::heavy`] for both sides, and each notification needs
//! a light fence only.

use super::atomics::*;
use super::fence;

/// Beside a bell, in shared memory; all zero is "nobody rings so".
#[repr(C)]
#[derive(Debug)]
pub struct AsymmetricNotify(AtomicU32);

impl AsymmetricNotify {
    /// One that nobody has used.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The writer, once before its first ring. The fence stands between this store and the look for sleepers: a sleeper that
    /// still read 0 in [`AsymmetricNotify::settle`] had announced itself before, and is seen.
    #[cold]
    pub fn introduce(&self) {
        self.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The sleeper, after its announcement (which ends with a full fence) and before its last look.
    pub fn settle(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            fence::heavy();
        }
    }

    /// Forgets who rang a predecessor's bell.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use host::Bell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    /// Goal: neither the first nor a later ring is lost. Method: the sleeper would wait for ever; in loom the light fence is a
    /// full one, so that this proves the order of steps, and not that the processor keeps it.
    #[test]
    fn loom_no_knock_is_lost() {
        loom::model(|| {
            let shared = Arc::new((AsymmetricNotify::new(), Bell::new(), Word::new(0)));
            let writer = {
                let s = shared.clone();
                loom::thread::spawn(move || {
                    s.0.introduce();
                    s.2.store(1, Ordering::Relaxed);
                    fence::light();
                    s.1.ring_after_fence();
                })
            };
            let ticket = shared.1.announce();
            shared.0.settle();
            if shared.2.load(Ordering::Relaxed) == 0 {
                shared.1.sleep(ticket, None);
            }
            shared.1.retract();
            writer.join().unwrap();
        });
    }

    /// A first knock with no fence but `introduce`'s own, beside a sleeper that goes on only if it saw the knock: that it would
    /// pass a heavy fence then, which no loom knows, and find the word.
    fn first_knock(introduce: fn(&AsymmetricNotify)) {
        loom::model(move || {
            let shared = Arc::new((AsymmetricNotify::new(), Bell::new(), Word::new(0)));
            let writer = {
                let s = shared.clone();
                loom::thread::spawn(move || {
                    introduce(&s.0);
                    s.2.store(1, Ordering::Relaxed);
                    s.1.ring_after_fence();
                })
            };
            let ticket = shared.1.announce();
            let knocked = shared.0.0.load(Ordering::Relaxed) != 0;
            if !knocked && shared.2.load(Ordering::Relaxed) == 0 {
                shared.1.sleep(ticket, None);
            }
            shared.1.retract();
            writer.join().unwrap();
        });
    }

    /// Goal: a sleeper that has not seen the knock is seen by the writer. Method: as above, without a fence for the ring.
    #[test]
    fn loom_a_sleeper_sees_the_knock_or_is_seen() {
        first_knock(AsymmetricNotify::introduce);
    }

    /// Goal: the fence of `introduce` is needed, and the model above would notice if it went. Method: without it the sleeper looks
    /// for its bell for ever, which loom gives up on.
    #[test]
    #[should_panic(expected = "exceeded maximum number of branches")]
    fn loom_without_the_fence_a_sleeper_is_missed() {
        first_knock(|knock| knock.0.store(1, Ordering::Relaxed));
    }
}
