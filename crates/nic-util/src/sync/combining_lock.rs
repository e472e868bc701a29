//! A lock whose holder does the work of those who find it taken: nobody waits for a turn that another could take.
//!
//! Whoever has work publishes it, then calls [`CombiningLock::request`]. Either it gets the lock and works, or the holder sees the
//! request after letting go. A full fence stands between publishing the request and trying the lock, and between letting
//! the lock go and looking for requests, so that at least one of the two sees the other.

use super::Spin;
use super::atomics::*;

/// A value that is worked on by one thread at a time.
pub struct CombiningLock<T> {
    value: Spin<T>,
    wanted: AtomicBool,
}

impl<T> CombiningLock<T> {
    /// One that nobody works on yet.
    pub fn new(value: T) -> Self {
        Self { value: Spin::new(value), wanted: AtomicBool::new(false) }
    }

    /// Has `work` done after this call began: now, or by whoever holds the value. Publish what is to be worked on first.
    #[inline]
    pub fn request(&self, work: impl FnMut(&mut T)) {
        // An exchange, not a store: who takes a request back must see what every requester before the last one published.
        self.wanted.swap(true, Ordering::AcqRel);
        // Pairs with the fence behind each letting go: the attempt to lock must not move before the request.
        fence(Ordering::SeqCst);
        self.settle(work);
    }

    /// Does `body` if nobody holds the value, and `work` if somebody asked for it meanwhile.
    #[inline]
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> Option<R> {
        let mut held = self.value.try_lock()?;
        let result = body(&mut held);
        drop(held);
        // Pairs with the fence of `request`: the look for requests must not move before letting go.
        fence(Ordering::SeqCst);
        self.settle(work);
        Some(result)
    }

    /// Does `body` when it is this thread's turn, and `work` if somebody asked for it meanwhile.
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
            // Taken back by an exchange, so that everything published before any request that this covers is seen.
            if self.wanted.swap(false, Ordering::AcqRel) {
                work(&mut held);
            }
            drop(held);
            // As in `try_with`: for the next turn of this loop.
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Goal: no request is lost and no two threads work at once. Method: each publishes numbers and requests; the sum of
    /// what was worked off must come out.
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

    /// Goal: what is published before a request is worked off by the time all calls have returned, whoever held the value
    /// when. Method: a request against a holder that came for something else.
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

    /// Goal: the same for two requests at once.
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
