//! Data path: posting. A queue pair without its connection: its state, its queues, and where its completions go.
//!
//! It is what those who post and poll share with whoever works on the connection, who gets it lent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use host::Span;
use verbs::{
    AsyncEvent, Data, Error, QpCap, QpState, RNR_PAUSE, RecvWr, Result, SendFlags, SendWr, Wc, WcOpcode,
    WcStatus,
};

use crate::memory::regions::Domain;
use crate::queues::completions::{Completions, Frees, Slots};
use crate::queues::receives::{Receives, SharedReceives};
use crate::queues::request_ring::{Receive, ReceiveQueue, Request, SendQueue};
use crate::shared::Shared;
use nic_util::sync::Spin;
use nic_util::sync::reader_registry::ReaderMark;

/// Bytes of a message, at most.
pub(crate) const MAX_MSG_SIZE: u64 = 1 << 30;

/// States of a queue pair, as its word holds them.
pub(crate) mod state {
    pub(crate) const INIT: u32 = 0;
    /// As above, with a connection in the making.
    pub(crate) const CONNECTING: u32 = 1;
    /// Accepted, the peer has not spoken.
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const ERROR: u32 = 4;
}

/// The state behind a number of [`state`].
pub(crate) fn state_of(number: u32) -> QpState {
    match number {
        state::INIT | state::CONNECTING => QpState::Init,
        state::RTR => QpState::ReadyToReceive,
        state::RTS => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

/// What a queue pair is made of.
pub(crate) struct Making {
    pub(crate) num: u32,
    pub(crate) pd: u32,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
    pub(crate) known_as: Option<u32>,
    pub(crate) send_ring: Arc<Completions>,
    pub(crate) recv_ring: Arc<Completions>,
    pub(crate) srq: Option<Arc<SharedReceives>>,
}

/// The program has set no limit of retries.
const UNSET: u8 = u8::MAX;

/// A queue pair without its connection.
pub(crate) struct Queues {
    pub(crate) shared: Arc<Shared>,
    pub(crate) num: u32,
    pd: u32,
    cap: QpCap,
    sq_sig_all: bool,
    /// The number that completions give.
    known_as: u32,
    state: AtomicU32,
    pub(crate) sends: Spin<SendQueue>,
    pub(crate) receives: Receives,
    slots: Arc<Slots>,
    send_ring: Arc<Completions>,
    recv_ring: Arc<Completions>,
    /// A message of the peer waits for a receive.
    rnr: AtomicBool,
    /// The pause before such a message is tried again, in nanoseconds.
    rnr_pause: AtomicU32,
    /// The limit of retries for messages of this side, or [`UNSET`].
    rnr_retry: AtomicU8,
    /// It is on the device's roll of those that are worked on.
    pub(crate) mark: ReaderMark,
    /// How often a poller has worked on the connection.
    polls: AtomicU32,
    /// The program has let go of it: nothing completes any more.
    dropped: AtomicBool,
}

impl Queues {
    pub(crate) fn new(shared: &Arc<Shared>, making: Making) -> Result<Self> {
        let Making { num, pd, cap, sq_sig_all, known_as, send_ring, recv_ring, srq } = making;
        let slots = Slots { sends: AtomicU64::new(0), receives: AtomicU64::new(0), srq: srq.clone() };
        let own = || Spin::new(ReceiveQueue::new("receive", cap.max_recv_wr, cap.max_recv_sge));
        Ok(Self {
            shared: shared.clone(),
            num,
            pd,
            cap,
            sq_sig_all,
            known_as: known_as.unwrap_or(num),
            state: AtomicU32::new(state::INIT),
            sends: Spin::new(SendQueue::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline)?),
            receives: srq.map_or_else(|| Receives::Own(own()), Receives::Shared),
            slots: Arc::new(slots),
            send_ring,
            recv_ring,
            rnr: AtomicBool::new(false),
            rnr_pause: AtomicU32::new(RNR_PAUSE.as_ns() as u32),
            rnr_retry: AtomicU8::new(UNSET),
            mark: ReaderMark::default(),
            polls: AtomicU32::new(0),
            dropped: AtomicBool::new(false),
        })
    }

    /// The limit of retries for messages of this side that find no receive, if the program has set one.
    pub(crate) fn rnr_retry(&self) -> Option<u8> {
        Some(self.rnr_retry.load(Ordering::Relaxed)).filter(|retries| *retries != UNSET)
    }

    pub(crate) fn set_rnr_retry(&self, retries: u8) {
        self.rnr_retry.store(retries, Ordering::Relaxed);
    }

    /// The pause before a message of the peer that finds no receive is tried again.
    pub(crate) fn rnr_pause(&self) -> Span {
        Span::from_ns(self.rnr_pause.load(Ordering::Relaxed).into())
    }

    pub(crate) fn set_rnr_pause(&self, pause: Span) {
        self.rnr_pause.store(pause.as_ns() as u32, Ordering::Relaxed);
    }

    /// The memory that its requests and its peer may use.
    #[inline]
    pub(crate) fn domain(&self) -> Domain<'_> {
        Domain { regions: &self.shared.regions, pd: self.pd }
    }

    /// How many requests and receives of its own it has room for.
    pub(crate) fn entries(&self) -> u32 {
        self.cap.max_send_wr + self.cap.max_recv_wr
    }

    /// Whether completions of it go to this queue.
    pub(crate) fn uses_cq(&self, id: u32) -> bool {
        self.send_ring.id() == id || self.recv_ring.id() == id
    }

    /// Whose completions they are, in the rings that hold them.
    pub(crate) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The state's number.
    #[inline]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Moves from one state to another; false if it was not in the first.
    pub(crate) fn advance(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves to the error state; the stage is held, so that what is flushed is flushed in order. Whether it was in another one.
    pub(crate) fn set_error(&self) -> bool {
        self.state.swap(state::ERROR, Ordering::AcqRel) != state::ERROR
    }

    /// It has come to the error state, and the receive that it had taken, if any, is completed: says so of a shared one.
    pub(crate) fn report_last_receive(&self) {
        if matches!(self.receives, Receives::Shared(_)) && !self.is_dropped() {
            self.shared.async_event(AsyncEvent::LastWqeReached { qp_num: self.num });
        }
    }

    /// Whether there may be a connection to work on.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state(), state::RTR | state::RTS)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// The program lets go of it.
    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// The thread watches whether it is polled: who is about to sleep on one of its queues has to say so.
    pub(crate) fn note_watched(&self) {
        self.send_ring.watched.lock().insert(self.num);
        self.recv_ring.watched.lock().insert(self.num);
    }

    /// Whether somebody sleeps on one of its completion queues, or is about to. After [`Queues::note_watched`], either this sees who is
    /// about to sleep, or that one sees the note.
    pub(crate) fn has_sleeper(&self) -> bool {
        // Pairs with the fences of the bell's sleeper and of `Completions::arm`: these looks must not move before the note.
        fence(Ordering::SeqCst);
        self.send_ring.has_sleeper() || self.recv_ring.has_sleeper()
    }

    /// Whoever holds the stage is going to look tags up: deregistering waits for it from now on.
    #[inline]
    pub(crate) fn enter(&self) {
        self.mark.sign(|| {
            self.shared.visited.lock().insert(self.num);
        });
    }

    /// How often a poller has worked on the connection.
    #[inline]
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// A poller works on the connection. Counted roughly: what matters is whether it stands still.
    #[inline]
    pub(crate) fn count_poll(&self) {
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
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

    /// Puts a request into the send queue.
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

    /// Puts a receive into the queue pair's own queue; whether whoever works on the connection is to look at it now.
    #[inline]
    pub(crate) fn post_receive(&self, wr: &RecvWr<'_>) -> Result<bool> {
        let Receives::Own(receives) = &self.receives else {
            return Err(Error::Invalid(
                "the queue pair takes its receives from a shared queue; post there".into(),
            ));
        };
        receives.lock().post(wr, &self.slots.receives)?;
        // Pairs with the fence of `set_rnr`, and with that of the state for whoever flushes: these looks must not move
        // before the receive. Who lacks one says so first and looks again afterwards.
        fence(Ordering::SeqCst);
        Ok(self.is_rnr() || self.state() == state::ERROR)
    }

    /// Whether a message of the peer waits for a receive.
    pub(crate) fn is_rnr(&self) -> bool {
        self.rnr.load(Ordering::Relaxed)
    }

    /// A message of the peer waits for a receive, or does not any more: for those who post some.
    pub(crate) fn set_rnr(&self, rnr: bool) {
        self.rnr.store(rnr, Ordering::Relaxed);
        self.receives.count_rnr(rnr);
        // Pairs with the fence of `post_receive`: the next look for a receive must not move before these stores. One who
        // posted before it could see them looks at nothing: its receive is seen after this.
        fence(Ordering::SeqCst);
    }

    /// Whether the success of a request with these flags is told of.
    #[inline]
    pub(crate) fn signals(&self, flags: SendFlags) -> bool {
        self.sq_sig_all || flags.contains(SendFlags::SIGNALED)
    }

    /// The first send request that is not over is: tells of it if it failed or was to be signalled. Returns what it was.
    #[inline]
    pub(crate) fn finish_send(&self, status: WcStatus) -> Request {
        let (number, request) = self.sends.lock().finish_first();
        let silent = status == WcStatus::Success && !self.signals(request.flags);
        if !silent && !self.is_dropped() {
            let wc = Wc {
                wr_id: request.wr_id,
                status,
                opcode: request.op.opcode(),
                byte_len: if request.op.fetches() { request.len } else { 0 },
                qp_num: self.known_as,
                ..Wc::default()
            };
            self.send_ring.push(&self.slots, wc, Frees::Sends(number + 1), false);
        }
        request
    }

    /// Tells of a receive that is over.
    #[inline]
    pub(crate) fn finish_receive(&self, wc: Wc, solicited: bool) {
        if self.is_dropped() {
            return self.slots.reclaim(Frees::Receive);
        }
        self.recv_ring.push(&self.slots, Wc { qp_num: self.known_as, ..wc }, Frees::Receive, solicited);
    }

    /// Bytes have come: whoever polls for receives is not idle.
    #[inline]
    pub(crate) fn stir_receives(&self) {
        self.recv_ring.stir();
    }

    /// Bytes have gone: whoever polls for requests is not idle.
    #[inline]
    pub(crate) fn stir_sends(&self) {
        self.send_ring.stir();
    }

    /// A peer's write has been placed: wakes who sleeps on the queue of receives. RDMAP carries no wish for that, so all do.
    #[inline]
    pub(crate) fn wake_for_write(&self) {
        self.recv_ring.wake();
    }

    /// Tells of a receive that failed.
    pub(crate) fn fail_receive(&self, wr_id: u64, status: WcStatus) {
        let wc = Wc { wr_id, status, opcode: WcOpcode::Recv, ..Wc::default() };
        self.finish_receive(wc, false);
    }

    /// Completes everything that waits. `failed` is the request that failed by itself.
    pub(crate) fn flush(&self, failed: Option<(u64, WcStatus)>) {
        loop {
            let queue = self.sends.lock();
            let (first, posted) = (queue.over(), queue.posted());
            drop(queue);
            if first == posted {
                break;
            }
            let own = failed.filter(|(number, _)| *number == first);
            self.finish_send(own.map_or(WcStatus::WrFlushErr, |(_, status)| status));
        }
        let mut receive = Receive::default();
        while self.receives.take_own(&mut receive) {
            self.fail_receive(receive.wr_id, WcStatus::WrFlushErr);
        }
    }
}
