//! The source of a queue pair's receives: its own queue or a shared one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbs::{AsyncEvent, RecvWr, Result};

use crate::queues::request_ring::{PostedReceive, ReceiveQueue};
use crate::shared::DeviceShared;
use nic_util::sync::Spin;

/// A receive queue shared by several queue pairs.
pub(crate) struct SharedReceives {
    shared: Arc<DeviceShared>,
    id: u32,
    queue: Spin<ReceiveQueue>,
    reclaimed: AtomicU64,
    limit: AtomicU32,
    /// Number of queue pairs that wait for a receive.
    rnr: AtomicU32,
}

impl SharedReceives {
    pub(crate) fn new(shared: &Arc<DeviceShared>, id: u32, max_wr: u32, max_sge: u32) -> Self {
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

    fn take(&self, into: &mut PostedReceive) -> bool {
        let mut queue = self.queue.lock();
        let taken = queue.take(into);
        let left = queue.len();
        drop(queue);
        if taken {
            self.check_limit(left);
        }
        taken
    }

    /// Frees the slot of a receive whose completion was polled or will never be.
    pub(crate) fn reclaim(&self) {
        self.reclaimed.fetch_add(1, Ordering::Release);
    }

    /// Requests an event when fewer than `limit` receives are left; 0 for none.
    pub(crate) fn arm_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
        let left = self.queue.lock().len();
        self.check_limit(left);
    }

    /// The limit below which an event is reported; 0 for none.
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

    /// Whether a queue pair waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr.load(Ordering::Relaxed) > 0
    }
}

/// The source of a queue pair's receives.
pub(crate) enum Receives {
    Own(Spin<ReceiveQueue>),
    Shared(Arc<SharedReceives>),
}

impl Receives {
    /// Takes the next receive.
    #[inline]
    pub(crate) fn take(&self, into: &mut PostedReceive) -> bool {
        match self {
            Self::Own(queue) => queue.lock().take(into),
            Self::Shared(srq) => srq.take(into),
        }
    }

    /// Takes the next receive of an own queue; returns false for a shared queue.
    pub(crate) fn take_own(&self, into: &mut PostedReceive) -> bool {
        match self {
            Self::Own(queue) => queue.lock().take(into),
            Self::Shared(_) => false,
        }
    }

    /// Counts a queue pair that starts or stops to wait for a receive.
    pub(crate) fn count_rnr(&self, rnr: bool) {
        match self {
            Self::Own(_) => {}
            Self::Shared(srq) if rnr => drop(srq.rnr.fetch_add(1, Ordering::Relaxed)),
            Self::Shared(srq) => drop(srq.rnr.fetch_sub(1, Ordering::Relaxed)),
        }
    }
}
