//! [`Srq`]: a receive queue that several queue pairs share.

use std::sync::Arc;

use crate::provider::SrqOps;
use crate::{Error, Pd, RecvWr, Result, SrqInit};

/// A shared receive queue (`ibv_srq`); cheap to clone.
#[derive(Clone)]
pub struct Srq {
    ops: Arc<dyn SrqOps>,
    pd: Pd,
    init: SrqInit,
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Srq({}, {:?})", self.id(), self.init)
    }
}

impl Srq {
    pub(crate) fn new(ops: Arc<dyn SrqOps>, pd: Pd, init: SrqInit) -> Self {
        Self { ops, pd, init }
    }

    /// The number of the queue, as [`crate::AsyncEvent`] gives it.
    #[inline]
    pub fn id(&self) -> u32 {
        self.ops.id()
    }

    /// The protection domain of its receives.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Posts a receive (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// [`crate::Error::QueueFull`]; [`crate::Error::Limit`] for too many elements.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.ops.post_recv(wr)
    }

    /// Requests one [`crate::AsyncEvent::SrqLimitReached`] when fewer than `limit` receives are left (`ibv_modify_srq`
    /// with `IBV_SRQ_LIMIT`); 0 disarms.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for more than the queue holds.
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        Error::check_limit("the shared receive queue's limit", limit.into(), self.init.max_wr.into())?;
        self.ops.arm_limit(limit)
    }

    /// The armed limit; 0 once it has been reported (`ibv_query_srq(3)`).
    pub fn limit(&self) -> u32 {
        self.ops.limit()
    }

    /// The implementation, for the NIC's crate.
    #[inline]
    pub fn ops(&self) -> &Arc<dyn SrqOps> {
        &self.ops
    }
}

impl Pd {
    /// Creates a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Invalid`] for a size of zero, [`Error::Unsupported`].
    pub fn create_srq(&self, init: SrqInit) -> Result<Srq> {
        let attr = self.device().attr();
        Error::check_count("receives of the shared queue", init.max_wr, attr.max_srq_wr)?;
        Error::check_count("pieces of a receive", init.max_sge, attr.max_sge)?;
        Ok(Srq::new(self.ops().create_srq(init)?, self.clone(), init))
    }
}
