//! Shared receive queues.

use std::sync::{Arc, Weak};

use verbs::provider::{QpOps, SrqOps};
use verbs::{RecvWr, Result, SrqInit};

use crate::api::qp::FaultQp;
use crate::api::receive::{ReceiveFaults, Receiver};
use crate::shared::Shared;

pub(crate) struct FaultSrq {
    pub(crate) below: Arc<dyn SrqOps>,
    shared: Arc<Shared>,
    faults: ReceiveFaults,
    own: Weak<Self>,
}

impl FaultSrq {
    pub(crate) fn new(shared: &Arc<Shared>, below: Arc<dyn SrqOps>, init: SrqInit) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            below,
            shared: shared.clone(),
            faults: ReceiveFaults::new(shared, init.max_wr, init.max_sge),
            own: own.clone(),
        })
    }

    fn later(&self, due: host::Time) -> Result<()> {
        let own = self.own.clone();
        self.shared.timer.at(due, move || {
            if let Some(own) = own.upgrade() {
                own.faults.drain(false, &|wr| own.below.post_recv(wr), &|due| own.later(due));
            }
        })
    }
}

impl SrqOps for FaultSrq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        if !self.faults.concerns() {
            return self.below.post_recv(wr);
        }
        let qp: Weak<dyn QpOps> = Weak::<FaultQp>::new();
        let receiver = Receiver { nums: None, qp, peer: None, kept_reason: Arc::default() };
        self.faults.post(wr, &receiver, &|wr| self.below.post_recv(wr), &|due| self.later(due))
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.below.arm_limit(limit)
    }

    fn limit(&self) -> u32 {
        self.below.limit()
    }
}
