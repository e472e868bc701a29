//! Polls the rails' completion queues behind a completion queue and passes the completions to their queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::Lock;
use verbs::{Wc, WcOpcode};

use crate::completion::completions::{CompletionSink, Completions};
use crate::completion::number_cache::NumberCache;
use crate::qp::QpInner;
use crate::qp_actions::QpActions;
use crate::shared::DeviceShared;

/// Completions taken from a rail at a time.
const BATCH: usize = 16;

/// A rail without outstanding requests is polled once in this many turns.
const IDLE_TURNS: u32 = 64;

/// A queue pair, and the action that it requests once the rail's queue is unlocked.
pub(crate) type QpWithActions = (Arc<QpInner>, QpActions);

/// A completion queue with the state of its pollers.
pub(crate) struct PolledCq {
    shared: Arc<DeviceShared>,
    pub(crate) completions: Arc<Completions>,
    /// By rail. The thread that takes completions from a rail holds this lock: one at a time, so that the order is
    /// kept.
    caches: Vec<Lock<NumberCache<QpInner>>>,
    /// How often a thread has finished taking from each rail; changed by the holder of the lock in `caches`.
    poll_counts: Vec<AtomicU64>,
    turn: AtomicU32,
    /// The rail that is polled first.
    first: AtomicUsize,
    /// A thread is handling a report; the next completion must be reported to the program.
    handling_report: AtomicBool,
    owes_report: AtomicBool,
    /// A thread found a rail locked; in virtual time it may sleep until it is signaled.
    was_skipped: AtomicBool,
    /// Queue pairs were dropped, and the caches may still hold them.
    must_clear: AtomicBool,
    /// A rail has reported, and the report has not been checked against the program's request.
    reported: AtomicBool,
}

