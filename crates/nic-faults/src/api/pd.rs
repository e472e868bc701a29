//! Protection domains, and what they create.

use std::sync::Arc;

use verbs::provider::{CqOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, MwKind, Result, SrqInit};

use crate::api::cq::FaultCq;
use crate::api::qp::FaultQp;
use crate::api::srq::FaultSrq;
use crate::operation::Operation;
use crate::shared::Shared;

pub(crate) struct FaultPd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) below: Arc<dyn PdOps>,
}

impl FaultPd {
    fn registered(&self, make: impl FnOnce() -> Result<Box<dyn MrOps>>) -> Result<Box<dyn MrOps>> {
        self.shared.creates(Operation::RegMr)?;
        Ok(Box::new(FaultMr { shared: self.shared.clone(), below: make()? }))
    }
}

fn cq_below(cq: &Arc<dyn CqOps>) -> Result<Arc<dyn CqOps>> {
    let cq: Arc<FaultCq> = downcast(cq.clone(), "the completion queue")?;
    Ok(cq.below.clone())
}

impl PdOps for FaultPd {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.registered(|| self.below.reg_mr(buf, access))
    }

    fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Box<dyn MrOps>> {
        self.registered(|| self.below.reg_mr_at(buf, addr, access))
    }

    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.registered(|| self.below.reg_all(access))
    }

    fn alloc_mw(&self, kind: MwKind) -> Result<Box<dyn MwOps>> {
        self.shared.creates(Operation::RegMr)?;
        self.below.alloc_mw(kind)
    }

    fn create_qp(&self, parts: &QpParts) -> Result<Arc<dyn QpOps>> {
        self.shared.creates(Operation::CreateQp)?;
        let srq = parts.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<FaultSrq>> = srq.transpose()?;
        let below = QpParts {
            send_cq: cq_below(&parts.send_cq)?,
            recv_cq: cq_below(&parts.recv_cq)?,
            srq: srq.map(|srq| srq.below.clone()),
            ..parts.clone()
        };
        Ok(FaultQp::new(&self.shared, self.below.create_qp(&below)?, parts))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.shared.creates(Operation::CreateSrq)?;
        let srq: Arc<dyn SrqOps> = FaultSrq::new(&self.shared, self.below.create_srq(init)?, init);
        self.shared.know_srq(Arc::downgrade(&srq));
        Ok(srq)
    }
}

struct FaultMr {
    shared: Arc<Shared>,
    below: Box<dyn MrOps>,
}

impl MrOps for FaultMr {
    fn lkey(&self) -> u32 {
        self.below.lkey()
    }

    fn rkey(&self) -> u32 {
        self.below.rkey()
    }

    fn addr(&self) -> u64 {
        self.below.addr()
    }

    /// A change registers again, so the faults of registrations meet it.
    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        let pd: Arc<FaultPd> = downcast(pd.clone(), "the protection domain")?;
        self.shared.creates(Operation::RegMr)?;
        self.below.rereg(&pd.below, buf, access)
    }

    fn has_windows(&self) -> bool {
        self.below.has_windows()
    }

    fn dereg(self: Box<Self>) -> Result<()> {
        self.below.dereg()
    }
}
