//! Shared receive queues: one on the lane on which all of its queue pairs take messages.

use std::sync::Arc;

use super::domain::PdInner;
use super::qp::local_pieces;
use crate::provider::SrqOps;
use crate::{RecvWr, Result, Srq, SrqInit};

pub(super) struct SrqInner {
    pub(super) pd: Arc<PdInner>,
    pub(super) id: u32,
    pub(super) lane: usize,
    pub(super) of_lane: Srq,
    /// Receives that it holds at most.
    pub(super) depth: u32,
}

impl SrqInner {
    pub(super) fn create(pd: &Arc<PdInner>, init: SrqInit) -> Result<Arc<Self>> {
        let device = &pd.device;
        let lane = device.next_lane();
        let of_lane = pd.pds[lane].create_srq(init)?;
        let srq = Arc::new(Self { id: device.fresh(), lane, of_lane, depth: init.max_wr, pd: pd.clone() });
        device.add_srq(&srq);
        Ok(srq)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        self.pd.device.forget_srq(self);
    }
}

impl SrqOps for SrqInner {
    fn id(&self) -> u32 {
        self.id
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        local_pieces(&self.pd.device, self.lane, wr.sges, |sges| {
            self.of_lane.post_recv(&RecvWr::new(wr.wr_id, sges))
        })
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.of_lane.arm_limit(limit)
    }
}
