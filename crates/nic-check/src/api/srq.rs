//! Shared receive queues.

use std::sync::Arc;

use host::Lock;
use verbs::provider::SrqOps;
use verbs::{RecvWr, Result};

use crate::queue_pairs::Opened;
use crate::requests::{Request, Requests};

pub(crate) struct CheckSrq {
    pub(crate) below: Arc<dyn SrqOps>,
    shared: Arc<Opened>,
    pub(crate) receives: Lock<Requests>,
}

impl CheckSrq {
    pub(crate) fn new(shared: &Arc<Opened>, below: Arc<dyn SrqOps>) -> Self {
        Self { below, shared: shared.clone(), receives: Lock::new(Requests::default()) }
    }
}

impl Drop for CheckSrq {
    fn drop(&mut self) {
        if self.shared.is_usable() {
            self.receives.get_mut().clear(&self.shared);
        }
    }
}

impl SrqOps for CheckSrq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        if !self.shared.is_usable() {
            return self.below.post_recv(wr);
        }
        let mut receives = self.receives.lock(&self.shared.host);
        receives.push(Request::receive(&self.shared, &format!("srq {}", self.below.id()), wr));
        self.below.post_recv(wr).inspect_err(|_| drop(receives.take_back(&self.shared)))
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        self.below.arm_limit(limit)
    }

    fn limit(&self) -> u32 {
        self.below.limit()
    }
}
