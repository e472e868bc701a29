//! Protection domains and memory regions.

use std::sync::Arc;

use verbs::provider::{CqOps, MrOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, Result, SrqInit};

use super::opened::OpenedDevice;
use super::queues::{CqObject, QpObject, SrqObject};
use crate::net::queue_pair::QueuePairParts;

/// A protection domain.
pub(super) struct DomainObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) number: u32,
}

impl PdOps for DomainObject {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        let opened = &self.opened;
        let (key, base) = opened.net.lock().register(opened.context, self.number, buf, access)?;
        let (addr, len) = (base, buf.len() as u64);
        opened.charge(opened.calls.register(addr, len));
        Ok(Box::new(RegionObject { opened: opened.clone(), key, base, len }))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        let queue =
            |cq: &Arc<dyn CqOps>| -> Result<Arc<CqObject>> { downcast(cq.clone(), "the completion queue") };
        let (send_cq, recv_cq) = (queue(&init.send_cq)?, queue(&init.recv_cq)?);
        let srq = match &init.srq {
            None => None,
            Some(srq) => {
                let srq: Arc<SrqObject> = downcast(srq.clone(), "the shared receive queue")?;
                Some(srq.key)
            }
        };
        let (context, domain) = (self.opened.context, self.number);
        let parts = QueuePairParts { context, domain, send_cq: send_cq.key, recv_cq: recv_cq.key, srq };
        let key = self.opened.net.lock().create_qp(parts, init)?;
        Ok(Arc::new(QpObject { opened: self.opened.clone(), key }))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        if self.opened.attr.max_srq == 0 {
            return self.opened.unsupported("shared receive queues");
        }
        let key = self.opened.net.lock().create_srq(self.opened.context, self.number, init)?;
        Ok(Arc::new(SrqObject { opened: self.opened.clone(), key }))
    }
}

/// A memory region.
struct RegionObject {
    opened: Arc<OpenedDevice>,
    key: u32,
    base: u64,
    len: u64,
}

impl MrOps for RegionObject {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn addr(&self) -> u64 {
        self.base
    }

    fn dereg(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for RegionObject {
    fn drop(&mut self) {
        self.opened.charge(self.opened.calls.deregister(self.base, self.len));
        let (mut state, _) = self.opened.lock_synced();
        state.deregister(self.key);
    }
}
