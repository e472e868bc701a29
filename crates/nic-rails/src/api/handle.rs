//! API handles of queue pairs and shared receive queues; dropping them removes the objects from the device.

use std::sync::Arc;

use host::Span;
use verbs::provider::{QpOps, SrqOps};
use verbs::{Qp, QpState, RecvWr, Result, SendWr};

use crate::completion::polled_cq::PolledCq;
use crate::device_inner::DeviceInner;
use crate::progress::poll::{arm_for_requests, handle_lane_failure, progress};
use crate::qp::QpInner;
use crate::receive::srq::SrqInner;
use crate::state;

pub(crate) struct QpHandle {
    device: Arc<DeviceInner>,
    pub(crate) qp: Arc<QpInner>,
    /// The completion queues of its sends and of its receives.
    send: Arc<PolledCq>,
    recv: Arc<PolledCq>,
}

impl QpHandle {
    pub(crate) fn new(
        device: &Arc<DeviceInner>,
        qp: Arc<QpInner>,
        send: Arc<PolledCq>,
        recv: Arc<PolledCq>,
    ) -> Self {
        device.add_qp(&qp);
        Self { device: device.clone(), qp, send, recv }
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        if self.device.shared.is_inherited() {
            return std::mem::forget(self.qp.clone());
        }
        if self.qp.receiving.srq.is_some() {
            // Frees the slots of the shared receives that it has consumed.
            self.qp.close();
            progress(&self.device, &self.recv);
        }
        self.qp.set_dropped();
        self.device.forget_qp(&self.qp);
        for polling in [&self.send, &self.recv] {
            polling.clear_caches();
            polling.completions.discard_of_qp(self.qp.num());
        }
    }
}

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.qp.num()
    }

    fn state(&self) -> QpState {
        let qp = &self.qp;
        if qp.state_number() != state::ERROR && qp.shared().check().is_ok() {
            if qp.uses_an_overrun_queue() {
                qp.fail();
            } else {
                let is_dead = |lane: &Arc<Qp>| lane.state() == QpState::Error;
                let lanes = qp.lanes();
                let dead: Vec<usize> = (0..lanes.len()).filter(|&at| is_dead(&lanes[at])).collect();
                dead.into_iter().for_each(|lane| handle_lane_failure(&self.device, qp, lane));
            }
        }
        qp.state()
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.qp.shared().check()?;
        let (posted, waits) = self.qp.post_send(wr);
        if waits {
            arm_for_requests(&self.device, &self.send);
        }
        posted
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.qp.shared().check()?;
        self.qp.post_recv(wr)
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.qp.shared().check()?;
        self.qp.set_rnr_retry(retries)
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.qp.shared().check()?;
        self.qp.set_rnr_pause(pause)
    }

    fn failure(&self) -> Option<String> {
        let failed = self.qp.state() == QpState::Error;
        self.qp.lanes().iter().filter(|_| failed).find_map(|lane| lane.failure())
    }

    fn to_error(&self) {
        if self.qp.shared().check().is_ok() {
            self.qp.fail();
        }
    }
}

pub(crate) struct SrqHandle {
    device: Arc<DeviceInner>,
    pub(crate) srq: Arc<SrqInner>,
}

impl SrqHandle {
    pub(crate) fn new(device: &Arc<DeviceInner>, srq: Arc<SrqInner>) -> Self {
        srq.ids().into_iter().enumerate().for_each(|(rail, id)| device.add_srq(rail, id, &srq));
        Self { device: device.clone(), srq }
    }
}

impl Drop for SrqHandle {
    fn drop(&mut self) {
        if self.device.shared.is_inherited() {
            return std::mem::forget(self.srq.clone());
        }
        self.srq.ids().into_iter().enumerate().for_each(|(rail, id)| self.device.forget_srq(rail, id));
    }
}

impl SrqOps for SrqHandle {
    fn id(&self) -> u32 {
        self.srq.id
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.shared.check()?;
        self.srq.post_recv(wr)
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.srq.arm_limit(limit)
    }

    fn limit(&self) -> u32 {
        self.srq.limit()
    }
}
