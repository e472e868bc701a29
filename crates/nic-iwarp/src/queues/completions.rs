//! Data path: completion. The ring of a completion queue, filled by the threads that drive connections and emptied by
//! pollers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::EventCount;
use verbs::{AsyncEvent, Wc};

use crate::queues::cq_events::CqEvents;
use crate::queues::receives::SharedReceives;
use crate::shared::DeviceShared;
use nic_util::sync::Spin;

const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// The queue slots that polling a completion frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotsToFree {
    /// The slots of all send requests before this number.
    Sends(u64),
    /// The slot of one receive.
    Receive,
    /// None: the completion belongs to a request without a slot.
    Nothing,
}

/// Freed slots of a queue pair's queues, counted by pollers and read by posters.
pub(crate) struct FreedSlotCounts {
    /// Number of send requests whose slots are free.
    pub(crate) sends: AtomicU64,
    /// Number of receives of the queue pair's own queue whose slots are free.
    pub(crate) receives: AtomicU64,
    /// The shared receive queue, if the queue pair uses one.
    pub(crate) srq: Option<Arc<SharedReceives>>,
}

impl FreedSlotCounts {
    /// Frees the slots of a completion that was polled or will never be.
    #[inline]
    pub(crate) fn reclaim(&self, frees: SlotsToFree) {
        match (frees, &self.srq) {
            (SlotsToFree::Sends(completed_end), _) => {
                self.sends.fetch_max(completed_end, Ordering::Release);
            }
            (SlotsToFree::Nothing, _) => {}
            (SlotsToFree::Receive, Some(srq)) => srq.reclaim(),
            (SlotsToFree::Receive, None) => {
                self.receives.fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// A completion, and the slots that polling it frees.
struct Entry {
    wc: Wc,
    slots: Arc<FreedSlotCounts>,
    frees: SlotsToFree,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// Maximum number of completions that may be outstanding.
    demand: usize,
}

/// The completions of a queue.
pub(crate) struct Completions {
    shared: Arc<DeviceShared>,
    id: u32,
    /// Capacity, which the program may change.
    cqe: AtomicU32,
    wakeup: EventCount,
    cq_events: Option<Arc<CqEvents>>,
    ring: Spin<Ring>,
    /// Queue pairs that complete here and that the NIC thread has started to watch since a program was last about to
    /// sleep.
    pub(crate) watched: Spin<BTreeSet<u32>>,
    len: AtomicUsize,
    armed: AtomicU32,
    overrun: AtomicBool,
    progress_count: AtomicU64,
    /// Number of threads that poll this queue until they find something or sleep.
    pollers: AtomicU32,
}

impl Completions {
    pub(crate) fn new(
        shared: &Arc<DeviceShared>,
        id: u32,
        cqe: u32,
        cq_events: Option<Arc<CqEvents>>,
    ) -> Self {
        Self {
            shared: shared.clone(),
            id,
            cqe: AtomicU32::new(cqe),
            wakeup: EventCount::new(),
            cq_events,
            ring: Spin::new(Ring::default()),
            watched: Spin::default(),
            len: AtomicUsize::new(0),
            armed: AtomicU32::new(0),
            overrun: AtomicBool::new(false),
            progress_count: AtomicU64::new(0),
            pollers: AtomicU32::new(0),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub(crate) fn cqe(&self) -> u32 {
        self.cqe.load(Ordering::Relaxed)
    }

    /// Changes the capacity; fails if more completions are queued.
    pub(crate) fn resize(&self, cqe: u32) -> bool {
        let mut ring = self.ring.lock();
        let fits = ring.entries.len() <= cqe as usize;
        if fits {
            self.cqe.store(cqe, Ordering::Relaxed);
            self.make_room(&mut ring);
        }
        fits
    }

    /// Reserves memory for everything that may complete, so that completing never allocates.
    fn make_room(&self, ring: &mut Ring) {
        let more = ring.demand.min(self.cqe() as usize).saturating_sub(ring.entries.len());
        ring.entries.reserve(more);
    }

    pub(crate) fn wakeup(&self) -> &EventCount {
        &self.wakeup
    }

    /// Whether a thread sleeps until a completion arrives, or is about to.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.wakeup.has_waiters() || self.armed.load(Ordering::Relaxed) != 0
    }

    /// A thread polls this queue from now on.
    pub(crate) fn begin_polling(&self) {
        self.pollers.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread that has called [`Completions::begin_polling`] stops to poll.
    pub(crate) fn end_polling(&self) {
        self.pollers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a thread polls this queue, or sleeps on it, until it finds something.
    pub(crate) fn has_poller(&self) -> bool {
        self.pollers.load(Ordering::Relaxed) != 0
    }

    /// Whether the queue has overrun.
    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Reserves room for `depth` more outstanding completions.
    pub(crate) fn reserve(&self, depth: u32) {
        let mut ring = self.ring.lock();
        ring.demand += depth as usize;
        self.make_room(&mut ring);
    }

    /// Drops a queue pair's completions, and reserves room for `depth` fewer.
    pub(crate) fn release(&self, slots: &Arc<FreedSlotCounts>, depth: u32) {
        let mut ring = self.ring.lock();
        ring.entries.retain(|entry| {
            let stays = !Arc::ptr_eq(&entry.slots, slots);
            if !stays {
                slots.reclaim(entry.frees);
            }
            stays
        });
        self.len.store(ring.entries.len(), Ordering::Release);
        ring.demand -= depth as usize;
    }

    /// Whether successful completions of a queue pair are queued here.
    pub(crate) fn has_completed(&self, slots: &Arc<FreedSlotCounts>) -> bool {
        self.ring.lock().entries.iter().any(|entry| Arc::ptr_eq(&entry.slots, slots) && entry.wc.is_ok())
    }

    /// Publishes a completion and wakes waiting threads; a full queue overruns.
    #[inline]
    pub(crate) fn push(&self, slots: &Arc<FreedSlotCounts>, wc: Wc, frees: SlotsToFree, solicited: bool) {
        let mut ring = self.ring.lock();
        if ring.entries.len() >= self.cqe() as usize {
            drop(ring);
            return self.overrun();
        }
        ring.entries.push_back(Entry { wc, slots: slots.clone(), frees });
        self.len.store(ring.entries.len(), Ordering::Release);
        drop(ring);
        self.notify(solicited || !wc.is_ok());
    }

    /// Wakes waiting threads, and reports if the queue is armed.
    #[inline]
    fn notify(&self, solicited: bool) {
        // Pairs with the fences of `arm` and of the event count's waiter: the reads of both must not move before the
        // completion's length. Either they see the completion, or this sees them.
        fence(Ordering::SeqCst);
        self.wake_waiter();
        let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
        let armed = self.armed.load(Ordering::Relaxed);
        if armed >= wanted
            && self.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && let Some(cq_events) = &self.cq_events
        {
            self.shared.count_wake();
            cq_events.add(self.id);
        }
    }

    /// Wakes waiting threads, after a full fence.
    #[inline]
    fn wake_waiter(&self) {
        if self.wakeup.has_waiters() {
            self.shared.count_wake();
            self.wakeup.notify_after_fence();
        }
    }

    /// Wakes waiting threads, after a write that no completion follows.
    #[inline]
    pub(crate) fn wake(&self) {
        // Pairs with the fence of the event count's waiter: the check for a waiter must not move before the written data.
        fence(Ordering::SeqCst);
        self.wake_waiter();
    }

    /// Records that data was moved for the pollers of this queue. The count is approximate: only whether it changes
    /// matters.
    #[inline]
    pub(crate) fn count_progress(&self) {
        self.progress_count.store(self.progress_count().wrapping_add(1), Ordering::Relaxed);
    }

    /// Changes whenever data was moved.
    #[inline]
    pub(crate) fn progress_count(&self) -> u64 {
        self.progress_count.load(Ordering::Relaxed)
    }

    /// More completions than entries (IBA 11.6.3.1): the queue and its queue pairs fail. The NIC thread fails the
    /// queue pairs, because the caller holds the lock of one.
    #[cold]
    fn overrun(&self) {
        if !self.overrun.swap(true, Ordering::AcqRel) {
            self.shared.async_event(AsyncEvent::CqError { cq: self.id });
            self.shared.fail_users_of(self.id);
            self.notify(true);
        }
    }

    /// Requests a report of the next completion; returns false if there is no channel to report to.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        if self.cq_events.is_none() {
            return false;
        }
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.armed.fetch_max(kind, Ordering::SeqCst);
        // Pairs with the fence of `notify`: the program's next poll must not move before the arming.
        fence(Ordering::SeqCst);
        true
    }

    /// Withdraws the events of a queue that is being destroyed.
    pub(crate) fn forget_events(&self) {
        if let Some(cq_events) = &self.cq_events {
            cq_events.remove_events_of(self.id);
        }
    }

    /// Takes completions; returns their number.
    #[inline]
    pub(crate) fn take(&self, wcs: &mut [Wc]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut ring = self.ring.lock();
        let count = wcs.len().min(ring.entries.len());
        for (wc, entry) in wcs.iter_mut().zip(ring.entries.drain(..count)) {
            entry.slots.reclaim(entry.frees);
            *wc = entry.wc;
        }
        self.len.store(ring.entries.len(), Ordering::Release);
        count
    }
}
