//! Data path: posting. Queue pairs: from the program's post to the connection's stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use verbs::provider::{QpOps, own};
use verbs::{Data, Error, QpCap, QpInit, QpState, RecvWr, Result, SendFlags, SendWr, Wc, WcOpcode, WcStatus};

use super::cq::{CqInner, Frees};
use super::device::Inner;
use super::outcome::{fetches, opcode};
use super::queue::{Receive, ReceiveQueue, Request, SendQueue};
use super::srq::SrqInner;
use super::stream::{By, End, Stream};
use crate::sync::Spin;
use crate::sync::stage::Stage;

/// States of a queue pair, as its word holds them.
pub(super) mod state {
    pub(crate) const INIT: u32 = 0;
    /// As above, with a connection in the making.
    pub(crate) const CONNECTING: u32 = 1;
    /// Accepted, the peer has not spoken.
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
}

/// Completions that a queue pair with a shared receive queue is expected to have outstanding.
const SRQ_COMPLETIONS: u32 = 64;

/// A queue pair.
pub(super) struct QpInner {
    pub(super) device: Arc<Inner>,
    pub(super) num: u32,
    pub(super) pd: u32,
    cap: QpCap,
    sq_sig_all: bool,
    state: AtomicU32,
    send_cq: Arc<CqInner>,
    pub(super) recv_cq: Arc<CqInner>,
    pub(super) srq: Option<Arc<SrqInner>>,
    pub(super) send: Spin<SendQueue>,
    reclaimed_sends: AtomicU64,
    receives: Option<Spin<ReceiveQueue>>,
    reclaimed_receives: AtomicU64,
    /// A message of the peer waits for a receive.
    pub(super) starving: AtomicBool,
    /// How often a poller has worked on the connection.
    pub(super) polls: AtomicU32,
    /// The program has let go of it: nothing completes any more.
    dropped: AtomicBool,
    pub(super) stage: Stage<Stream>,
}

