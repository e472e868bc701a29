//! Shared receive queues of the API.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use verbs::provider::SrqOps;
use verbs::{RecvWr, Result, SrqInit};

use crate::device_inner::DeviceInner;
use crate::queues::receives::SharedReceives;
use nic_util::heap_trim::queue_size;
use nic_util::sync::unpoisoned;

/// A shared receive queue.
pub(crate) struct SrqInner {
    device: Arc<DeviceInner>,
    receives: Arc<SharedReceives>,
    entries: u32,
}

impl SrqInner {
    pub(crate) fn create(device: &Arc<DeviceInner>, init: SrqInit) -> Result<Self> {
        let id = unpoisoned(&device.srq_ids).alloc()?;
        let receives = SharedReceives::new(&device.shared, id, init.max_wr, init.max_sge);
        device.shared.heap_trim.count_allocated(queue_size(init.max_wr));
        Ok(Self { device: device.clone(), receives: Arc::new(receives), entries: init.max_wr })
    }

    /// The queue of receives.
    pub(crate) fn receives(&self) -> &Arc<SharedReceives> {
        &self.receives
    }
}

impl SrqOps for SrqInner {
    fn id(&self) -> u32 {
        self.receives.id()
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.receives.post(wr)?;
        // Pairs with the fence of `QpQueues::set_rnr`: the check for waiting queue pairs must not move before the post.
        // A queue pair without a receive first counts itself as waiting and then checks the queue again.
        fence(Ordering::SeqCst);
        if self.receives.is_rnr() {
            self.device.wake_rnr();
        }
        Ok(())
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.receives.arm_limit(limit);
        Ok(())
    }

    fn limit(&self) -> u32 {
        self.receives.limit()
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if !self.device.shared.fork_guard.is_forked() {
            unpoisoned(&self.device.srq_ids).free(self.receives.id());
            self.device.shared.count_freed(queue_size(self.entries));
        }
    }
}
