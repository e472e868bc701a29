//! Combining lock: the holder also does the work of threads that find the lock taken, so that they need not
//! wait.
//!
//! A thread with work publishes it, then calls [`CombiningLock::request`]. Either it gets the lock and does
//! the work, or the holder sees the request after unlocking. A full fence separates publishing the request
//! from trying the lock, and unlocking from checking for requests, so that at least one of the two sees the
//! other.

use super::Spin;
use super::atomics::*;

/// A value that one thread at a time works on.
pub struct CombiningLock<T> {
    value: Spin<T>,
    wanted: AtomicBool,
}

impl<T> CombiningLock<T> {
    /// Creates the lock, unlocked and without a request.
    pub fn new(value: T) -> Self {
        Self { value: Spin::new(value), wanted: AtomicBool::new(false) }
    }

    /// Has `work` done after this call began: by this thread now, or by the holder. Publish the work first.
    #[inline]
    pub fn request(&self, work: impl FnMut(&mut T)) {
        // An exchange, not a store: the thread that clears the request must see what every earlier requester
        // published.
        self.wanted.swap(true, Ordering::AcqRel);
        // Pairs with the fence after each unlock: the attempt to lock must not move before the request.
        fence(Ordering::SeqCst);
        self.settle(work);
    }

    /// Calls `body` if the lock is free, then `work` if another thread requested it meanwhile. `None` if the
    /// lock is taken.
    #[inline]
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> Option<R> {
        let mut held = self.value.try_lock()?;
        let result = body(&mut held);
        drop(held);
        // Pairs with the fence of `request`: the check for requests must not move before the unlock.
        fence(Ordering::SeqCst);
        self.settle(work);
        Some(result)
    }

    /// Waits for the lock, calls `body`, then `work` if another thread requested it meanwhile.
    #[inline]
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> R {
        let mut held = self.value.lock();
        let result = body(&mut held);
        drop(held);
        // As in `try_with`.
        fence(Ordering::SeqCst);
        self.settle(work);
        result
    }

    #[inline]
    fn settle(&self, mut work: impl FnMut(&mut T)) {
        while self.wanted.load(Ordering::Relaxed) {
            let Some(mut held) = self.value.try_lock() else { return };
            // Cleared by an exchange, so that everything published before any request that this covers is
            // seen.
            if self.wanted.swap(false, Ordering::AcqRel) {
                work(&mut held);
            }
            drop(held);
            // As in `try_with`: for the next iteration.
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Goal: no request is lost, and only one thread works at a time. Method: each thread publishes numbers
    /// and requests; the sum of all that was processed must match.
    #[test]
    fn every_request_is_served() {
        let shared = Arc::new((CombiningLock::new(0_u64), AtomicU64::new(0)));
        let publish = |shared: &(CombiningLock<u64>, AtomicU64)| {
            for _ in 0..20_000 {
                shared.1.fetch_add(1, Ordering::AcqRel);
                shared.0.request(|sum| *sum += shared.1.swap(0, Ordering::AcqRel));
            }
        };
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || publish(&shared))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(shared.0.with(|sum| *sum, |_| {}), 60_000);
        assert_eq!(shared.1.load(Ordering::Acquire), 0, "nothing was left behind");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: work published before a request is done when all calls have returned, whichever thread held the
    /// lock. Method: a request against a holder that took the lock for something else.
    #[test]
    fn loom_requests_are_not_lost() {
        loom::model(|| {
            let shared = Arc::new((CombiningLock::new(0), AtomicU32::new(0)));
            let other = shared.clone();
            let thread = loom::thread::spawn(move || {
                other.1.store(1, Ordering::Relaxed);
                other.0.request(|done| *done += other.1.swap(0, Ordering::Relaxed));
            });
            shared.0.try_with(|_| {}, |done| *done += shared.1.swap(0, Ordering::Relaxed));
            thread.join().unwrap();
            assert_eq!(shared.0.with(|done| *done, |_| {}), 1);
        });
    }

    /// Goal: as above, for two concurrent requests.
    #[test]
    fn loom_two_requests_are_both_served() {
        loom::model(|| {
            let shared = Arc::new((CombiningLock::new(0), AtomicU32::new(0)));
            let request = |shared: &(CombiningLock<u32>, AtomicU32)| {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.request(|done| *done += shared.1.swap(0, Ordering::Relaxed));
            };
            let other = shared.clone();
            let thread = loom::thread::spawn(move || request(&other));
            request(&shared);
            thread.join().unwrap();
            assert_eq!(shared.0.with(|done| *done, |_| {}), 2);
        });
    }
}
