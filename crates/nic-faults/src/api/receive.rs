//! [`ReceiveFaults`]: the faults of receives, of queue pairs and of shared receive queues.
//!
//! Data path: a receive without a rule costs two loads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use host::{Lock, Span, Time};
use verbs::provider::QpOps;
use verbs::{Error, RecvWr, Result, WcOpcode};

use crate::effect::Effect;
use crate::engine::Hit;
use crate::operation::Operation;
use crate::owned::{OwnedRecv, Waiting};
use crate::plans::Plan;
use crate::shared::{Shared, delay_of, injected_error, vanish};

/// How soon a request is tried again that found its queue full.
pub(crate) const FULL_PAUSE: Span = Span::from_us(100);
/// The length of the receive that replaces a failing receive: longer than most messages, so that the NIC finds
/// the wrong key and not a message that is too long.
const LONG: u64 = 1 << 30;

/// The queue pair of a receive; of a shared queue none is known.
pub(crate) struct Receiver {
    /// The device's number, and the number in completions.
    pub(crate) nums: Option<(u32, u32)>,
    pub(crate) qp: Weak<dyn QpOps>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) kept_reason: Arc<OnceLock<String>>,
}

/// The receives of one queue.
pub(crate) struct ReceiveFaults {
    shared: Arc<Shared>,
    max_wr: u32,
    max_sge: u32,
    waiting: Lock<Waiting<OwnedRecv>>,
    is_waiting: AtomicBool,
}

impl ReceiveFaults {
    pub(crate) fn new(shared: &Arc<Shared>, max_wr: u32, max_sge: u32) -> Self {
        let (waiting, is_waiting) = (Lock::new(Waiting::default()), AtomicBool::new(false));
        Self { shared: shared.clone(), max_wr, max_sge, waiting, is_waiting }
    }

    /// Whether a receive needs [`ReceiveFaults::post`], instead of the NIC directly.
    #[inline]
    pub(crate) fn concerns(&self) -> bool {
        self.shared.engine.wants(Operation::Recv.bit()) || self.is_waiting.load(Ordering::Acquire)
    }

    /// Posts a receive by `below`, unless a fault prevents it. `later` drains the queue at a time.
    #[cold]
    pub(crate) fn post(
        &self,
        wr: &RecvWr<'_>,
        receiver: &Receiver,
        below: &dyn Fn(&RecvWr<'_>) -> Result<()>,
        later: &dyn Fn(Time) -> Result<()>,
    ) -> Result<()> {
        let shared = &self.shared;
        shared.below.check()?;
        let mut waiting = self.waiting.lock(shared.host());
        let hit = shared.engine.decide(Operation::Recv, receiver.peer, receiver.nums.map(|nums| nums.0));
        let effect = hit.as_ref().map(|hit| hit.effect);
        let reported = receiver.nums.map(|nums| nums.1);
        let refused;
        let mut wr = *wr;
        match (effect, &hit) {
            (Some(Effect::Error(errno)), Some(hit)) => {
                return Err(injected_error(Operation::Recv, errno, hit));
            }
            (Some(Effect::Vanish), _) => vanish(),
            (Some(Effect::Status(status)), Some(hit)) => {
                refused = [shared.refused_sge(shared.attr.max_msg_size.min(LONG) as u32)?];
                wr = RecvWr::new(wr.wr_id, &refused);
                shared.plans.add(Plan {
                    qp_num: reported,
                    is_recv: true,
                    wr_id: wr.wr_id,
                    status,
                    opcode: WcOpcode::Recv,
                    qp: receiver.qp.clone(),
                    reason: reason(hit),
                    kept_reason: receiver.kept_reason.clone(),
                });
            }
            _ => {}
        }
        let delay = hit.as_ref().and_then(delay_of);
        let posted = if delay.is_some() || !waiting.is_empty() {
            self.check(&wr, waiting.len()).and_then(|()| shared.timer.start()).and_then(|()| {
                let due =
                    waiting.push(shared.host().now() + delay.unwrap_or(Span::ZERO), OwnedRecv::new(&wr));
                self.is_waiting.store(true, Ordering::Release);
                later(due)
            })
        } else {
            below(&wr)
        };
        drop(waiting);
        if posted.is_err() {
            if matches!(effect, Some(Effect::Status(_))) {
                shared.plans.remove_last(reported, true);
            }
            shared.engine.take_back(Operation::Recv, receiver.peer, hit.as_ref());
        } else if let Some(Effect::Event(event)) = effect {
            shared.report(event);
        }
        posted
    }

    /// The checks that the NIC makes during the call.
    fn check(&self, wr: &RecvWr<'_>, waiting: usize) -> Result<()> {
        Error::check_limit("the number of SGEs", wr.sges.len() as u64, self.max_sge.into())?;
        if waiting >= self.max_wr as usize {
            return Err(Error::QueueFull { queue: "receive", depth: self.max_wr });
        }
        Ok(())
    }

    /// Posts all due receives; if the queue pair has failed, all receives, so that they are flushed.
    pub(crate) fn drain(
        &self,
        has_failed: bool,
        below: &dyn Fn(&RecvWr<'_>) -> Result<()>,
        later: &dyn Fn(Time) -> Result<()>,
    ) {
        let host = self.shared.host();
        let mut waiting = self.waiting.lock(host);
        while let Some(first) =
            waiting.first_due(if has_failed { Time::from_ps(u64::MAX) } else { host.now() })
        {
            if matches!(below(&first.wr()), Err(Error::QueueFull { .. })) && !has_failed {
                // If there is no timer any more, nothing waits for the receive either.
                let _ = later(host.now() + FULL_PAUSE);
                break;
            }
            waiting.remove_first();
        }
        self.is_waiting.store(!waiting.is_empty(), Ordering::Release);
    }
}

/// Why a request failed, for its program.
pub(crate) fn reason(hit: &Hit) -> String {
    format!("an injected fault: {}", hit.name)
}
