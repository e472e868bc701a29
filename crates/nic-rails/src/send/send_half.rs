//! The sending half of a queue pair: its requests, and the delivery of their completions.

use std::sync::Arc;

use host::{Host, Lock, LockGuard};
use verbs::{Data, Error, QpCap, Result, SendOp, SendWr, Wc};

use crate::completion::completions::{CompletionSink, Completions};
use crate::context::QpContext;
use crate::qp_actions::QpActions;
use crate::send::send_queue::{SendQueue, is_loss};
use crate::shared::DeviceShared;

pub(crate) struct SendHalf {
    pub(crate) completions: Arc<Completions>,
    cap: QpCap,
    sends: Lock<SendQueue>,
}

impl SendHalf {
    pub(crate) fn new(
        shared: &DeviceShared,
        cap: &QpCap,
        signals_all: bool,
        completions: Arc<Completions>,
    ) -> Self {
        completions.reserve(cap.max_send_wr);
        let sends = SendQueue::new(shared, cap, signals_all, completions.clone());
        Self { completions, cap: *cap, sends: Lock::new(sends) }
    }

    /// The locked queue; requests that the caller makes startable or complete are not advanced.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, host: &'a Host) -> LockGuard<'a, SendQueue> {
        self.sends.lock(host)
    }

    /// Works on the queue, starts the requests that may start then, and reports completed ones.
    pub(crate) fn with_queue<R>(
        &self,
        own: &QpContext,
        work: impl FnOnce(&mut SendQueue) -> R,
    ) -> (R, QpActions) {
        let mut sends = self.lock(&own.shared().host);
        let result = work(&mut sends);
        sends.advance(own, &mut CompletionSink::ring(&self.completions));
        (result, sends.actions())
    }

    /// Posts a request, and starts the requests that may start then.
    #[inline]
    pub(crate) fn post(&self, own: &QpContext, wr: &SendWr<'_>, len: u64) -> (Result<()>, QpActions) {
        let mut sends = self.lock(&own.shared().host);
        if sends.push_plain(own, wr, len) {
            return (Ok(()), QpActions::default());
        }
        drop(sends);
        self.with_queue(own, |sends| sends.push(wr, len))
    }

    /// The lanes are in error: flushes all outstanding requests.
    pub(crate) fn fail(&self, own: &QpContext) {
        let mut sends = self.lock(&own.shared().host);
        sends.stop();
        sends.advance(own, &mut CompletionSink::ring(&self.completions));
    }

    /// Handles a completion of a lane's send queue.
    #[inline]
    pub(crate) fn complete(
        &self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> QpActions {
        let mut sends = self.lock(&own.shared().host);
        if sends.complete_plain(own, lane, wc, sink) {
            sends.remove_outstanding_if_idle(lane);
            drop(sends);
            return QpActions { failover: own.is_failing_over(), ..QpActions::default() };
        }
        drop(sends);
        self.complete_any(own, lane, wc, sink)
    }

    /// Handles any completion: records it, starts requests that it lets start, and reports completed ones. Returns the actions
    /// that the caller must take.
    #[inline(never)]
    fn complete_any(
        &self,
        own: &QpContext,
        lane: usize,
        wc: &Wc,
        sink: &mut CompletionSink<'_>,
    ) -> QpActions {
        let mut sends = self.lock(&own.shared().host);
        sends.complete(own, lane, wc);
        sends.advance(own, sink);
        sends.remove_outstanding_if_idle(lane);
        let actions = sends.actions();
        drop(sends);
        QpActions { lane_failure: is_loss(wc.status), failover: own.is_failing_over(), ..actions }
    }

    /// Frees slots for requests. Returns whether a caller has found the queue full.
    pub(crate) fn free_slots(&self, host: &Host, slots: u32) -> bool {
        let mut queue = self.lock(host);
        queue.free += slots;
        std::mem::take(&mut queue.refused)
    }

    /// Checks the limits of a request; returns its length.
    pub(crate) fn check(&self, shared: &DeviceShared, wr: &SendWr<'_>) -> Result<u64> {
        if wr.op.is_of_window() {
            return Err(verbs::provider::no_windows("rails"));
        }
        let len = match wr.data {
            Data::Inline(bytes) => {
                Error::check_limit("bytes of inline data", bytes.len() as u64, self.cap.max_inline.into())?;
                if matches!(wr.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
                    let why = "a request that returns data needs registered memory for it, not inline data";
                    return Err(Error::Invalid(why.into()));
                }
                bytes.len() as u64
            }
            Data::Sges(sges) => {
                let most = self.cap.max_send_sge.into();
                Error::check_limit("pieces of a send request", sges.len() as u64, most)?;
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
        };
        Error::check_limit("bytes of a message", len, shared.attr.max_msg_size)?;
        Ok(len)
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        // Outstanding requests never complete after this.
        self.sends
            .get_mut()
            .outstanding_lanes()
            .for_each(|lane| self.completions.remove_outstanding_lane(lane));
        self.completions.release(self.cap.max_send_wr);
    }
}
