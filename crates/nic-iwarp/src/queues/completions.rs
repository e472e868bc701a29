//! Data path: completion. The ring of a completion queue: from whoever works on a connection to whoever polls.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::Bell;
use verbs::{AsyncEvent, Wc};

use crate::queues::receives::SharedReceives;
use crate::queues::reports::Reports;
use crate::shared::Shared;
use nic_util::sync::Spin;

const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// Which slots polling a completion frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frees {
    /// Those of all send requests up to this one.
    Sends(u64),
    /// That of one receive.
    Receive,
}

/// The slots of a queue pair's queues that may be used again, counted by whoever polls and read by whoever posts.
pub(crate) struct Slots {
    /// Send requests whose slots are free.
    pub(crate) sends: AtomicU64,
    /// Receives of the queue pair's own queue whose slots are free.
    pub(crate) receives: AtomicU64,
    /// The queue that its receives come from otherwise.
    pub(crate) srq: Option<Arc<SharedReceives>>,
}

impl Slots {
    /// A completion was polled, or will never be.
    #[inline]
    pub(crate) fn reclaim(&self, frees: Frees) {
        match (frees, &self.srq) {
            (Frees::Sends(upto), _) => {
                self.sends.fetch_max(upto, Ordering::Release);
            }
            (Frees::Receive, Some(srq)) => srq.reclaim(),
            (Frees::Receive, None) => {
                self.receives.fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// A completion, with what polling it frees.
struct Entry {
    wc: Wc,
    slots: Arc<Slots>,
    frees: Frees,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// Completions that may be outstanding in all.
    demand: usize,
}

/// The completions of a queue.
pub(crate) struct Completions {
    shared: Arc<Shared>,
    id: u32,
    /// Its size, which the program may change.
    cqe: AtomicU32,
    bell: Bell,
    reports: Option<Arc<Reports>>,
    ring: Spin<Ring>,
    /// Queue pairs that complete here and that the device's thread watched since the last time somebody was about to sleep.
    pub(crate) watched: Spin<BTreeSet<u32>>,
    len: AtomicUsize,
    armed: AtomicU32,
    dead: AtomicBool,
    stirs: AtomicU64,
}

impl Completions {
    pub(crate) fn new(shared: &Arc<Shared>, id: u32, cqe: u32, reports: Option<Arc<Reports>>) -> Self {
        Self {
            shared: shared.clone(),
            id,
            cqe: AtomicU32::new(cqe),
            bell: Bell::new(),
            reports,
            ring: Spin::new(Ring::default()),
            watched: Spin::default(),
            len: AtomicUsize::new(0),
            armed: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            stirs: AtomicU64::new(0),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub(crate) fn cqe(&self) -> u32 {
        self.cqe.load(Ordering::Relaxed)
    }

    /// Gives it another size; whether no more completions wait than that.
    pub(crate) fn resize(&self, cqe: u32) -> bool {
        let mut ring = self.ring.lock();
        let fits = ring.entries.len() <= cqe as usize;
        if fits {
            self.cqe.store(cqe, Ordering::Relaxed);
            self.make_room(&mut ring);
        }
        fits
    }

    /// Room for everything that may complete, so that completing never allocates.
    fn make_room(&self, ring: &mut Ring) {
        let more = ring.demand.min(self.cqe() as usize).saturating_sub(ring.entries.len());
        ring.entries.reserve(more);
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether somebody sleeps until a completion comes, or is about to.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.bell.is_awaited() || self.armed.load(Ordering::Relaxed) != 0
    }

    /// Whether more completions came than there was room for.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// At most `depth` completions more may be outstanding at a time from now on.
    pub(crate) fn reserve(&self, depth: u32) {
        let mut ring = self.ring.lock();
        ring.demand += depth as usize;
        self.make_room(&mut ring);
    }

    /// Forgets a queue pair's completions, and expects `depth` fewer.
    pub(crate) fn release(&self, slots: &Arc<Slots>, depth: u32) {
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

    /// Whether successful completions of a queue pair wait here.
    pub(crate) fn has_completed(&self, slots: &Arc<Slots>) -> bool {
        self.ring.lock().entries.iter().any(|entry| Arc::ptr_eq(&entry.slots, slots) && entry.wc.is_ok())
    }

    /// Publishes a completion and wakes who waits; if the queue is full, it is overrun.
    #[inline]
    pub(crate) fn push(&self, slots: &Arc<Slots>, wc: Wc, frees: Frees, solicited: bool) {
        let mut ring = self.ring.lock();
        if ring.entries.len() >= self.cqe() as usize {
            drop(ring);
            return self.overrun();
        }
        ring.entries.push_back(Entry { wc, slots: slots.clone(), frees });
        self.len.store(ring.entries.len(), Ordering::Release);
        drop(ring);
        self.announce(solicited || !wc.is_ok());
    }

    /// Wakes who sleeps, and reports if that was asked for.
    #[inline]
    fn announce(&self, solicited: bool) {
        // Pairs with the fences of `arm` and of the bell's sleeper: the looks at both must not move before the completion's
        // length. Either they see the completion, or this sees them.
        fence(Ordering::SeqCst);
        self.ring();
        let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
        let armed = self.armed.load(Ordering::Relaxed);
        if armed >= wanted
            && self.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && let Some(reports) = &self.reports
        {
            self.shared.count_woken();
            reports.add(self.id);
        }
    }

    /// Rings for who sleeps, behind a full fence.
    #[inline]
    fn ring(&self) {
        if self.bell.is_awaited() {
            self.shared.count_woken();
            self.bell.ring_after_fence();
        }
    }

    /// Wakes who sleeps, after a write that no completion follows.
    #[inline]
    pub(crate) fn wake(&self) {
        // Pairs with the fence of the bell's sleeper: the look for one must not move before what was written.
        fence(Ordering::SeqCst);
        self.ring();
    }

    /// A turn has moved something for whoever polls here. Counted roughly: what matters is whether it stands still.
    #[inline]
    pub(crate) fn stir(&self) {
        self.stirs.store(self.stirs().wrapping_add(1), Ordering::Relaxed);
    }

    /// Changes with every turn that has moved something.
    #[inline]
    pub(crate) fn stirs(&self) -> u64 {
        self.stirs.load(Ordering::Relaxed)
    }

    /// More completions than entries (IBA 11.6.3.1): the queue and its queue pairs are dead. They are failed by the device's
    /// thread, since whoever finds it out holds one of their stages.
    #[cold]
    fn overrun(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            self.shared.async_event(AsyncEvent::CqError { cq: self.id });
            self.shared.condemn_users_of(self.id);
            self.announce(true);
        }
    }

    /// Has the next completion reported; false if there is no channel to report to.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        if self.reports.is_none() {
            return false;
        }
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.armed.fetch_max(kind, Ordering::SeqCst);
        // Pairs with that of `announce`: the program's next poll must not move before the arming.
        fence(Ordering::SeqCst);
        true
    }

    /// Takes its reports back: the queue goes away.
    pub(crate) fn forget_reports(&self) {
        if let Some(reports) = &self.reports {
            reports.forget(self.id);
        }
    }

    /// Takes completions; how many.
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
