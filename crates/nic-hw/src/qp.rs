//! [`QpHandle`]: a queue pair of the API.
//!
//! Data path: checks what the API promises as errors of the call, and posts by one call into the provider.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::Span;
use rdma_abi::numbers as n;
use verbs::provider::{QpOps, QpParts, downcast};
use verbs::{
    AsyncEvent, AtomicCap, CmFailure, Data, Error, QpCap, QpState, RecvWr, Result, SendOp, SendWr, Sge,
};

use crate::connect::conn::{Phase, Step};
use crate::pair::Pair;
use crate::queues::cq::CqHandle;
use crate::queues::srq::SrqHandle;
use crate::raw::memory::Domain;
use crate::raw::qp::{HwQp, HwQpInit};
use crate::shared::Shared;

/// How often the card is asked for the state of a queue pair: on some cards the answer takes tens of microseconds.
const QUERY_PERIOD: Span = Span::from_ms(5);

/// A queue pair: dropping it disconnects and destroys.
pub(crate) struct QpHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pair: Arc<Pair>,
    cap: QpCap,
    /// The most elements of a read.
    max_read_sge: u32,
    reported_qp_num: Option<u32>,
    send_cq: Arc<CqHandle>,
    recv_cq: Arc<CqHandle>,
}

impl QpHandle {
    pub(crate) fn new(shared: &Arc<Shared>, domain: &Arc<Domain>, init: &QpParts) -> Result<Self> {
        let own_cq = |cq: &Arc<dyn verbs::provider::CqOps>| -> Result<Arc<CqHandle>> {
            let cq: Arc<CqHandle> = downcast(cq.clone(), "the completion queue")?;
            let is_own = Arc::ptr_eq(&cq.shared, shared);
            if is_own { Ok(cq) } else { Err(Error::Foreign { what: "the completion queue" }) }
        };
        let (send_cq, recv_cq) = (own_cq(&init.send_cq)?, own_cq(&init.recv_cq)?);
        let srq = init.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqHandle>> = srq.transpose()?;
        let has_srq = srq.is_some();
        let parts = HwQpInit {
            send_cq: send_cq.arming.hw.clone(),
            recv_cq: recv_cq.arming.hw.clone(),
            srq: srq.map(|srq| srq.hw.clone()),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        };
        let pair = HwQp::new(domain, parts)
            .and_then(|hw| Pair::new(hw, shared.pair_settings, has_srq))
            .map_err(|why| shared.refused(format!("a queue pair of {:?}", init.cap), why))?;
        let pair = Arc::new(pair);
        shared.registry.add_pair(&pair);
        let (cap, reported_qp_num) = (init.cap, init.reported_qp_num);
        let max_read_sge = cap.max_send_sge.min(shared.max_read_sge);
        let shared = shared.clone();
        let handle = Self { shared, pair, cap, max_read_sge, reported_qp_num, send_cq, recv_cq };
        handle.set_alias(reported_qp_num);
        Ok(handle)
    }

    fn set_alias(&self, reported: Option<u32>) {
        if self.reported_qp_num.is_some() {
            self.send_cq.set_alias(self.pair.hw.number, reported);
            self.recv_cq.set_alias(self.pair.hw.number, reported);
        }
    }

    /// Checks what is an error of the call.
    #[inline]
    fn check_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let len = match wr.data {
            Data::Sges(sges) => {
                let is_read = matches!(wr.op, SendOp::Read(_));
                let limit = if is_read { self.max_read_sge } else { self.cap.max_send_sge };
                Error::check_limit("pieces of a request", sges.len() as u64, limit.into())?;
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
            Data::Inline(_) if wr.op.fetches() => {
                return Err(Error::Invalid(
                    "a read or an atomic cannot have inline data; give it registered memory".into(),
                ));
            }
            Data::Inline(bytes) => {
                let len = bytes.len() as u64;
                Error::check_limit("inline bytes", len, self.cap.max_inline.into())?;
                len
            }
        };
        if wr.op.is_of_window() {
            return Err(verbs::provider::no_windows(self.shared.name()));
        }
        if wr.op.is_atomic() && self.shared.attr.atomic_cap == AtomicCap::None {
            return Err(Error::Unsupported { device: self.shared.name().to_owned(), what: "atomics" });
        }
        Error::check_limit("bytes of a message", len, self.shared.attr.max_msg_size)
    }

    #[inline]
    fn check_state(&self) -> Result<()> {
        match self.pair.state() {
            QpState::ReadyToSend | QpState::Error => Ok(()),
            state => Err(Error::WrongState { call: "post_send", state }),
        }
    }

    /// The error for a request of the send queue that the card refuses.
    #[cold]
    fn send_refusal(&self, wr: &SendWr<'_>, why: io::Error) -> Error {
        let has_imm = matches!(wr.op, SendOp::SendImm(_) | SendOp::WriteImm(..));
        if has_imm && self.pair.is_iwarp() && why.raw_os_error() == Some(libc::EINVAL) {
            let (device, what) =
                (self.shared.name().to_owned(), "immediate data, which iWARP cards may lack");
            return Error::Unsupported { device, what };
        }
        self.refusal("send", why)
    }

