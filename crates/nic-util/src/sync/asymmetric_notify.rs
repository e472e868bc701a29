//! [`AsymmetricNotify`]: notification for which waiters pay (membarrier(2)), and producers do not.
//!
//! A writer that publishes and then checks for waiters needs a full fence between the two, and so does a
//! waiter that announces itself and then checks what was published. That fence would be too expensive for a
//! write. So before its first write, the writer announces once that notifications will follow. A waiter that
//! sees this passes [`fence::heavy`] for both sides, and each notification needs a light fence only.

use super::atomics::*;
use super::fence;

/// In shared memory, next to an event count; all zero means that no writer notifies this way.
#[repr(C)]
#[derive(Debug)]
pub struct AsymmetricNotify(AtomicU32);

impl AsymmetricNotify {
    /// An unused one.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Called by the writer, once before its first notification. The fence separates this store from the
    /// check for waiters: a waiter that still read 0 in [`AsymmetricNotify::fence_before_wait`] has announced itself
    /// before, and the writer sees it.
    #[cold]
    pub fn announce_writer(&self) {
        self.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Called by the waiter, after its announcement (which ends with a full fence) and before its last check.
    pub fn fence_before_wait(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            fence::heavy();
        }
    }

    /// Forgets the writer of a predecessor.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use host::EventCount;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Word;

    /// Goal: neither the first nor a later notification is lost. Method: the waiter would sleep forever. In
    /// loom the light fence is a full one, so that this proves the order of steps, and not that the processor
    /// keeps it.
    #[test]
    fn loom_no_notification_is_lost() {
        loom::model(|| {
            let shared = Arc::new((AsymmetricNotify::new(), EventCount::new(), Word::new(0)));
            let writer = {
                let s = shared.clone();
                loom::thread::spawn(move || {
                    s.0.announce_writer();
                    s.2.store(1, Ordering::Relaxed);
                    fence::light();
                    s.1.notify_after_fence();
                })
            };
            let ticket = shared.1.prepare_to_wait();
            shared.0.fence_before_wait();
            if shared.2.load(Ordering::Relaxed) == 0 {
                shared.1.sleep(ticket, None);
            }
            shared.1.finish_wait();
            writer.join().unwrap();
        });
    }

    /// A first notification with no fence but `announce_writer`'s own, against a waiter. If the waiter sees the
    /// announcement, it does not sleep: outside of loom it would pass a heavy fence then and find the word.
    fn first_notification(announce_writer: fn(&AsymmetricNotify)) {
        loom::model(move || {
            let shared = Arc::new((AsymmetricNotify::new(), EventCount::new(), Word::new(0)));
            let writer = {
                let s = shared.clone();
                loom::thread::spawn(move || {
                    announce_writer(&s.0);
                    s.2.store(1, Ordering::Relaxed);
                    s.1.notify_after_fence();
                })
            };
            let ticket = shared.1.prepare_to_wait();
            let announced = shared.0.0.load(Ordering::Relaxed) != 0;
            if !announced && shared.2.load(Ordering::Relaxed) == 0 {
                shared.1.sleep(ticket, None);
            }
            shared.1.finish_wait();
            writer.join().unwrap();
        });
    }

    /// Goal: the writer sees a waiter that has not seen its announcement. Method: as above, without a fence
    /// for the notification.
    #[test]
    fn loom_waiter_sees_the_announcement_or_is_seen() {
        first_notification(AsymmetricNotify::announce_writer);
    }

    /// Goal: the fence of `announce_writer` is needed, and the model above would notice if it were removed. Method:
    /// without it the waiter sleeps forever, which loom reports.
    #[test]
    #[should_panic(expected = "exceeded maximum number of branches")]
    fn loom_waiter_is_missed_without_the_fence() {
        first_notification(|notify| notify.0.store(1, Ordering::Relaxed));
    }
}
