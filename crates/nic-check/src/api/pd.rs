//! Protection domains and regions.

use std::sync::Arc;

use host::Lock;
use verbs::provider::{CqOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, MwKind, Result, SrqInit};

use crate::api::cq::CheckCq;
use crate::api::qp::CheckQp;
use crate::api::srq::CheckSrq;
use crate::queue_pairs::Opened;
use crate::regions::Region;
use crate::report::{Kind, find};
use crate::requests::{Request, Requests};
use findings::Stack;

pub(crate) struct CheckPd {
    pub(crate) below: Arc<dyn PdOps>,
    pub(crate) shared: Arc<Opened>,
}

fn cq_of(cq: &Arc<dyn CqOps>) -> Result<Arc<CheckCq>> {
    downcast(cq.clone(), "the completion queue")
}

impl CheckPd {
    fn registered(&self, below: Box<dyn MrOps>, access: Access, buf: Option<&Buf>) -> Box<dyn MrOps> {
        let region = Arc::new(Region::new((below.lkey(), below.rkey()), below.addr(), access, buf));
        self.shared.regions.add(&region);
        Box::new(CheckMr { below: Some(below), region, shared: self.shared.clone() })
    }
}

impl PdOps for CheckPd {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        Ok(self.registered(self.below.reg_mr(buf, access)?, access, Some(buf)))
    }

    fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Box<dyn MrOps>> {
        Ok(self.registered(self.below.reg_mr_at(buf, addr, access)?, access, Some(buf)))
    }

    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        Ok(self.registered(self.below.reg_all(access)?, access, None))
    }

    fn alloc_mw(&self, kind: MwKind) -> Result<Box<dyn MwOps>> {
        self.below.alloc_mw(kind)
    }

    fn create_qp(&self, parts: &QpParts) -> Result<Arc<dyn QpOps>> {
        let srq = parts.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<CheckSrq>> = srq.transpose()?;
        let cqs = (cq_of(&parts.send_cq)?, cq_of(&parts.recv_cq)?);
        if let Some(card) = self.shared.card {
            card.check_qp(&parts.cap, srq.is_some());
        }
        let below = self.below.create_qp(&QpParts {
            send_cq: cqs.0.below.clone(),
            recv_cq: cqs.1.below.clone(),
            srq: srq.as_ref().map(|srq| srq.below.clone()),
            ..parts.clone()
        })?;
        Ok(CheckQp::new(&self.shared, below, parts, cqs, srq))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        Ok(Arc::new(CheckSrq::new(&self.shared, self.below.create_srq(init)?)))
    }
}

struct CheckMr {
    /// `None` after the region was deregistered.
    below: Option<Box<dyn MrOps>>,
    region: Arc<Region>,
    shared: Arc<Opened>,
}

impl CheckMr {
    /// Reports a request that still uses the region. Receives that no message has met are left at the end of many programs.
    fn check_use(&self) {
        for qp in self.shared.all_qps().into_iter().filter(|qp| !qp.has_failed()) {
            let uses = |request: &&Request| request.sges.iter().any(|sge| sge.lkey == self.region.lkey);
            let in_use = |requests: &Lock<Requests>| {
                let requests = requests.lock(&self.shared.host);
                requests.iter().find(uses).map(|request| (request.text.to_string(), request.posted))
            };
            let [sends, prepared, receives] = qp.all_requests();
            let found = in_use(sends)
                .or_else(|| in_use(prepared))
                .or_else(|| self.shared.is_strict.then(|| in_use(receives)).flatten());
            let Some((text, posted)) = found else { continue };
            let about = [("region", self.region.text()), ("request", text)];
            let what = "a region was deregistered while an outstanding request used it";
            find(Kind::RegionInUse, what, &about, &[("deregistered", Stack::here()), ("posted", posted)]);
            return;
        }
    }

    fn end(&mut self) -> Result<()> {
        let Some(below) = self.below.take() else { return Ok(()) };
        if self.shared.is_usable() {
            self.check_use();
            if let Err(why) = self.region.check_presence() {
                let what = format!("the memory of a region was gone before it was deregistered: {why}");
                let stacks = [("deregistered", Stack::here()), ("registered", self.region.registered)];
                find(Kind::MemoryGone, &what, &[("region", self.region.text())], &stacks);
            }
            self.shared.regions.end(&self.region);
        }
        below.dereg()
    }
}

impl Drop for CheckMr {
    fn drop(&mut self) {
        // As when the region below is dropped.
        let _ = self.end();
    }
}

impl MrOps for CheckMr {
    fn lkey(&self) -> u32 {
        self.region.lkey
    }

    fn rkey(&self) -> u32 {
        self.region.rkey
    }

    fn addr(&self) -> u64 {
        self.below.as_ref().map_or(0, |below| below.addr())
    }

    /// The region that was ends, and another one with the same keys begins.
    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        let pd: Arc<CheckPd> = downcast(pd.clone(), "the protection domain")?;
        let Some(below) = &mut self.below else { return Ok(()) };
        below.rereg(&pd.below, buf, access)?;
        let keys = (below.lkey(), below.rkey());
        let region = Arc::new(Region::new(keys, below.addr(), access, buf.or(self.region.buf())));
        self.shared.regions.end(&self.region);
        self.shared.regions.add(&region);
        self.region = region;
        Ok(())
    }

    fn has_windows(&self) -> bool {
        self.below.as_ref().is_some_and(|below| below.has_windows())
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}
