//! Polls the rails' completion queues behind a completion queue and passes the completions to their queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::Lock;
use verbs::{Wc, WcOpcode};

use crate::completion::completions::{Completions, Sink};
use crate::completion::known::NumberCache;
use crate::qp::QpInner;
use crate::shared::Shared;
use crate::wants::Wants;

/// Completions taken from a rail at a time.
const BATCH: usize = 16;

/// A rail without outstanding requests is polled once in this many turns.
const IDLE_TURNS: u32 = 64;

/// A queue pair, and the action that it requests once the rail's queue is unlocked.
pub(crate) type QpWants = (Arc<QpInner>, Wants);

/// A completion queue with the state of its pollers.
pub(crate) struct Polling {
    shared: Arc<Shared>,
    pub(crate) completions: Arc<Completions>,
    /// By rail. The thread that takes completions from a rail holds this lock: one at a time, so that the order is
    /// kept.
    caches: Vec<Lock<NumberCache<QpInner>>>,
    /// How often a thread has finished taking from each rail; changed by the holder of the lock in `caches`.
    turns: Vec<AtomicU64>,
    turn: AtomicU32,
    /// The rail that is polled first.
    first: AtomicUsize,
    /// A thread is handling a report; the next completion must be reported to the program.
    handling_report: AtomicBool,
    owes_report: AtomicBool,
    /// A thread found a rail locked; in virtual time it may sleep until it is signaled.
    was_skipped: AtomicBool,
    /// Queue pairs were dropped, and the caches may still hold them.
    forgets: AtomicBool,
    /// A rail has reported, and the report has not been checked against the program's request.
    reported: AtomicBool,
}

impl Polling {
    pub(crate) fn new(shared: &Arc<Shared>, completions: Completions) -> Self {
        Self {
            shared: shared.clone(),
            completions: Arc::new(completions),
            caches: shared.rails.iter().map(|_| Lock::new(NumberCache::new())).collect(),
            turns: shared.rails.iter().map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicU32::new(0),
            first: AtomicUsize::new(0),
            handling_report: AtomicBool::new(false),
            owes_report: AtomicBool::new(false),
            was_skipped: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
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
            && !self.completions.has_seen_end();
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        let (first, count) = (self.first.load(Ordering::Relaxed), self.caches.len());
        let all = if polled_by_threads { 0..0 } else { 0..count };
        all.map(move |step| if first + step < count { first + step } else { first + step - count })
            .filter(move |&rail| self.completions.is_expecting(rail) || turn.is_multiple_of(IDLE_TURNS))
    }

    /// Clears the caches of queue pairs: a queue pair that can no longer be found is about to be dropped.
    pub(crate) fn forget(&self) {
        let host = &self.shared.host;
        if host.node().is_some() {
            // The thread that takes from a rail may be suspended for long, or for ever; it checks `forgets` when its
            // turn ends.
            return self.forget_free();
        }
        self.caches.iter().for_each(|cache| cache.lock(host).forget());
    }

    /// There was no room for more after this rail: the others come first next time.
    pub(crate) fn has_stopped_at(&self, rail: usize) {
        self.first.store((rail + 1) % self.caches.len(), Ordering::Relaxed);
    }

    /// Takes completions from a rail, until there are none or no more room; `find` finds the queue pair of a lane.
    /// Requested actions are added to `asked`. Returns whether there were any; `None` if another thread takes from the
    /// rail.
    #[inline]
    pub(crate) fn take(
        &self,
        rail: usize,
        sink: &mut Sink<'_>,
        find: impl for<'k> Fn(&'k mut NumberCache<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        asked: &mut Vec<QpWants>,
    ) -> Option<bool> {
        let Some(mut cache) = self.caches[rail].try_lock(&self.shared.host) else {
            self.was_skipped.store(true, Ordering::Relaxed);
            return None;
        };
        let any = match sink.room() {
            1 => self.take_all::<1>(rail, sink, &mut cache, find, asked),
            _ => self.take_all::<BATCH>(rail, sink, &mut cache, find, asked),
        };
        self.turns[rail].store(self.turns_of(rail).wrapping_add(1), Ordering::Release);
        drop(cache);
        if self.forgets.load(Ordering::Relaxed) && self.forgets.swap(false, Ordering::Relaxed) {
            self.forget_free();
        }
        Some(any)
    }

    /// As [`Polling::forget`], but only for caches that are not locked; the holders clear the others afterwards.
    #[cold]
    fn forget_free(&self) {
        for cache in &self.caches {
            match cache.try_lock(&self.shared.host) {
                Some(mut cache) => cache.forget(),
                None => self.forgets.store(true, Ordering::Relaxed),
            }
        }
    }

    fn turns_of(&self, rail: usize) -> u64 {
        self.turns[rail].load(Ordering::Acquire)
    }

    /// Returns a function that reports whether some thread has taken from each rail with outstanding requests since
    /// this call. In virtual time other ranks may hold a rail whenever this one tries, so that waiting for an unlocked
    /// rail could last for ever.
    pub(crate) fn next_turns(&self) -> impl Fn() -> bool + '_ {
        // The second turn that ends from now on began after this call.
        let wanted: Vec<u64> =
            (0..self.turns.len()).map(|rail| self.turns_of(rail).wrapping_add(2)).collect();
        move || {
            wanted.iter().enumerate().all(|(rail, &wanted)| {
                !self.completions.is_expecting(rail)
                    || self.turns_of(rail).wrapping_sub(wanted) < u64::MAX / 2
            })
        }
    }

    /// Takes at most `N` completions at a time.
    #[inline]
    fn take_all<const N: usize>(
        &self,
        rail: usize,
        sink: &mut Sink<'_>,
        cache: &mut NumberCache<QpInner>,
        find: impl for<'k> Fn(&'k mut NumberCache<QpInner>, u32) -> Option<&'k Arc<QpInner>>,
        asked: &mut Vec<QpWants>,
    ) -> bool {
        let (mut wcs, mut any) = ([Wc::default(); N], false);
        while !sink.is_full() {
            let most = sink.room().min(N);
            // If a rail's queue overran, its queue pairs have failed, which their state shows.
            let count = self.completions.on(rail).poll(&mut wcs[..most]).unwrap_or(0);
            any |= count > 0;
            for wc in &wcs[..count] {
                // A dropped queue pair completes nothing; dropping it also ended its outstanding requests.
                let Some(qp) = find(cache, wc.qp_num) else { continue };
                let wants = match wc.opcode {
                    WcOpcode::Recv | WcOpcode::RecvWriteImm => qp.on_received(rail, wc, sink),
                    _ => qp.on_sent(rail, wc, sink),
                };
                if wants != Wants::default() {
                    asked.push((qp.clone(), wants));
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
    pub(crate) fn has_taken(&self, any: bool) {
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
        self.completions.is_reported();
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
