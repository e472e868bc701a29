//! Protection domains and regions, and shared receive queues.

use std::sync::Arc;

use trace::Class;
use trace::format::Fields;
use trace::names::Call;
use verbs::provider::{CqOps, MrOps, MwOps, PdOps, QpOps, QpParts, SrqOps, downcast};
use verbs::{Access, Buf, MwKind, RecvWr, Result, SrqInit};

use crate::api::cq::TraceCq;
use crate::api::qp::TraceQp;
use crate::counters::Kind;
use crate::shared::{Counted, Shared, post_recv, recv_fields};

pub(crate) struct TracePd {
    pub(crate) below: Arc<dyn PdOps>,
    pub(crate) counted: Counted,
}

/// The fields of a registration.
fn fields(shared: &Shared, below: &dyn MrOps, bytes: u64, access: Access) -> Fields {
    Fields {
        remote: below.addr(),
        local: bytes,
        key: below.lkey(),
        other: below.rkey(),
        extra: shared.text(format_args!("{access:?}")),
        ..Fields::default()
    }
}

impl TracePd {
    fn register(
        &self,
        bytes: u64,
        access: Access,
        make: impl FnOnce() -> Result<Box<dyn MrOps>>,
    ) -> Result<Box<dyn MrOps>> {
        let shared = &self.counted.shared;
        let below = shared.call(Call::RegMr, 0, make, |below| fields(shared, &**below, bytes, access))?;
        shared.counters.change_registered(bytes.cast_signed());
        Ok(Box::new(TraceMr { below: Some(below), bytes, counted: Counted::new(shared, Kind::Mr) }))
    }
}

fn cq_of(cq: &Arc<dyn CqOps>) -> Result<Arc<TraceCq>> {
    downcast(cq.clone(), "the completion queue")
}

impl PdOps for TracePd {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.register(buf.len() as u64, access, || self.below.reg_mr(buf, access))
    }

    fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Box<dyn MrOps>> {
        self.register(buf.len() as u64, access, || self.below.reg_mr_at(buf, addr, access))
    }

    fn reg_all(&self, access: Access) -> Result<Box<dyn MrOps>> {
        self.register(0, access, || self.below.reg_all(access))
    }

    fn alloc_mw(&self, kind: MwKind) -> Result<Box<dyn MwOps>> {
        self.below.alloc_mw(kind)
    }

    fn create_qp(&self, parts: &QpParts) -> Result<Arc<dyn QpOps>> {
        let srq = parts.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<TraceSrq>> = srq.transpose()?;
        let (send_cq, recv_cq) = (cq_of(&parts.send_cq)?, cq_of(&parts.recv_cq)?);
        let below = QpParts {
            send_cq: send_cq.below.clone(),
            recv_cq: recv_cq.below.clone(),
            srq: srq.as_ref().map(|srq| srq.below.clone()),
            ..parts.clone()
        };
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let shared = &self.counted.shared;
        let mut described = (0, None);
        let below = shared.call(
            Call::CreateQp,
            0,
            || self.below.create_qp(&below),
            |below| {
                let reported = parts.reported_qp_num.unwrap_or_else(|| below.num());
                described = shared.object(
                    Class::Qp,
                    [
                        two(below.num(), reported),
                        two(send_cq.object, recv_cq.object),
                        two(srq.as_ref().map_or(0, |srq| srq.object), parts.sq_sig_all.into()),
                        two(parts.cap.max_send_wr, parts.cap.max_recv_wr),
                    ],
                );
                Fields { object: described.0, ..Fields::default() }
            },
        )?;
        Ok(TraceQp::new(shared, below, parts, described))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        let shared = &self.counted.shared;
        let mut object = 0;
        let below = shared.call(
            Call::CreateSrq,
            0,
            || self.below.create_srq(init),
            |below| {
                object = shared.object(Class::Srq, [below.id().into(), init.max_wr.into(), 0, 0]).0;
                Fields { object, ..Fields::default() }
            },
        )?;
        Ok(Arc::new(TraceSrq { below, object, counted: Counted::new(shared, Kind::Srq) }))
    }
}

struct TraceMr {
    /// None after the region was deregistered.
    below: Option<Box<dyn MrOps>>,
    bytes: u64,
    counted: Counted,
}

impl TraceMr {
    fn end(&mut self) -> Result<()> {
        let Some(below) = self.below.take() else { return Ok(()) };
        let shared = &self.counted.shared;
        shared.counters.change_registered(-self.bytes.cast_signed());
        let key = below.lkey();
        shared.call(Call::DeregMr, 0, || below.dereg(), |()| Fields { key, ..Fields::default() })
    }
}

impl Drop for TraceMr {
    fn drop(&mut self) {
        // As when the region below is dropped.
        let _ = self.end();
    }
}

impl MrOps for TraceMr {
    fn lkey(&self) -> u32 {
        self.below.as_ref().map_or(0, |below| below.lkey())
    }

    fn rkey(&self) -> u32 {
        self.below.as_ref().map_or(0, |below| below.rkey())
    }

    fn addr(&self) -> u64 {
        self.below.as_ref().map_or(0, |below| below.addr())
    }

    /// A change is recorded as a registration with the same keys.
    fn rereg(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        let pd: Arc<TracePd> = downcast(pd.clone(), "the protection domain")?;
        let Some(below) = &mut self.below else { return Ok(()) };
        let (shared, bytes) = (&self.counted.shared, buf.map_or(self.bytes, |buf| buf.len() as u64));
        let before = fields(shared, &**below, bytes, access);
        let remote = buf.map_or(before.remote, Buf::addr);
        shared.call(
            Call::RegMr,
            0,
            || below.rereg(&pd.below, buf, access),
            |()| Fields { remote, ..before },
        )?;
        shared.counters.change_registered(bytes.wrapping_sub(self.bytes).cast_signed());
        self.bytes = bytes;
        Ok(())
    }

    fn has_windows(&self) -> bool {
        self.below.as_ref().is_some_and(|below| below.has_windows())
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

pub(crate) struct TraceSrq {
    pub(crate) below: Arc<dyn SrqOps>,
    pub(crate) object: u32,
    counted: Counted,
}

impl Drop for TraceSrq {
    fn drop(&mut self) {
        let _ = self.counted.shared.call(Call::DestroySrq, self.object, || Ok(()), |()| Fields::default());
    }
}

impl SrqOps for TraceSrq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        post_recv(&self.counted.shared, self.object, None, recv_fields(wr), || self.below.post_recv(wr))
    }

    fn arm_limit(&self, limit: u32) -> Result<()> {
        let about = |(): &()| Fields { local: limit.into(), ..Fields::default() };
        self.counted.shared.call(Call::ArmLimit, self.object, || self.below.arm_limit(limit), about)
    }

    fn limit(&self) -> u32 {
        self.below.limit()
    }
}
