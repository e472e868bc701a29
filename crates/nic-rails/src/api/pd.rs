//! API handle of a protection domain.

use std::sync::Arc;

use verbs::provider::{CqOps, MrOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, Result, SrqInit};

use crate::api::cq::CqHandle;
use crate::api::handle::{QpHandle, SrqHandle};
use crate::completion::polled_cq::PolledCq;
use crate::device_inner::DeviceInner;
use crate::memory::domain::PdInner;
use crate::qp::{QpInner, QpSettings};
use crate::receive::srq::SrqInner;

pub(crate) struct PdHandle {
    device: Arc<DeviceInner>,
    pd: Arc<PdInner>,
}

impl PdHandle {
    pub(crate) fn alloc(device: &Arc<DeviceInner>) -> Result<Self> {
        Ok(Self { device: device.clone(), pd: Arc::new(PdInner::alloc(&device.shared)?) })
    }
}

fn polling(cq: &Arc<dyn CqOps>) -> Result<Arc<PolledCq>> {
    let handle: Arc<CqHandle> = downcast(cq.clone(), "the completion queue")?;
    Ok(handle.polling.clone())
}

impl PdOps for PdHandle {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        Ok(Box::new(self.pd.reg_mr(buf, access)?))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        let (send, recv) = (polling(&init.send_cq)?, polling(&init.recv_cq)?);
        let srq = init.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqHandle>> = srq.transpose()?;
        let settings = QpSettings {
            cap: init.cap,
            mtu: init.mtu,
            signals_all: init.sq_sig_all,
            reported_qp_num: init.reported_qp_num,
            send: send.completions.clone(),
            recv: recv.completions.clone(),
            srq: srq.map(|handle| handle.srq.clone()),
        };
        let qp = Arc::new(QpInner::new(&self.pd, settings)?);
        Ok(Arc::new(QpHandle::new(&self.device, qp, send, recv)))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        let srq = Arc::new(SrqInner::new(&self.pd, init)?);
        Ok(Arc::new(SrqHandle::new(&self.device, srq)))
    }
}
