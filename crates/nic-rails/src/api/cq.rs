//! API handle of a completion queue.

use std::sync::Arc;

use host::Wake;
use verbs::provider::CqOps;
use verbs::{Error, Result, Wc};

use crate::completion::completions::{CompletionSink, Completions};
use crate::completion::event_queue::EventQueue;
use crate::completion::polled_cq::PolledCq;
use crate::device_inner::DeviceInner;
use crate::progress::poll::{arm_for_service, progress, progress_into, wait_for_others};

pub(crate) struct CqHandle {
    device: Arc<DeviceInner>,
    pub(crate) polling: Arc<PolledCq>,
}

impl CqHandle {
    pub(crate) fn create(
        device: &Arc<DeviceInner>,
        cqe: u32,
        reports: Option<Arc<EventQueue<u32>>>,
    ) -> Result<Arc<Self>> {
        let completions = Completions::new(&device.shared, cqe, reports)?;
        let polling = Arc::new(PolledCq::new(&device.shared, completions));
        device.add_cq(&polling);
        Ok(Arc::new(Self { device: device.clone(), polling }))
    }

    /// Takes completions from the ring.
    fn poll_ring(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.polling.completions.poll_ring(wcs, |num, sends, receives| {
            if let Some(qp) = self.device.qp(num) {
                qp.free_slots(sends, receives);
            }
        })
    }
}

impl Drop for CqHandle {
    fn drop(&mut self) {
        if self.device.shared.is_inherited() {
            return std::mem::forget(self.polling.clone());
        }
        self.device.forget_cq(&self.polling);
    }
}

impl CqOps for CqHandle {
    fn id(&self) -> u32 {
        self.polling.completions.id
    }

    fn cqe(&self) -> u32 {
        self.polling.completions.cqe
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let (device, completions) = (&self.device, &self.polling.completions);
        device.shared.check()?;
        if completions.wakeup.has_waiters() {
            arm_for_service(device, &self.polling);
        }
        let room: &mut [Wc] = if completions.uses_ring() { &mut [] } else { &mut *wcs };
        let mut sink = CompletionSink::new(completions, room);
        let alone = progress_into(device, &self.polling, &mut sink);
        let mut taken = sink.delivered();
        if completions.uses_ring() {
            // Completions already taken are returned before an error.
            taken += self.poll_ring(&mut wcs[taken..]).or_else(|e| if taken > 0 { Ok(0) } else { Err(e) })?;
        }
        if taken == 0 && !alone {
            // So that a caller who gets no completion can rely on it.
            wait_for_others(device, &self.polling, || !completions.is_empty());
            taken = self.poll_ring(wcs)?;
        }
        if taken > 0 {
            // There may be more completions, for which other waiters have been notified before.
            device.shared.host.signal();
        }
        Ok(taken)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        let completions = &self.polling.completions;
        if !completions.can_report() {
            return Err(Error::Invalid("the completion queue has no channel; create it with one".into()));
        }
        progress(&self.device, &self.polling);
        completions.arm_rails(completions.arm(solicited_only));
        progress(&self.device, &self.polling);
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.polling.completions.wakeup)
    }

    fn progress_count(&self) -> u64 {
        self.polling.completions.progress_count()
    }
}
