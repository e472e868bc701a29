//! [`EventCount`]: an event count, on which waiters sleep and which producers notify; it may be placed in shared
//! memory.
//!
//! A waiter registers, polls once more for what it waits for, then sleeps. A producer publishes, then notifies. A full
//! fence on both sides ensures that at least one of the two sees the other's step, so no wake-up is lost. Notifying
//! without sleepers costs that fence and one load.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Two words on a cache line of their own; all zero is a valid state without sleepers.
///
/// Shared between threads or, in shared memory, between processes. A process that dies while it sleeps leaves its
/// waiter count behind: later notifications cost a system call, results stay correct.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct EventCount {
    waiters: AtomicU32,
    ticket: AtomicU32,
}

impl EventCount {
    /// An event count without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the caller as a waiter; returns the ticket to sleep with. Poll for what you wait for *after* this,
    /// then call [`EventCount::sleep`], then [`EventCount::finish_wait`].
    pub fn prepare_to_wait(&self) -> u32 {
        let ticket = self.ticket.load(Ordering::Acquire);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence of `notify`: the sleeper's last poll must not move before its registration.
        fence(Ordering::SeqCst);
        ticket
    }

    /// Ends the wait that one [`EventCount::prepare_to_wait`] began.
    pub fn finish_wait(&self) {
        self.waiters.fetch_sub(1, Ordering::Release);
    }

    /// Whether a thread sleeps or is about to sleep. A hint only: it is not ordered with anything before the sleeper's
    /// announcement.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Wakes all sleepers. Publish what they wait for *before* this.
    pub fn notify(&self) {
        // Pairs with the fence of `prepare_to_wait`: the load of the waiter count must not move before the publication.
        fence(Ordering::SeqCst);
        self.notify_after_fence();
    }

    /// As [`EventCount::notify`], for a producer that has executed a full fence since it published.
    #[inline]
    pub fn notify_after_fence(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake_waiters();
        }
    }

    /// Whether a notification since `ticket` was drawn would end a sleep with this ticket.
    pub fn is_notified(&self, ticket: u32) -> bool {
        self.ticket.load(Ordering::Acquire) != ticket
    }

    #[cold]
    fn wake_waiters(&self) {
        self.ticket.fetch_add(1, Ordering::Release);
        self.wake();
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        use rustix::thread::futex;
        // Only a bad address or an unknown flag can fail here, and neither can occur.
        let _ = futex::wake(&self.ticket, futex::Flags::empty(), i32::MAX as u32);
    }

    /// The futex word of futex(2): it changes with every notification that has a waiter.
    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.ticket
    }

    /// Sleeps until a notification, the end of `limit`, a signal, or a spurious wake-up.
    #[cfg(not(loom))]
    pub fn sleep(&self, ticket: u32, limit: Option<std::time::Duration>) {
        use rustix::thread::futex;
        let timeout = limit.map(|d| futex::Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        // Every error (a notification in between, a signal, the limit) means: poll again.
        let _ = futex::wait(&self.ticket, futex::Flags::empty(), ticket, timeout.as_ref());
    }

    #[cfg(loom)]
    fn wake(&self) {}

    /// Model of a sleep for loom: yields until the ticket has changed.
    #[cfg(loom)]
    pub fn sleep(&self, ticket: u32, _limit: Option<std::time::Duration>) {
        while !self.is_notified(ticket) {
            loom::thread::yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: no interleaving loses a wake-up. Method: a sleeper that would wait for ever if one were lost, which loom
    /// reports as a deadlock or an exceeded branch bound.
    #[test]
    fn loom_no_wakeup_is_lost() {
        loom::model(|| {
            let shared = Arc::new((EventCount::new(), AtomicU32::new(0)));
            let producer = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.store(1, Ordering::Relaxed);
                    shared.0.notify();
                })
            };
            let ticket = shared.0.prepare_to_wait();
            if shared.1.load(Ordering::Relaxed) == 0 {
                shared.0.sleep(ticket, None);
            }
            shared.0.finish_wait();
            producer.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn has_waiters_is_true_until_the_last_wait_ends() {
        let wakeup = EventCount::new();
        assert!(!wakeup.has_waiters());
        let (first, _second) = (wakeup.prepare_to_wait(), wakeup.prepare_to_wait());
        wakeup.finish_wait();
        assert!(wakeup.has_waiters() && !wakeup.is_notified(first));
        wakeup.notify();
        assert!(wakeup.is_notified(first));
        wakeup.finish_wait();
        assert!(!wakeup.has_waiters());
    }
}
