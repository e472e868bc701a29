//! Protection domains, and what they create.

use std::sync::Arc;

use verbs::provider::{CqOps, MrOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, Result, SrqInit};

use crate::api::cq::FaultCq;
use crate::api::qp::FaultQp;
use crate::api::srq::FaultSrq;
use crate::operation::Operation;
use crate::shared::Shared;

pub(crate) struct FaultPd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) below: Arc<dyn PdOps>,
}

fn cq_below(cq: &Arc<dyn CqOps>) -> Result<Arc<dyn CqOps>> {
    let cq: Arc<FaultCq> = downcast(cq.clone(), "the completion queue")?;
    Ok(cq.below.clone())
}

impl PdOps for FaultPd {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.shared.creates(Operation::RegMr)?;
        self.below.reg_mr(buf, access)
    }

    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.shared.creates(Operation::RegMr)?;
        self.below.reg_all(access)
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
