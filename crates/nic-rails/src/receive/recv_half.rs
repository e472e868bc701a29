//! The receiving half of a queue pair: its own receives or a shared queue, and the delivery of their completions.

use std::sync::Arc;

use host::{Host, Lock, LockGuard};
use verbs::{Error, QpCap, RecvWr, Result, Wc, WcStatus};

use crate::completion::completions::{CompletionSink, Completions};
use crate::context::QpContext;
use crate::qp_actions::QpActions;
use crate::receive::receive_queue::ReceiveQueue;
use crate::receive::srq::SrqInner;
use crate::shared::DeviceShared;
use crate::state;

pub(crate) struct RecvHalf {
    pub(crate) completions: Arc<Completions>,
    pub(crate) srq: Option<Arc<SrqInner>>,
    cap: QpCap,
    receives: Lock<ReceiveQueue>,
}

impl RecvHalf {
    pub(crate) fn new(
        shared: &DeviceShared,
        cap: &QpCap,
        completions: Arc<Completions>,
        srq: Option<Arc<SrqInner>>,
    ) -> Self {
        let lane = srq.as_ref().map_or_else(|| shared.next_lane(), |srq| srq.lane());
        let mut receives = ReceiveQueue::new(srq.is_none().then_some(cap), lane);
        completions.reserve(depth(cap, srq.as_deref()));
        if srq.is_some() {
            // Completions of shared receives are expected as long as the queue pair exists.
            receives.add_outstanding_if_new(&completions);
        }
        Self { completions, srq, cap: *cap, receives: Lock::new(receives) }
    }

    #[inline]
    pub(crate) fn lock<'a>(&'a self, host: &'a Host) -> LockGuard<'a, ReceiveQueue> {
        self.receives.lock(host)
    }

    /// The lane on which messages are received.
    pub(crate) fn lane(&self, host: &Host) -> usize {
        self.lock(host).lane
    }

    pub(crate) fn post(&self, own: &QpContext, wr: &RecvWr<'_>) -> Result<()> {
        if self.srq.is_some() {
            return Err(Error::Invalid("the queue pair has a shared receive queue; post there".into()));
        }
        Error::check_limit("pieces of a receive", wr.sges.len() as u64, self.cap.max_recv_sge.into())?;
        let mut receives = self.lock(&own.shared().host);
        receives.post(own.shared(), &self.completions, wr)?;
        if own.state.get() == state::ERROR {
            self.flush_into(own, &mut receives, &mut CompletionSink::ring(&self.completions));
        }
        Ok(())
    }

    /// Handles a completion of a lane's receive queue.
    #[inline]
    pub(crate) fn complete(
        &self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> QpActions {
        if wc.is_ok()
            && wc.invalidated.is_none()
            && self.srq.is_none()
            && self.complete_own_receive(own, lane, wc, sink)
        {
            return QpActions { failover: own.is_failing_over(), ..QpActions::default() };
        }
        self.complete_any(own, lane, wc, sink)
    }

    /// The usual case: one of its own receives was filled. False if the connection has ended; then nothing has been
    /// done.
    #[inline]
    fn complete_own_receive(
        &self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> bool {
        let mut receives = self.lock(&own.shared().host);
        if own.state.get() == state::ERROR {
            return false;
        }
        let wr_id = receives.on_filled(lane, wc.wr_id);
        let delivered = sink.deliver(Wc { wr_id, qp_num: own.reported_qp_num, ..*wc }, own, (0, 1));
        receives.free += u32::from(delivered);
        receives.remove_outstanding_if_idle(&self.completions);
        true
    }

    #[inline(never)]
    fn complete_any(
        &self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> QpActions {
        let mut wc = Wc { qp_num: own.reported_qp_num, ..*wc };
        wc.invalidated = wc.invalidated.and_then(|key| own.pd.invalidate(lane, key));
        let mut receives = self.lock(&own.shared().host);
        // A failure of the program's own queue pair is reported; a failed lane need not end the connection.
        let has_ended = own.state.get() == state::ERROR;
        match &self.srq {
            None => receives.on_ended(lane, wc, has_ended, |wc| {
                sink.deliver(Wc { qp_num: own.reported_qp_num, ..wc }, own, (0, 1))
            }),
            Some(srq) => {
                receives.on_shared_ended(srq, lane, wc, has_ended, |wc| sink.deliver(wc, own, (0, 0)))
            }
        }
        if own.state.get() == state::ERROR {
            self.flush_into(own, &mut receives, sink);
        }
        receives.remove_outstanding_if_idle(&self.completions);
        drop(receives);
        let failover = own.is_failing_over();
        match wc.status {
            WcStatus::Success => QpActions { failover, ..QpActions::default() },
            _ if own.state.get() == state::ERROR => QpActions::default(),
            // Caused by the peer; the reason may still come.
            WcStatus::WrFlushErr => QpActions { lane_failure: true, ..QpActions::default() },
            _ => QpActions { failure: true, ..QpActions::default() },
        }
    }

    /// The connection has ended: flushes receives that are posted to no lane.
    pub(crate) fn flush(&self, own: &QpContext) {
        let mut receives = self.lock(&own.shared().host);
        self.flush_into(own, &mut receives, &mut CompletionSink::ring(&self.completions));
    }

    fn flush_into(&self, own: &QpContext, receives: &mut ReceiveQueue, sink: &mut CompletionSink<'_>) {
        let named = |wc| Wc { qp_num: own.reported_qp_num, ..wc };
        match &self.srq {
            None => receives.flush(|wc| sink.deliver(named(wc), own, (0, 1))),
            Some(srq) => receives.flush_shared(srq, |wc| sink.deliver(named(wc), own, (0, 0))),
        }
    }

    /// Frees slots for receives. Returns whether a caller has found the queue full.
    pub(crate) fn free_slots(&self, host: &Host, slots: u32) -> bool {
        let mut queue = self.lock(host);
        queue.free += slots;
        std::mem::take(&mut queue.refused)
    }
}

/// How many receives may complete at a time.
fn depth(cap: &QpCap, srq: Option<&SrqInner>) -> u32 {
    srq.map_or(cap.max_recv_wr, |srq| srq.depth)
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.receives
            .get_mut()
            .outstanding_lane()
            .for_each(|lane| self.completions.remove_outstanding_lane(lane));
        self.completions.release(depth(&self.cap, self.srq.as_deref()));
    }
}