impl PolledCq {
    pub(crate) fn new(shared: &Arc<DeviceShared>, completions: Completions) -> Self {
        Self {
            shared: shared.clone(),
            completions: Arc::new(completions),
            caches: shared.rails.iter().map(|_| Lock::new(NumberCache::new())).collect(),
            poll_counts: shared.rails.iter().map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicU32::new(0),
            first: AtomicUsize::new(0),
            handling_report: AtomicBool::new(false),
            owes_report: AtomicBool::new(false),
            was_skipped: AtomicBool::new(false),
            must_clear: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// The rails to take from, in turn: those with outstanding requests, and once in a while the others.
    #[inline]
    pub(crate) fn due_rails(&self) -> impl Iterator<Item = usize> {
        // In real time, pollers always help the rails' threads: a thread that is awake need not have a core. In virtual
        // time, pollers take completions only after a connection has ended.
        let polled_by_threads = !self.shared.workers.is_empty()
            && self.shared.host.node().is_some()
            && !self.completions.has_conn_ended();
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        let (first, count) = (self.first.load(Ordering::Relaxed), self.caches.len());
        let all = if polled_by_threads { 0..0 } else { 0..count };
        all.map(move |step| if first + step < count { first + step } else { first + step - count })
            .filter(move |&rail| self.completions.has_outstanding(rail) || turn.is_multiple_of(IDLE_TURNS))
    }

    /// Clears the caches of queue pairs: a queue pair that can no longer be found is about to be dropped.
    pub(crate) fn clear_caches(&self) {
        let host = &self.shared.host;
        if host.node().is_some() {
            // The thread that takes from a rail may be suspended for long, or for ever; it checks `must_clear` when its
            // turn ends.
            return self.clear_unlocked_caches();
        }
        self.caches.iter().for_each(|cache| cache.lock(host).clear());
    }

    /// There was no room for more after this rail: the others come first next time.
    pub(crate) fn start_after(&self, rail: usize) {
        self.first.store((rail + 1) % self.caches.len(), Ordering::Relaxed);
    }

    /// Takes completions from a rail, until there are none or no more room; `find` finds the queue pair of a lane.
    /// Requested actions are added to `actions`. Returns whether there were any; `None` if another thread takes from
    /// the rail.
    #[inline]
    pub(crate) fn poll_rail(
        &self,
        rail: usize,
        sink: &mut CompletionSink<'_>,
        find: impl for<'k> Fn(&'k mut NumberCache<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        actions: &mut Vec<QpWithActions>,
    ) -> Option<bool> {
        let Some(mut cache) = self.caches[rail].try_lock(&self.shared.host) else {
            self.was_skipped.store(true, Ordering::Relaxed);
            return None;
        };
        let any = match sink.room() {
            1 => self.poll_batches::<1>(rail, sink, &mut cache, find, actions),
            _ => self.poll_batches::<BATCH>(rail, sink, &mut cache, find, actions),
        };
        self.poll_counts[rail].store(self.poll_count(rail).wrapping_add(1), Ordering::Release);
        drop(cache);
        if self.must_clear.load(Ordering::Relaxed) && self.must_clear.swap(false, Ordering::Relaxed) {
            self.clear_unlocked_caches();
        }
        Some(any)
    }

    /// As [`PolledCq::clear_caches`], but only for caches that are not locked; the holders clear the others afterwards.
    #[cold]
    fn clear_unlocked_caches(&self) {
        for cache in &self.caches {
            match cache.try_lock(&self.shared.host) {
                Some(mut cache) => cache.clear(),
                None => self.must_clear.store(true, Ordering::Relaxed),
            }
        }
    }

    fn poll_count(&self, rail: usize) -> u64 {
        self.poll_counts[rail].load(Ordering::Acquire)
    }

    /// Returns a function that reports whether some thread has taken from each rail with outstanding requests since
    /// this call. In virtual time other ranks may hold a rail whenever this one tries, so that waiting for an unlocked
    /// rail could last for ever.
    pub(crate) fn polled_since_now(&self) -> impl Fn() -> bool + '_ {
        // The second turn that ends from now on began after this call.
        let wanted: Vec<u64> =
            (0..self.poll_counts.len()).map(|rail| self.poll_count(rail).wrapping_add(2)).collect();
        move || {
            wanted.iter().enumerate().all(|(rail, &wanted)| {
                !self.completions.has_outstanding(rail)
                    || self.poll_count(rail).wrapping_sub(wanted) < u64::MAX / 2
            })
        }
    }

    /// Takes at most `N` completions at a time.
    #[inline]
    fn poll_batches<const N: usize>(
        &self,
        rail: usize,
        sink: &mut CompletionSink<'_>,
        cache: &mut NumberCache<QpInner>,
        find: impl for<'k> Fn(&'k mut NumberCache<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        actions: &mut Vec<QpWithActions>,
    ) -> bool {
        let (mut wcs, mut any) = ([Wc::default(); N], false);
        while !sink.is_full() {
            let most = sink.room().min(N);
            // If a rail's queue overran, its queue pairs have failed, which their state shows.
            let count = self.completions.rail_cq(rail).poll(&mut wcs[..most]).unwrap_or(0);
            any |= count > 0;
            for wc in &wcs[..count] {
                // A dropped queue pair completes nothing; dropping it also ended its outstanding requests.
                let Some(qp) = find(cache, wc.qp_num) else { continue };
                let requested = match wc.opcode {
                    WcOpcode::Recv | WcOpcode::RecvWriteImm => qp.on_received(rail, wc, sink),
                    _ => qp.on_sent(rail, wc, sink),
                };
                if requested != QpActions::default() {
                    actions.push((qp.clone(), requested));
                }
            }
            if count < most {
                break;
            }
        }
        any
    }

    /// Whether a rail that had no completions must be polled once more: another thread relied on this one, and the last
    /// completion may have been missed.
    #[inline]
    pub(crate) fn must_poll_again(&self) -> bool {
        if !self.completions.can_report() {
            return false;
        }
        // Either this thread sees that a report is owed, or the thread that owes it has found the rail unlocked.
        fence(Ordering::SeqCst);
        self.owes_report.load(Ordering::SeqCst)
    }

    /// Records that a rail has been polled, and whether there were completions.
    #[inline]
    pub(crate) fn on_polled(&self, any: bool) {
        if any && self.owes_report.load(Ordering::SeqCst) && self.owes_report.swap(false, Ordering::SeqCst) {
            self.reported.store(true, Ordering::SeqCst);
        }
        // This matters only in virtual time, where one thing happens at a time.
        let was_skipped =
            self.was_skipped.load(Ordering::Relaxed) && self.was_skipped.swap(false, Ordering::Relaxed);
        if was_skipped || (any && !self.shared.workers.is_empty()) {
            self.shared.host.signal();
        }
    }

    /// Handles a report by a rail's queue.
    pub(crate) fn on_report(&self) {
        self.completions.on_rail_report();
        self.reported.store(true, Ordering::SeqCst);
    }

    /// Reports to the program if the rails' reports satisfy its request; `take` takes the rails' completions into the
    /// ring.
    #[inline]
    pub(crate) fn handle_reports(&self, mut take: impl FnMut()) {
        while self.reported.load(Ordering::SeqCst) && !self.handling_report.swap(true, Ordering::SeqCst) {
            if self.reported.swap(false, Ordering::SeqCst) && !self.completions.notify_if_due() {
                // The report was for a stripe, or for a request of the device's own: the program's completion is still
                // to come, or came before the queues were armed again. Or another thread has taken it, and checks
                // `owes_report` afterwards.
                self.completions.arm_rails(false);
                self.owes_report.store(true, Ordering::SeqCst);
                // A thread that holds completions of a rail finishes, and checks whether a report is owed.
                fence(Ordering::SeqCst);
                take();
                if self.completions.notify_if_due() {
                    self.owes_report.store(false, Ordering::SeqCst);
                }
            }
            self.handling_report.store(false, Ordering::SeqCst);
        }
    }
}
