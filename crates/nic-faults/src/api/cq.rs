//! Completion queues.
//!
//! Data path: a poll replaces the statuses of planned requests.

use std::sync::Arc;

use host::Wake;
use verbs::provider::CqOps;
use verbs::{Result, Wc};

use crate::shared::Shared;

pub(crate) struct FaultCq {
    pub(crate) shared: Arc<Shared>,
    pub(crate) below: Arc<dyn CqOps>,
}

impl CqOps for FaultCq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    fn cqe(&self) -> u32 {
        self.below.cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        self.below.resize(cqe)
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let found = self.below.poll(wcs)?;
        self.shared.plans.apply(&mut wcs[..found]);
        Ok(found)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.below.req_notify(solicited_only)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.below.prepare_wait()
    }

    fn progress_count(&self) -> u64 {
        self.below.progress_count()
    }

    fn begin_polling(&self) {
        self.below.begin_polling();
    }

    fn end_polling(&self) {
        self.below.end_polling();
    }
}