    /// The error for a request that the card refuses.
    #[cold]
    fn refusal(&self, queue: &'static str, why: io::Error) -> Error {
        let cap = self.pair.hw.cap;
        let depth = if queue == "send" { cap.max_send_wr } else { cap.max_recv_wr };
        match why.raw_os_error() {
            Some(libc::ENOMEM) => Error::QueueFull { queue, depth },
            Some(libc::EOPNOTSUPP) => {
                Error::Unsupported { device: self.shared.name().to_owned(), what: "this operation" }
            }
            _ => Error::system("the card refuses a request", why),
        }
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        if self.shared.context.is_forked() {
            return;
        }
        self.shared.registry.forget_pair(&self.pair);
        self.set_alias(None);
        let last = AsyncEvent::LastWqeReached { qp_num: self.pair.hw.number };
        drop(self.shared.async_events.extract_if(|event| *event == last));
    }
}

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.pair.hw.number
    }

    fn state(&self) -> QpState {
        let is_due = || self.pair.query_due(self.shared.host.now(), QUERY_PERIOD);
        if self.pair.state() == QpState::ReadyToSend && is_due() && self.pair.has_failed() {
            self.shared.pair_failed(self.pair.hw.number);
        }
        self.pair.state()
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.shared.check()?;
        self.check_state()?;
        self.check_send(wr)?;
        self.pair.hw.post_send(wr).map_err(|why| self.send_refusal(wr, why))
    }

    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.shared.check().and_then(|()| self.check_state()).map_err(|why| (0, why))?;
        let wrong = wrs.iter().enumerate().find_map(|(at, wr)| Some((at, self.check_send(wr).err()?)));
        let good = wrong.as_ref().map_or(wrs.len(), |(at, _)| *at);
        let posted = self.pair.hw.post_sends(&wrs[..good]);
        posted.map_err(|(at, why)| (at, self.send_refusal(&wrs[at.min(good - 1)], why)))?;
        wrong.map_or(Ok(()), Err)
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.shared.check()?;
        if self.pair.has_srq {
            return Err(Error::Invalid(
                "the queue pair takes receives from its shared receive queue; post them there".into(),
            ));
        }
        Error::check_limit("pieces of a receive", wr.sges.len() as u64, self.cap.max_recv_sge.into())?;
        if wr.sges.is_empty() && self.pair.is_iwarp() {
            // Some drivers refuse a receive without elements.
            let wr = RecvWr { sges: &[Sge { addr: 0, length: 0, lkey: 0 }], ..*wr };
            return self.pair.hw.post_recv(&wr).map_err(|why| self.refusal("receive", why));
        }
        self.pair.hw.post_recv(wr).map_err(|why| self.refusal("receive", why))
    }

    fn to_error(&self) {
        if self.shared.context.is_forked() {
            return;
        }
        let mut entries = self.shared.registry.lock();
        let number = self.pair.connection.load(Ordering::Acquire);
        entries.step(number, |conn| match conn.phase {
            Phase::Established => {
                self.pair.fail();
                conn.disconnect();
                Step::Stays
            }
            Phase::Ended => Step::Stays,
            _ => conn.fail(CmFailure::PeerGone),
        });
        self.pair.fail();
    }

    fn failure(&self) -> Option<String> {
        self.pair.cause().map(str::to_owned)
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.shared.check()?;
        if self.pair.is_iwarp() || self.pair.state() == QpState::ReadyToSend {
            let (device, what) =
                (self.shared.name().to_owned(), "another limit of retries once it is connected");
            return Err(Error::Unsupported { device, what });
        }
        self.pair.set_rnr_retry(retries);
        Ok(())
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.shared.check()?;
        if self.pair.is_iwarp() {
            let (device, what) = (self.shared.name().to_owned(), "a pause between retries");
            return Err(Error::Unsupported { device, what });
        }
        self.pair
            .set_rnr_pause(pause)
            .map_err(|why| self.shared.refused(format!("a pause of {pause} between retries"), why))
    }
}

/// The rights of a region, as `IBV_ACCESS_...`.
pub(crate) fn access_flags(access: verbs::Access) -> u32 {
    let of = |ours, theirs| if access.contains(ours) { theirs } else { 0 };
    of(verbs::Access::LOCAL_WRITE, n::IBV_ACCESS_LOCAL_WRITE)
        | of(verbs::Access::REMOTE_WRITE, n::IBV_ACCESS_REMOTE_WRITE)
        | of(verbs::Access::REMOTE_READ, n::IBV_ACCESS_REMOTE_READ)
        | of(verbs::Access::REMOTE_ATOMIC, n::IBV_ACCESS_REMOTE_ATOMIC)
}
