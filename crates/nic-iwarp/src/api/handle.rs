//! Queue pairs of the API: creation, posting and destruction.

use std::sync::Arc;

use host::Span;
use verbs::provider::{QpOps, QpParts, downcast};
use verbs::{Error, QpState, RecvWr, Result, SendWr};

use crate::api::cq::CqInner;
use crate::api::srq::SrqInner;
use crate::connection::end_reason::EndReason;
use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::queues::qp_queues::{QpParams, state_of};
use crate::wake::ready::Driver;

/// Completions to reserve for a queue pair with a shared receive queue.
const SRQ_COMPLETIONS: u32 = 64;

/// The program's handle of a queue pair; dropping it destroys the queue pair.
pub(crate) struct QpHandle {
    device: Arc<DeviceInner>,
    qp: Arc<QpInner>,
    /// The completion queues, and how many completions the queue pair reserves in each.
    send_cq: (Arc<CqInner>, u32),
    recv_cq: (Arc<CqInner>, u32),
    /// The source of its receives.
    _srq: Option<Arc<SrqInner>>,
}

impl QpHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>, pd: u32, init: &QpParts) -> Result<Self> {
        let send_cq: Arc<CqInner> = downcast(init.send_cq.clone(), "the send completion queue")?;
        let recv_cq: Arc<CqInner> = downcast(init.recv_cq.clone(), "the receive completion queue")?;
        let srq = init.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqInner>> = srq.transpose()?;
        let cap = init.cap;
        let params = QpParams {
            num: device.take_qp_num()?,
            pd,
            cap,
            sq_sig_all: init.sq_sig_all,
            reported_qp_num: init.reported_qp_num,
            send_ring: send_cq.ring().clone(),
            recv_ring: recv_cq.ring().clone(),
            srq: srq.as_ref().map(|srq| srq.receives().clone()),
            splits: init.split_receives,
        };
        let num = params.num;
        let qp = Arc::new(QpInner::new(&device.shared, params).inspect_err(|_| device.free_qp_num(num))?);
        let recv_depth = if srq.is_some() { SRQ_COMPLETIONS } else { cap.max_recv_wr };
        // The rest of one message may complete in addition to the receives.
        let recv_depth = recv_depth + u32::from(init.split_receives);
        let (send_cq, recv_cq) = ((send_cq, cap.max_send_wr), (recv_cq, recv_depth));
        for (cq, depth) in [&send_cq, &recv_cq] {
            cq.attach(&qp, *depth);
        }
        device.register_qp(&qp);
        Ok(Self { device: device.clone(), qp, send_cq, recv_cq, _srq: srq })
    }

    pub(crate) fn qp(&self) -> &Arc<QpInner> {
        &self.qp
    }

    /// Receives everything that has arrived by now, as a card would have done on arrival, and sends the responses.
    fn receive_pending(&self) {
        self.qp.with(|conn| conn.progress(&self.qp.queues, Driver::Other));
    }

    fn is_forked(&self) -> bool {
        self.device.shared.fork_guard.is_forked()
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.receive_pending();
        self.qp.queues.set_dropped();
        self.qp.end(&EndReason::Disconnected);
        self.device.registry.cancel(&self.qp);
        for (cq, depth) in [&self.send_cq, &self.recv_cq] {
            cq.detach(&self.qp, *depth);
        }
        self.device.forget_qp(self.qp.num());
    }
}

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.qp.num()
    }

    fn state(&self) -> QpState {
        state_of(self.qp.queues.state())
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.post_send(wr)
    }

    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.device.shared.fork_guard.check().map_err(|e| (0, e))?;
        self.qp.post_sends(wrs)
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.post_recv(wr)
    }

    #[inline]
    fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.post_rest(wr)
    }

    fn failure(&self) -> Option<String> {
        self.qp.queues.failure()
    }

    fn has_completed(&self) -> bool {
        let slots = self.qp.queues.slots();
        !self.is_forked() && [&self.send_cq, &self.recv_cq].iter().any(|cq| cq.0.ring().has_completed(slots))
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.set_rnr_retry(retries);
        Ok(())
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.queues.set_rnr_pause(pause);
        Ok(())
    }

    fn to_error(&self) {
        if !self.is_forked() {
            self.qp.end(&EndReason::Disconnected);
            self.device.registry.cancel(&self.qp);
        }
    }
}
