//! Queue pairs.
//!
//! Data path: a request without a rule costs two loads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::{Lock, Span, Time};
use verbs::provider::{QpOps, QpParts};
use verbs::{
    Buf, Data, Error, QpCap, QpState, RecvWr, RemoteAddr, Result, SendFlags, SendOp, SendWr, WcStatus,
};

use crate::api::receive::{FULL_PAUSE, ReceiveFaults, Receiver, reason};
use crate::effect::{Effect, Injected};
use crate::engine::Hit;
use crate::operation::Operation;
use crate::owned::{OwnedSend, Waiting};
use crate::plans::Plan;
use crate::shared::{KnownQp, Shared, delay_of, injected_error, vanish};

/// The operations that post to a send queue, as bits.
fn requests() -> u32 {
    Operation::Request.covered_bits()
}

pub(crate) struct FaultQp {
    pub(crate) below: Arc<dyn QpOps>,
    shared: Arc<Shared>,
    cap: QpCap,
    /// The number in completions.
    reported_num: u32,
    has_srq: bool,
    peer: Arc<Mutex<Option<SocketAddr>>>,
    waiting: Lock<Waiting<OwnedSend>>,
    is_waiting: AtomicBool,
    receives: ReceiveFaults,
    /// Why it has failed, if by a fault.
    kept_reason: Arc<OnceLock<String>>,
    /// The operations that post to a send queue.
    requests: u32,
    own: Weak<Self>,
}

impl FaultQp {
    pub(crate) fn new(shared: &Arc<Shared>, below: Arc<dyn QpOps>, parts: &QpParts) -> Arc<Self> {
        let qp = Arc::new_cyclic(|own| Self {
            reported_num: parts.reported_qp_num.unwrap_or_else(|| below.num()),
            below,
            shared: shared.clone(),
            cap: parts.cap,
            has_srq: parts.srq.is_some(),
            peer: Arc::default(),
            waiting: Lock::new(Waiting::default()),
            is_waiting: AtomicBool::new(false),
            receives: ReceiveFaults::new(shared, parts.cap.max_recv_wr, parts.cap.max_recv_sge),
            kept_reason: Arc::default(),
            requests: requests(),
            own: own.clone(),
        });
        shared.know_qp(KnownQp { ops: qp.own_ops(), peer: qp.peer.clone(), has_srq: qp.has_srq });
        qp
    }

    fn own_ops(&self) -> Weak<dyn QpOps> {
        self.own.clone()
    }

    pub(crate) fn set_peer(&self, peer: SocketAddr) {
        *self.peer.lock().unwrap_or_else(|e| e.into_inner()) = Some(peer);
    }