impl QpInner {
    pub(super) fn create(device: &Arc<Inner>, pd: u32, init: &QpInit) -> Result<Arc<Self>> {
        let send_cq: Arc<CqInner> = own(init.send_cq.ops().clone(), "the send completion queue")?;
        let recv_cq: Arc<CqInner> = own(init.recv_cq.ops().clone(), "the receive completion queue")?;
        let srq = init.srq.as_ref().map(|srq| own(srq.ops().clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqInner>> = srq.transpose()?;
        let cap = init.cap;
        let receives = ReceiveQueue::new("receive", cap.max_recv_wr, cap.max_recv_sge);
        let send = SendQueue::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline)?;
        let qp = Arc::new(Self {
            num: device.take_qp_num()?,
            device: device.clone(),
            pd,
            cap,
            sq_sig_all: init.sq_sig_all,
            state: AtomicU32::new(state::INIT),
            send_cq,
            recv_cq,
            receives: srq.is_none().then(|| Spin::new(receives)),
            srq,
            send: Spin::new(send),
            reclaimed_sends: AtomicU64::new(0),
            reclaimed_receives: AtomicU64::new(0),
            starving: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            dropped: AtomicBool::new(false),
            stage: Stage::new(Stream::default()),
        });
        qp.send_cq.attach(&qp, cap.max_send_wr);
        qp.recv_cq.attach(&qp, qp.receive_depth());
        device.register_qp(&qp);
        Ok(qp)
    }

    /// Whether completions of it go to this queue.
    pub(super) fn uses_cq(&self, id: u32) -> bool {
        self.send_cq.number() == id || self.recv_cq.number() == id
    }

    fn receive_depth(&self) -> u32 {
        if self.srq.is_some() { SRQ_COMPLETIONS } else { self.cap.max_recv_wr }
    }

    /// The state's number.
    #[inline]
    pub(super) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Moves from one state to another; false if it was not in the first.
    pub(super) fn advance(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves to the error state; the stage is held, so that what is flushed is flushed in order.
    pub(super) fn set_error(&self) {
        self.state.store(state::ERROR, Ordering::Release);
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// A completion of this queue pair was polled, or will never be.
    #[inline]
    pub(super) fn reclaim(&self, frees: Frees) {
        match (frees, &self.srq) {
            (Frees::Sends(upto), _) => {
                self.reclaimed_sends.fetch_max(upto, Ordering::Release);
            }
            (Frees::Receive, Some(srq)) => srq.reclaim(),
            (Frees::Receive, None) => {
                self.reclaimed_receives.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The next receive, from wherever this queue pair's come.
    #[inline]
    pub(super) fn take_receive(&self, into: &mut Receive) -> bool {
        match (&self.receives, &self.srq) {
            (Some(receives), _) => receives.lock().take(into),
            (None, Some(srq)) => srq.take(into),
            (None, None) => false,
        }
    }

    /// The next receive of its own queue.
    pub(super) fn take_own_receive(&self, into: &mut Receive) -> bool {
        self.receives.as_ref().is_some_and(|receives| receives.lock().take(into))
    }

    /// Whether the success of a request with these flags is told of.
    pub(super) fn signals(&self, flags: SendFlags) -> bool {
        self.sq_sig_all || flags.contains(SendFlags::SIGNALED)
    }

    /// Tells of a send request that is over: aloud if it failed or was to be signalled.
    pub(super) fn complete_send(self: &Arc<Self>, request: &Request, number: u64, status: WcStatus) {
        let silent = status == WcStatus::Success && !self.signals(request.flags);
        if silent || self.is_dropped() {
            return;
        }
        let wc = Wc {
            wr_id: request.wr_id,
            status,
            opcode: opcode(&request.op),
            byte_len: if fetches(&request.op) { request.len } else { 0 },
            qp_num: self.num,
            ..Wc::default()
        };
        self.send_cq.push(self, wc, Frees::Sends(number + 1), false);
    }

    /// Tells of a receive that is over.
    pub(super) fn complete_receive(self: &Arc<Self>, wc: Wc, solicited: bool) {
        if self.is_dropped() {
            return self.reclaim(Frees::Receive);
        }
        self.recv_cq.push(self, Wc { qp_num: self.num, ..wc }, Frees::Receive, solicited);
    }

    /// Tells of a receive that failed.
    pub(super) fn fail_receive(self: &Arc<Self>, wr_id: u64, status: WcStatus) {
        let wc = Wc { wr_id, status, opcode: WcOpcode::Recv, ..Wc::default() };
        self.complete_receive(wc, false);
    }

    #[inline]
    fn check(&self, wr: &SendWr<'_>) -> Result<()> {
        match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("the number of pieces", sges.len() as u64, self.cap.max_send_sge.into())?;
                let total = sges.iter().map(|sge| u64::from(sge.length)).sum();
                Error::check_limit("bytes in the message", total, self.device.attr.max_msg_size)
            }
            Data::Inline(_) if fetches(&wr.op) => {
                Err(Error::Invalid("inline data cannot take what the operation returns".into()))
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.cap.max_inline.into())
            }
        }
    }

    #[inline]
    fn enqueue(&self, wr: &SendWr<'_>) -> Result<()> {
        self.check(wr)?;
        let mut queue = self.send.lock();
        let now = self.state();
        if now != state::RTS && now != state::ERROR {
            return Err(Error::WrongState { call: "post_send", state: state_of(now) });
        }
        queue.post(wr, &self.reclaimed_sends)
    }

    fn post_receive(self: &Arc<Self>, wr: &RecvWr<'_>) -> Result<()> {
        let Some(receives) = &self.receives else {
            return Err(Error::Invalid(
                "the queue pair takes its receives from a shared queue; post there".into(),
            ));
        };
        receives.lock().post(wr, &self.reclaimed_receives)?;
        // Whoever starves says so first and looks again afterwards; so does whoever flushes.
        fence(Ordering::SeqCst);
        if self.starving.load(Ordering::Relaxed) || self.state() == state::ERROR {
            self.request();
        }
        Ok(())
    }

    /// Has the stage's work done that was published before.
    #[inline]
    pub(super) fn request(self: &Arc<Self>) {
        self.stage.request(|stream| stream.asked(self));
    }

    /// A poller's turn: works on the connection if nobody else does.
    #[inline]
    pub(super) fn poll(self: &Arc<Self>) {
        if matches!(self.state(), state::RTR | state::RTS) {
            // Counted roughly: what matters is whether it stands still.
            self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            self.stage.try_with(|stream| stream.progress(self, By::Poller), |stream| stream.asked(self));
        }
    }

    /// The poller is about to sleep: from now on the device's thread looks after the connection.
    pub(super) fn hand_over(self: &Arc<Self>) {
        if matches!(self.state(), state::RTR | state::RTS) {
            self.with(|stream| stream.hand_over(self));
        }
    }

    /// Does something on the stage when it is this thread's turn.
    pub(super) fn with<R>(self: &Arc<Self>, body: impl FnOnce(&mut Stream) -> R) -> R {
        self.stage.with(body, |stream| stream.asked(self))
    }

    /// Ends the connection if there is one, and moves to the error state.
    pub(super) fn end(self: &Arc<Self>, end: End) {
        self.with(|stream| stream.end(self, end));
    }

    fn destroy(self: &Arc<Self>) {
        self.dropped.store(true, Ordering::Release);
        self.end(End::Asked);
        self.device.cancel_attempt(self);
        self.send_cq.detach(self, self.cap.max_send_wr);
        self.recv_cq.detach(self, self.receive_depth());
        self.device.forget_qp(self.num);
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if !self.device.birth.is_elsewhere() && self.device.tide.fall() {
            self.device.nic.wake();
        }
    }
}

/// The state behind a number of [`state`].
pub(super) fn state_of(number: u32) -> QpState {
    match number {
        state::INIT | state::CONNECTING => QpState::Init,
        state::RTR => QpState::ReadyToReceive,
        state::RTS => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

/// The API's hold on a queue pair: dropping it destroys.
pub(super) struct QpHandle(pub(super) Arc<QpInner>);

impl Drop for QpHandle {
    fn drop(&mut self) {
        if !self.0.device.birth.is_elsewhere() {
            self.0.destroy();
        }
    }
}

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.0.num
    }

    fn state(&self) -> QpState {
        state_of(self.0.state())
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.0.device.birth.check()?;
        self.0.enqueue(wr)?;
        self.0.request();
        Ok(())
    }

    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.0.device.birth.check().map_err(|e| (0, e))?;
        let posted =
            wrs.iter().enumerate().try_for_each(|(posted, wr)| self.0.enqueue(wr).map_err(|e| (posted, e)));
        // One turn for all: they leave in as few system calls as possible.
        self.0.request();
        posted
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.0.device.birth.check()?;
        self.0.post_receive(wr)
    }

    fn to_error(&self) {
        if self.0.device.birth.is_elsewhere() {
            return;
        }
        self.0.end(End::Asked);
        self.0.device.cancel_attempt(&self.0);
    }
}
