//! Shared receive queues: receives that several queue pairs take from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use verbs::provider::SrqOps;
use verbs::{AsyncEvent, RecvWr, Result, SrqInit};

use super::device::Inner;
use super::queue::{Receive, ReceiveQueue};
use crate::sync::Spin;

/// A shared receive queue.
pub(super) struct SrqInner {
    device: Arc<Inner>,
    id: u32,
    queue: Spin<ReceiveQueue>,
    reclaimed: AtomicU64,
    limit: AtomicU32,
    /// Queue pairs whose peers wait for a receive.
    pub(super) starving: AtomicU32,
}

impl SrqInner {
    pub(super) fn create(device: &Arc<Inner>, init: SrqInit) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            device: device.clone(),
            id: device.take_srq_id()?,
            queue: Spin::new(ReceiveQueue::new("shared receive", init.max_wr, init.max_sge)),
            reclaimed: AtomicU64::new(0),
            limit: AtomicU32::new(0),
            starving: AtomicU32::new(0),
        }))
    }

    pub(super) fn take(&self, into: &mut Receive) -> bool {
        let mut queue = self.queue.lock();
        let taken = queue.take(into);
        let left = queue.left();
        drop(queue);
        if taken {
            self.check_limit(left);
        }
        taken
    }

    pub(super) fn reclaim(&self) {
        self.reclaimed.fetch_add(1, Ordering::Release);
    }

    fn check_limit(&self, left: u64) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit > 0
            && left < limit.into()
            && self.limit.compare_exchange(limit, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.device.async_event(AsyncEvent::SrqLimitReached { srq: self.id });
        }
    }
}

impl SrqOps for SrqInner {
    fn id(&self) -> u32 {
        self.id
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.birth.check()?;
        self.queue.lock().post(wr, &self.reclaimed)?;
        // Whoever starves counts itself first and looks again afterwards.
        fence(Ordering::SeqCst);
        if self.starving.load(Ordering::Relaxed) > 0 {
            self.device.feed_starving();
        }
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.limit.store(limit, Ordering::Release);
        let left = self.queue.lock().left();
        self.check_limit(left);
        Ok(())
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.give_srq_id(self.id);
    }
}