    fn peer(&self) -> Option<SocketAddr> {
        *self.peer.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn receiver(&self) -> Receiver {
        let nums = Some((self.num(), self.reported_num));
        Receiver { nums, qp: self.own_ops(), peer: self.peer(), kept_reason: self.kept_reason.clone() }
    }

    /// Whether a request needs [`FaultQp::post_wanted`], instead of the NIC directly.
    #[inline]
    fn concerns_sends(&self) -> bool {
        self.shared.engine.wants(self.requests) || self.is_waiting.load(Ordering::Acquire)
    }

    /// Posts a request, unless a fault prevents it.
    #[cold]
    fn post_wanted(&self, wr: &SendWr<'_>) -> Result<()> {
        let (shared, operation, peer) = (&self.shared, Operation::of_send(wr.op), self.peer());
        shared.below.check()?;
        let mut waiting = self.waiting.lock(shared.host());
        let hit = shared.engine.decide(operation, peer, Some(self.num()));
        let effect = hit.as_ref().map(|hit| hit.effect);
        let posted = match (effect, &hit) {
            (Some(Effect::Error(errno)), Some(hit)) => return Err(injected_error(operation, errno, hit)),
            (Some(Effect::Vanish), _) => vanish(),
            (Some(Effect::Status(status)), Some(hit)) => self.post_refused(&mut waiting, wr, status, hit),
            _ => self.post_or_wait(&mut waiting, wr, hit.as_ref().and_then(delay_of)),
        };
        drop(waiting);
        match (&posted, effect) {
            (Err(_), _) => shared.engine.take_back(operation, peer, hit.as_ref()),
            (Ok(()), Some(Effect::Event(Injected::QpFatal))) => shared.fail_qp(self),
            (Ok(()), Some(Effect::Event(Injected::LastWqeReached))) if self.has_srq => self.to_error(),
            (Ok(()), Some(Effect::Event(event))) => shared.report(event),
            _ => {}
        }
        posted
    }

    /// Posts a request that the NIC refuses, in place of a request that has to end with a status.
    fn post_refused(
        &self,
        waiting: &mut Waiting<OwnedSend>,
        wr: &SendWr<'_>,
        status: WcStatus,
        hit: &Hit,
    ) -> Result<()> {
        let refused = [self.shared.refused_sge(1)?];
        // The NIC checks the memory of a write before it asks the peer for anything.
        let flags = wr.flags - SendFlags::NOTIFY - SendFlags::LOCAL;
        let replaced = SendWr {
            wr_id: wr.wr_id,
            op: SendOp::Write(RemoteAddr::default()),
            data: Data::Sges(&refused),
            flags,
        };
        self.shared.plans.add(Plan {
            qp_num: Some(self.reported_num),
            is_recv: false,
            wr_id: wr.wr_id,
            status,
            opcode: wr.op.opcode(),
            qp: self.own_ops(),
            reason: reason(hit),
            kept_reason: self.kept_reason.clone(),
        });
        let posted = self.check(wr, 0).and_then(|()| self.post_or_wait(waiting, &replaced, None));
        if posted.is_err() {
            self.shared.plans.remove_last(Some(self.reported_num), false);
        }
        posted
    }

    /// Posts a request to the NIC, or adds it behind the waiting requests.
    fn post_or_wait(
        &self,
        waiting: &mut Waiting<OwnedSend>,
        wr: &SendWr<'_>,
        delay: Option<Span>,
    ) -> Result<()> {
        if delay.is_none() && waiting.is_empty() {
            return self.below.post_send(wr);
        }
        match self.state() {
            QpState::ReadyToSend => {
                self.check(wr, waiting.len())?;
                self.shared.timer.start()?;
                let due = self.shared.host().now() + delay.unwrap_or(Span::ZERO);
                let due = waiting.push(due, OwnedSend::new(wr));
                self.is_waiting.store(true, Ordering::Release);
                self.later(due)
            }
            state => {
                if state == QpState::Error {
                    self.post_all(waiting);
                }
                self.below.post_send(wr)
            }
        }
    }

    /// The checks that the NIC makes during the call.
    fn check(&self, wr: &SendWr<'_>, waiting: usize) -> Result<()> {
        let bytes = match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("the number of SGEs", sges.len() as u64, self.cap.max_send_sge.into())?;
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
            Data::Inline(_) if wr.op.fetches() => {
                return Err(Error::Invalid("an operation that returns data cannot have inline data".into()));
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.cap.max_inline.into())?;
                bytes.len() as u64
            }
        };
        Error::check_limit("bytes in the message", bytes, self.shared.attr.max_msg_size)?;
        if waiting >= self.cap.max_send_wr as usize {
            return Err(Error::QueueFull { queue: "send", depth: self.cap.max_send_wr });
        }
        Ok(())
    }

    /// Posts all requests that wait: the queue pair has failed, and flushes them.
    fn post_all(&self, waiting: &mut Waiting<OwnedSend>) {
        for request in waiting.take() {
            // A queue that is full of flushed requests loses this one, as a destroyed queue does.
            let _ = self.below.post_send(&request.wr());
        }
        self.is_waiting.store(false, Ordering::Release);
    }

    /// Posts requests that wait, when their time has come.
    fn later(&self, due: Time) -> Result<()> {
        let own = self.own.clone();
        self.shared.timer.at(due, move || {
            if let Some(own) = own.upgrade() {
                own.drain();
            }
        })
    }

    fn drain(&self) {
        let host = self.shared.host();
        let mut waiting = self.waiting.lock(host);
        while let Some(first) = waiting.first_due(host.now()) {
            match self.below.post_send(&first.wr()) {
                Err(Error::QueueFull { .. }) => {
                    // If there is no timer any more, nothing waits for the request either.
                    let _ = self.later(host.now() + FULL_PAUSE);
                    break;
                }
                // The call has already succeeded, so that only the queue pair can fail.
                Err(_) => self.below.to_error(),
                Ok(()) => {}
            }
            waiting.remove_first();
        }
        self.is_waiting.store(!waiting.is_empty(), Ordering::Release);
    }

    fn later_receives(&self, due: Time) -> Result<()> {
        let own = self.own.clone();
        self.shared.timer.at(due, move || {
            if let Some(own) = own.upgrade() {
                let has_failed = own.state() == QpState::Error;
                own.receives.drain(has_failed, &|wr| own.below.post_recv(wr), &|due| own.later_receives(due));
            }
        })
    }
}

impl Drop for FaultQp {
    fn drop(&mut self) {
        self.shared.plans.forget(&self.own_ops());
    }
}

impl QpOps for FaultQp {
    fn num(&self) -> u32 {
        self.below.num()
    }

    fn state(&self) -> QpState {
        self.below.state()
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if self.concerns_sends() { self.post_wanted(wr) } else { self.below.post_send(wr) }
    }

    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        if !self.concerns_sends() {
            return self.below.post_sends(wrs);
        }
        wrs.iter().enumerate().try_for_each(|(posted, wr)| self.post_wanted(wr).map_err(|e| (posted, e)))
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        if self.has_srq || !self.receives.concerns() {
            return self.below.post_recv(wr);
        }
        let below = |wr: &RecvWr<'_>| self.below.post_recv(wr);
        self.receives.post(wr, &self.receiver(), &below, &|due| self.later_receives(due))
    }

    #[inline]
    fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.below.post_rest(wr)
    }

    fn to_error(&self) {
        self.below.to_error();
    }

    fn failure(&self) -> Option<String> {
        self.kept_reason.get().cloned().or_else(|| self.below.failure())
    }

    fn has_completed(&self) -> bool {
        self.below.has_completed()
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.below.set_rnr_retry(retries)
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.below.set_rnr_pause(pause)
    }

    fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        self.below.map(remote, len)
    }

    fn notify(&self) -> Result<()> {
        self.below.notify()
    }
}
