//! Where a queue pair's receives come from: a queue of its own, or one that it shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbs::{AsyncEvent, RecvWr, Result};

use crate::queues::request_ring::{Receive, ReceiveQueue};
use crate::shared::Shared;
use nic_util::sync::Spin;

/// Receives that several queue pairs take from.
pub(crate) struct SharedReceives {
    shared: Arc<Shared>,
    id: u32,
    queue: Spin<ReceiveQueue>,
    reclaimed: AtomicU64,
    limit: AtomicU32,
    /// Queue pairs whose peers wait for a receive.
    rnr: AtomicU32,
}

impl SharedReceives {
    pub(crate) fn new(shared: &Arc<Shared>, id: u32, max_wr: u32, max_sge: u32) -> Self {
        Self {
            shared: shared.clone(),
            id,
            queue: Spin::new(ReceiveQueue::new("shared receive", max_wr, max_sge)),
            reclaimed: AtomicU64::new(0),
            limit: AtomicU32::new(0),
            rnr: AtomicU32::new(0),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.queue.lock().post(wr, &self.reclaimed)
    }

    fn take(&self, into: &mut Receive) -> bool {
        let mut queue = self.queue.lock();
        let taken = queue.take(into);
        let left = queue.left();
        drop(queue);
        if taken {
            self.check_limit(left);
        }
        taken
    }

    /// The completion of a receive was polled, or will never be.
    pub(crate) fn reclaim(&self) {
        self.reclaimed.fetch_add(1, Ordering::Release);
    }

    /// Asks for an event when fewer than `limit` receives are left; 0 for none.
    pub(crate) fn arm_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
        let left = self.queue.lock().left();
        self.check_limit(left);
    }

    /// The limit below which there will be an event; 0 for none.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    fn check_limit(&self, left: u64) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit > 0
            && left < limit.into()
            && self.limit.compare_exchange(limit, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.shared.async_event(AsyncEvent::SrqLimitReached { srq: self.id });
        }
    }

    /// Whether somebody waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr.load(Ordering::Relaxed) > 0
    }
}

/// Where a queue pair's receives come from.
pub(crate) enum Receives {
    Own(Spin<ReceiveQueue>),
    Shared(Arc<SharedReceives>),
}

impl Receives {
    /// Takes the next one.
    #[inline]
    pub(crate) fn take(&self, into: &mut Receive) -> bool {
        match self {
            Self::Own(queue) => queue.lock().take(into),
            Self::Shared(srq) => srq.take(into),
        }
    }

    /// Takes the next one that nobody else could take.
    pub(crate) fn take_own(&self, into: &mut Receive) -> bool {
        match self {
            Self::Own(queue) => queue.lock().take(into),
            Self::Shared(_) => false,
        }
    }

    /// One queue pair more, or fewer, waits for a receive.
    pub(crate) fn count_rnr(&self, rnr: bool) {
        match self {
            Self::Own(_) => {}
            Self::Shared(srq) if rnr => drop(srq.rnr.fetch_add(1, Ordering::Relaxed)),
            Self::Shared(srq) => drop(srq.rnr.fetch_sub(1, Ordering::Relaxed)),
        }
    }
}
