//! Data path: posting. A queue pair without its connection: its state, its queues, and its completion queues.
//!
//! Threads that post and poll share it with the thread that drives the connection.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use host::Span;
use verbs::{
    AsyncEvent, Data, Error, QpCap, QpState, RNR_PAUSE, RecvWr, Result, SendFlags, SendWr, Wc, WcOpcode,
    WcStatus,
};

use crate::memory::regions::Domain;
use crate::queues::completions::{Completions, FreedSlotCounts, SlotsToFree};
use crate::queues::receives::{Receives, SharedReceives};
use crate::queues::request_ring::{PostedReceive, ReceiveQueue, SendQueue, SendRequest};
use crate::shared::DeviceShared;
use nic_util::sync::Spin;
use nic_util::sync::reader_registry::ReaderMark;

/// Maximum message size in bytes.
pub(crate) const MAX_MSG_SIZE: u64 = 1 << 30;

/// Values of a queue pair's state word.
pub(crate) mod state {
    pub(crate) const INIT: u32 = 0;
    /// Like `INIT`, with a connection being established.
    pub(crate) const CONNECTING: u32 = 1;
    /// Accepted; the peer has not sent its first message.
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
}

/// The API's state for a value of [`state`].
pub(crate) fn state_of(number: u32) -> QpState {
    match number {
        state::INIT | state::CONNECTING => QpState::Init,
        state::RTR => QpState::ReadyToReceive,
        state::RTS => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

/// The parameters of a new queue pair.
pub(crate) struct QpParams {
    pub(crate) num: u32,
    pub(crate) pd: u32,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
    pub(crate) reported_qp_num: Option<u32>,
    pub(crate) send_ring: Arc<Completions>,
    pub(crate) recv_ring: Arc<Completions>,
    pub(crate) srq: Option<Arc<SharedReceives>>,
    pub(crate) splits: bool,
}

/// The program has not set an RNR retry limit.
const UNSET: u8 = u8::MAX;

/// The memory for the rest of a message whose beginning has filled its receive ([`verbs::QpInit::split_receives`]).
enum Rest {
    /// No message waits for it.
    Unwanted,
    /// A message waits for it.
    Wanted,
    Posted(Box<PostedReceive>),
}

/// A queue pair without its connection.
pub(crate) struct QpQueues {
    pub(crate) shared: Arc<DeviceShared>,
    pub(crate) num: u32,
    pd: u32,
    cap: QpCap,
    sq_sig_all: bool,
    /// The queue pair number that completions contain.
    reported_qp_num: u32,
    state: AtomicU32,
    pub(crate) sends: Spin<SendQueue>,
    pub(crate) receives: Receives,
    slots: Arc<FreedSlotCounts>,
    send_ring: Arc<Completions>,
    recv_ring: Arc<Completions>,
    /// Whether a message may be longer than its receive.
    pub(crate) splits: bool,
    rest: Spin<Rest>,
    /// A message of the peer waits for a receive, or for memory for its rest.
    rnr: AtomicBool,
    /// The pause before a message without a receive is retried, in nanoseconds.
    rnr_pause: AtomicU32,
    /// The RNR retry limit for this side's messages, or [`UNSET`].
    rnr_retry: AtomicU8,
    /// Set while the queue pair is in the device's set of those in use, for which deregistering waits.
    pub(crate) mark: ReaderMark,
    /// Number of polls of the connection by pollers.
    polls: AtomicU32,
    /// The program has destroyed the queue pair: nothing is completed any more.
    dropped: AtomicBool,
    /// Why its connection failed, if it did.
    failure: OnceLock<Box<str>>,
}

impl QpQueues {
    pub(crate) fn new(shared: &Arc<DeviceShared>, params: QpParams) -> Result<Self> {
        let QpParams { num, pd, cap, sq_sig_all, reported_qp_num, send_ring, recv_ring, srq, splits } =
            params;
        let slots =
            FreedSlotCounts { sends: AtomicU64::new(0), receives: AtomicU64::new(0), srq: srq.clone() };
        let own = || Spin::new(ReceiveQueue::new("receive", cap.max_recv_wr, cap.max_recv_sge));
        Ok(Self {
            shared: shared.clone(),
            num,
            pd,
            cap,
            sq_sig_all,
            reported_qp_num: reported_qp_num.unwrap_or(num),
            state: AtomicU32::new(state::INIT),
            sends: Spin::new(SendQueue::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline)?),
            receives: srq.map_or_else(|| Receives::Own(own()), Receives::Shared),
            slots: Arc::new(slots),
            send_ring,
            recv_ring,
            splits,
            rest: Spin::new(Rest::Unwanted),
            rnr: AtomicBool::new(false),
            rnr_pause: AtomicU32::new(RNR_PAUSE.as_ns() as u32),
            rnr_retry: AtomicU8::new(UNSET),
            mark: ReaderMark::default(),
            polls: AtomicU32::new(0),
            dropped: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// The RNR retry limit for this side's messages, if the program has set one.
    pub(crate) fn rnr_retry(&self) -> Option<u8> {
        Some(self.rnr_retry.load(Ordering::Relaxed)).filter(|retries| *retries != UNSET)
    }

    pub(crate) fn set_rnr_retry(&self, retries: u8) {
        self.rnr_retry.store(retries, Ordering::Relaxed);
    }

    /// The pause before a message of the peer that finds no receive is retried.
    pub(crate) fn rnr_pause(&self) -> Span {
        Span::from_ns(self.rnr_pause.load(Ordering::Relaxed).into())
    }

    pub(crate) fn set_rnr_pause(&self, pause: Span) {
        self.rnr_pause.store(pause.as_ns() as u32, Ordering::Relaxed);
    }

    /// The memory that its requests and its peer may use.
    #[inline]
    pub(crate) fn domain(&self) -> Domain<'_> {
        Domain { regions: &self.shared.regions, pd: self.pd, qp: self.num.into() }
    }

    /// Total capacity of its own send and receive queues.
    pub(crate) fn entries(&self) -> u32 {
        self.cap.max_send_wr + self.cap.max_recv_wr
    }

    /// Whether any of its completions go to this completion queue.
    pub(crate) fn uses_cq(&self, id: u32) -> bool {
        self.send_ring.id() == id || self.recv_ring.id() == id
    }

    /// The key of its completions in the rings.
    pub(crate) fn slots(&self) -> &Arc<FreedSlotCounts> {
        &self.slots
    }

    /// The current value of the state word.
    #[inline]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Moves from one state to another; returns false if the state was not `from`.
    pub(crate) fn advance(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves to the error state; returns false if it already was. The caller holds the lock, so that requests are
    /// flushed in order.
    pub(crate) fn set_error(&self) -> bool {
        self.state.swap(state::ERROR, Ordering::AcqRel) != state::ERROR
    }

    /// Records why its connection failed, before the completions that report it.
    pub(crate) fn record_failure(&self, why: Option<String>) {
        // There is one connection, which ends once.
        why.into_iter().for_each(|why| drop(self.failure.set(why.into())));
    }

    /// Why its connection failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().map(|why| why.to_string())
    }

    /// Reports, for a shared receive queue, that a queue pair in the error state has completed its last receive.
    pub(crate) fn report_last_receive(&self) {
        if matches!(self.receives, Receives::Shared(_)) && !self.is_dropped() {
            self.shared.async_event(AsyncEvent::LastWqeReached { qp_num: self.num });
        }
    }

    /// Whether there may be a connection to drive.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state(), state::RTR | state::RTS)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the queue pair as destroyed by the program.
    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Records that the NIC thread watches the queue pair: a thread about to sleep on one of its completion queues
    /// must hand it over.
    pub(crate) fn record_watched(&self) {
        self.send_ring.watched.lock().insert(self.num);
        self.recv_ring.watched.lock().insert(self.num);
    }

    /// Whether a thread sleeps on one of its completion queues or is about to. After [`QpQueues::record_watched`],
    /// either this sees that thread, or the thread sees that the queue pair is watched.
    pub(crate) fn has_sleeper(&self) -> bool {
        // Pairs with the fences of the event count's waiter and of `Completions::arm`: these reads must not move before the
        // insertions of `record_watched`.
        fence(Ordering::SeqCst);
        self.send_ring.has_sleeper() || self.recv_ring.has_sleeper()
    }

    /// Whether a thread inside a wait polls one of its completion queues, unless it sleeps.
    pub(crate) fn has_poller(&self) -> bool {
        self.send_ring.has_poller() || self.recv_ring.has_poller()
    }

    /// The lock holder is about to look up tags: from now on deregistering waits for this queue pair.
    #[inline]
    pub(crate) fn mark_in_use(&self) {
        self.mark.set(|| {
            self.shared.visited.lock().insert(self.num);
        });
    }

    /// Number of polls of the connection by pollers.
    #[inline]
    pub(crate) fn poll_count(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Counts a poll. The count is approximate: only whether it changes matters.
    #[inline]
    pub(crate) fn count_poll(&self) {
        self.polls.store(self.poll_count().wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    fn check(&self, wr: &SendWr<'_>) -> Result<()> {
        match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("the number of SGEs", sges.len() as u64, self.cap.max_send_sge.into())?;
                let total = sges.iter().map(|sge| u64::from(sge.length)).sum();
                Error::check_limit("bytes in the message", total, MAX_MSG_SIZE)
            }
            Data::Inline(_) if wr.op.fetches() => {
                Err(Error::Invalid("inline data cannot take what the operation returns".into()))
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.cap.max_inline.into())
            }
        }
    }

    /// Posts a request to the send queue.
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.check(wr)?;
        let mut queue = self.sends.lock();
        let now = self.state();
        if now != state::RTS && now != state::ERROR {
            return Err(Error::WrongState { call: "post_send", state: state_of(now) });
        }
        queue.post(wr, &self.slots.sends)
    }

    /// Posts a receive to the queue pair's own queue; returns whether the connection needs it immediately.
    #[inline]
    pub(crate) fn post_receive(&self, wr: &RecvWr<'_>) -> Result<bool> {
        let Receives::Own(receives) = &self.receives else {
            return Err(Error::Invalid(
                "the queue pair takes its receives from a shared queue; post there".into(),
            ));
        };
        receives.lock().post(wr, &self.slots.receives)?;
        Ok(self.is_needed_now())
    }

    /// Posts memory for the rest of a message; returns whether the connection needs it immediately.
    #[inline]
    pub(crate) fn post_rest(&self, wr: &RecvWr<'_>) -> Result<bool> {
        let (given, limit) = (wr.sges.len() as u64, self.cap.max_recv_sge);
        Error::check_limit("the number of SGEs of the rest", given, limit.into())?;
        let mut rest = self.rest.lock();
        if !matches!(*rest, Rest::Wanted) {
            let why =
                "no message waits for memory for its rest; post it once, after the beginning has completed";
            return Err(Error::Invalid(why.into()));
        }
        *rest = Rest::Posted(Box::new(PostedReceive::new(wr)));
        drop(rest);
        Ok(self.is_needed_now())
    }

    /// Whether the connection needs immediately what has just been posted for its messages.
    #[inline]
    fn is_needed_now(&self) -> bool {
        // Pairs with the fence of `set_rnr`, and orders against a flush, which sets the state first: these reads must
        // not move before the post. A connection without a receive first sets the flag and then checks the queue
        // again.
        fence(Ordering::SeqCst);
        self.is_rnr() || self.state() == state::ERROR
    }

    /// A message needs memory for its rest, which threads may post from now on.
    pub(crate) fn request_rest(&self) {
        *self.rest.lock() = Rest::Wanted;
        self.set_rnr(true);
    }

    /// Takes the memory for the rest of the message that needs it, if it is posted.
    #[inline]
    pub(crate) fn take_rest(&self, into: &mut PostedReceive) -> bool {
        let mut rest = self.rest.lock();
        if !matches!(*rest, Rest::Posted(_)) {
            return false;
        }
        if let Rest::Posted(posted) = std::mem::replace(&mut *rest, Rest::Unwanted) {
            *into = *posted;
        }
        drop(rest);
        self.set_rnr(false);
        true
    }

    /// Whether a message of the peer waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr.load(Ordering::Relaxed)
    }

    /// Sets whether a message of the peer waits for a receive, for threads that post one.
    pub(crate) fn set_rnr(&self, rnr: bool) {
        self.rnr.store(rnr, Ordering::Relaxed);
        self.receives.count_rnr(rnr);
        // Pairs with the fence of `post_receive`: the next check for a receive must not move before these stores. A
        // poster that did not see them does nothing further, but its receive is visible to that check.
        fence(Ordering::SeqCst);
    }

    /// Whether a request with these flags is signaled on success.
    #[inline]
    pub(crate) fn is_signaled(&self, flags: SendFlags) -> bool {
        self.sq_sig_all || flags.contains(SendFlags::SIGNALED)
    }

    /// Completes the first open send request; reports it if it failed or is signaled. Returns the request.
    #[inline]
    pub(crate) fn finish_send(&self, status: WcStatus) -> SendRequest {
        let (number, request) = self.sends.lock().complete_first();
        let silent = status == WcStatus::Success && !self.is_signaled(request.flags);
        if !silent && !self.is_dropped() {
            let wc = Wc {
                wr_id: request.wr_id,
                status,
                opcode: request.op.opcode(),
                byte_len: if request.op.fetches() { request.len } else { 0 },
                qp_num: self.reported_qp_num,
                ..Wc::default()
            };
            self.send_ring.push(&self.slots, wc, SlotsToFree::Sends(number + 1), false);
        }
        request
    }

    /// Reports a completed receive.
    #[inline]
    pub(crate) fn finish_receive(&self, wc: Wc, solicited: bool) {
        // The rest of a message has no slot in the queue.
        let frees = if wc.opcode == WcOpcode::RecvRest { SlotsToFree::Nothing } else { SlotsToFree::Receive };
        if self.is_dropped() {
            return self.slots.reclaim(frees);
        }
        self.recv_ring.push(&self.slots, Wc { qp_num: self.reported_qp_num, ..wc }, frees, solicited);
    }

    /// Records that bytes were received: the pollers of receives are not idle.
    #[inline]
    pub(crate) fn count_receive_progress(&self) {
        self.recv_ring.count_progress();
    }

    /// Records that bytes were sent: the pollers of sends are not idle.
    #[inline]
    pub(crate) fn count_send_progress(&self) {
        self.send_ring.count_progress();
    }

    /// Wakes threads that sleep on the receive completion queue, because a peer's write was placed. RDMAP cannot
    /// select which writes do this, so all do.
    #[inline]
    pub(crate) fn wake_for_write(&self) {
        self.recv_ring.wake();
    }

    /// Reports a failed receive: [`WcOpcode::Recv`], or [`WcOpcode::RecvRest`].
    pub(crate) fn fail_receive(&self, wr_id: u64, opcode: WcOpcode, status: WcStatus) {
        self.finish_receive(Wc { wr_id, status, opcode, ..Wc::default() }, false);
    }

    /// Completes everything that is queued. `failed` is the request that failed itself; all others are flushed.
    pub(crate) fn flush(&self, failed: Option<(u64, WcStatus)>) {
        loop {
            let queue = self.sends.lock();
            let (first, posted) = (queue.completed(), queue.posted());
            drop(queue);
            if first == posted {
                break;
            }
            let own = failed.filter(|(number, _)| *number == first);
            self.finish_send(own.map_or(WcStatus::WrFlushErr, |(_, status)| status));
        }
        let mut receive = PostedReceive::default();
        if self.take_rest(&mut receive) {
            self.fail_receive(receive.wr_id, WcOpcode::RecvRest, WcStatus::WrFlushErr);
        }
        while self.receives.take_own(&mut receive) {
            self.fail_receive(receive.wr_id, WcOpcode::Recv, WcStatus::WrFlushErr);
        }
    }
}
