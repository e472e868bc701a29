//! Data path: posting. Queue pairs: from the program's post to the engine, and from peers' completions to polls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use host::{Span, SpinGuard, Time};
use verbs::provider::{QpOps, own};
use verbs::{
    Buf, Data, Error, QpCap, QpInit, QpState, RecvWr, RemoteAddr, Result, SendFlags, SendOp, SendWr, Wc,
    WcOpcode, WcStatus,
};

use super::cq::{CqInner, SendDone};
use super::device::{Inner, Ring, unpoisoned};
use super::engine::Outcome;
use super::layout::{QpShared, comp, qp_at, recv, state};
use super::peer::Link;
use super::segment::{Ref, Slots};
use super::srq::{SrqInner, check_sges, fill};
use super::tlb::Tlb;
use crate::sync::Spin;
use crate::sync::ring;
use crate::sync::roll::Workplace;
use crate::tide::queue;

/// Completions a queue pair with a shared receive queue holds at most before its peer must wait.
const SRQ_COMPS: u32 = 64;
/// How long destroying waits for a peer that is inside; after that its number and rings are seen off when it has left.
const DESTROY_PATIENCE: Span = Span::from_ms(100);

/// A send request that must wait, with everything of it that the caller may reuse.
pub(super) struct Pending {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    inline: bool,
    sges: Vec<verbs::Sge>,
    bytes: Vec<u8>,
}

impl Pending {
    fn of(wr: &SendWr<'_>) -> Self {
        let (inline, sges, bytes) = match wr.data {
            Data::Sges(sges) => (false, sges.to_vec(), Vec::new()),
            Data::Inline(bytes) => (true, Vec::new(), bytes.to_vec()),
        };
        Self { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, inline, sges, bytes }
    }

    fn request(&self) -> SendWr<'_> {
        let data = if self.inline { Data::Inline(&self.bytes) } else { Data::Sges(&self.sges) };
        SendWr { wr_id: self.wr_id, op: self.op, data, flags: self.flags }
    }
}

/// What posting to the send queue works on.
#[derive(Default)]
pub(super) struct SendSide {
    posted: u64,
    /// Requests that wait for the peer, in order.
    pending: VecDeque<Pending>,
    /// The local and the remote region used last.
    pub(super) near: Tlb,
    pub(super) far: Tlb,
    /// Where this side stands in the peer's rings.
    pub(super) progress: super::engine::Progress,
    /// When the first pending request gives up on a peer without receives; `None` while not waiting for one.
    pub(super) rnr_deadline: Option<Time>,
}

impl SendSide {
    /// Requests posted whose places have not been given back.
    #[inline]
    pub(super) fn outstanding(&self, qp: &QpInner) -> u64 {
        self.posted - qp.reclaimed.load(Ordering::Acquire)
    }

    /// Whether requests wait for the peer.
    #[inline]
    pub(super) fn pending_any(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// A queue pair.
pub(super) struct QpInner {
    pub(super) device: Arc<Inner>,
    pub(super) index: usize,
    pub(super) generation: u32,
    pub(super) num: u32,
    pub(super) pd: u32,
    cap: QpCap,
    sq_sig_all: bool,
    pub(super) shared: Ref<QpShared>,
    /// The furthest state that this side has come to.
    reached: AtomicU32,
    /// The status word while all is well.
    pub(super) ready: u64,
    pub(super) send_cq: Arc<CqInner>,
    pub(super) recv_cq: Arc<CqInner>,
    pub(super) srq: Option<Arc<SrqInner>>,
    seat: OnceLock<usize>,
    pub(super) recvs: Option<Slots>,
    comps: Slots,
    pub(super) rings: Spin<Vec<Ring>>,
    /// Where the buffer lies through which this device copies for the peer, once there is one.
    pub(super) bounce: OnceLock<u64>,
    pub(super) send: Workplace<SendSide>,
    /// Held while a receive is posted.
    recv: Spin<()>,
    /// Receives posted so far.
    pub(super) posted: AtomicU64,
    reclaimed: AtomicU64,
    /// Completions of receives taken so far; advanced under the receive queue's poll lock.
    taken: AtomicU64,
    /// Up to which position completions of receives have been counted; under the receive queue's poll lock, as the next.
    counted: AtomicU64,
    /// It is among those that the receive queue looks at; under its poll lock.
    pub(super) is_due: AtomicBool,
    /// Receives of the peer's own ring that this side has consumed; advanced under the send lock.
    pub(super) next_recv: AtomicU64,
    /// Whether requests are pending.
    stalled: AtomicBool,
    pub(super) link: OnceLock<Link>,
    /// The number of its connection, also when that is over; 0 before there was one.
    pub(super) conn: AtomicU64,
    /// The peer process is gone: it is inside nothing any more.
    pub(super) peer_dead: AtomicBool,
    /// The peer has said that it is over: its queue pair is in the error state, or gone, and is not touched any more.
    pub(super) peer_parted: AtomicBool,
    /// 0 fine, 1 failed and not yet dealt with, 2 dealt with.
    pub(super) failure: AtomicU32,
    /// The failure came from the peer's side of the link.
    pub(super) quiet: AtomicBool,
}

impl QpInner {
    pub(super) fn create(device: &Arc<Inner>, pd: u32, init: &QpInit) -> Result<Arc<Self>> {
        let send_cq: Arc<CqInner> = own(init.send_cq.ops().clone(), "the send completion queue")?;
        let recv_cq: Arc<CqInner> = own(init.recv_cq.ops().clone(), "the receive completion queue")?;
        let srq = init.srq.as_ref().map(|srq| own(srq.ops().clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqInner>> = srq.transpose()?;
        let cap = init.cap;
        let depth = if srq.is_some() { SRQ_COMPS } else { cap.max_recv_wr };
        let shift = depth.next_power_of_two().trailing_zeros();
        let stride = recv::stride(cap.max_recv_sge);
        let mut rings = vec![device.take_ring(comp::STRIDE << shift)?];
        if srq.is_none() {
            rings.push(device.take_ring(stride << shift)?);
        }
        let (index, generation) = device.take_qp_index()?;
        let map = &device.segment.map;
        let shared: Ref<QpShared> = Ref::new(map, qp_at(index))?;
        shared.pd.store(pd, Ordering::Relaxed);
        shared.recv_cq.store(recv_cq.index as u32, Ordering::Relaxed);
        shared.srq.store(srq.as_ref().map_or(0, |s| s.index as u32 + 1), Ordering::Relaxed);
        shared.describe_rings(&rings, shift, stride);
        shared.renew(generation);
        let recvs = match rings.get(1) {
            Some(r) => Some(Slots::new(map, r.at, stride, shift)?),
            None => None,
        };
        let qp = Arc::new(Self {
            comps: Slots::new(map, rings[0].at, comp::STRIDE, shift)?,
            device: device.clone(),
            index,
            generation,
            num: (generation & 0x7ff) << 13 | index as u32,
            pd,
            cap,
            sq_sig_all: init.sq_sig_all,
            reached: AtomicU32::new(state::INIT),
            ready: state::word(generation, state::RTS),
            shared,
            send_cq,
            recv_cq,
            srq,
            seat: OnceLock::new(),
            recvs,
            rings: Spin::new(rings),
            bounce: OnceLock::new(),
            send: Workplace::default(),
            recv: Spin::new(()),
            posted: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            next_recv: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            link: OnceLock::new(),
            conn: AtomicU64::new(0),
            peer_dead: AtomicBool::new(false),
            peer_parted: AtomicBool::new(false),
            failure: AtomicU32::new(0),
            quiet: AtomicBool::new(false),
        });
        device.tide.rise(queue(cap.max_send_wr + cap.max_recv_wr));
        let seat = qp.send_cq.attach_sender(&qp, cap.max_send_wr);
        let _ = qp.seat.set(seat);
        qp.recv_cq.attach_receiver(&qp, depth);
        device.register_qp(&qp);
        Ok(qp)
    }

    /// The state's number; see [`state`].
    #[inline]
    pub(super) fn state(&self) -> u32 {
        // Looked at first: what it says, the word has said before.
        let reached = self.reached.load(Ordering::Acquire);
        let word = self.shared.status.load(Ordering::Acquire);
        // The place belongs to a successor once this queue pair is destroyed. Peers may fail it, and confirm; they may not
        // take it back to where it was before.
        let (generation, state) = ((word >> 32) as u32, word as u32);
        let stands = generation == self.generation && state >= reached;
        if stands && state <= state::ERROR { state } else { state::ERROR }
    }

    /// Moves from one state to another; false if it was not in the first.
    pub(super) fn advance(&self, from: u32, to: u32) -> bool {
        if to == state::ERROR {
            // Before the word says so; see `is_failed_by_peer`.
            self.reached.fetch_max(to, Ordering::Release);
        }
        let word = |s| state::word(self.generation, s);
        let status = &self.shared.status;
        let done = status.compare_exchange(word(from), word(to), Ordering::AcqRel, Ordering::Acquire).is_ok();
        if done {
            self.reached.fetch_max(to, Ordering::Release);
        }
        done
    }

    /// Whether it was the peer that failed this queue pair. Its own has failed then, and may be gone: looking there would take
    /// memory for it again.
    pub(super) fn is_failed_by_peer(&self) -> bool {
        let word = self.shared.status.load(Ordering::Acquire);
        word == state::word(self.generation, state::ERROR)
            && self.reached.load(Ordering::Acquire) < state::ERROR
    }

    /// Takes the lock of the send queue, to carry requests out: deregistering waits until it is free again.
    #[inline]
    pub(super) fn enter_send(&self) -> SpinGuard<'_, SendSide> {
        self.send.enter(|| self.device.visits.posters.add(self.index))
    }

    /// Whether the peer is in the middle of an operation on this device's memory.
    pub(super) fn peer_is_inside(&self) -> bool {
        self.shared.peer.0.busy.is_inside()
            && !self.peer_dead.load(Ordering::Acquire)
            && !self.link.get().is_some_and(|link| link.peer.is_gone())
    }

    /// Send requests up to this one need their places no more.
    #[inline]
    pub(super) fn reclaim(&self, upto: u64) {
        self.reclaimed.fetch_max(upto, Ordering::Release);
    }

    #[inline]
    fn check_request(&self, wr: &SendWr<'_>) -> Result<()> {
        match wr.data {
            Data::Sges(sges) => {
                Error::check_limit("the number of pieces", sges.len() as u64, self.cap.max_send_sge.into())?;
                let total = sges.iter().map(|s| u64::from(s.length)).sum();
                Error::check_limit("bytes in the message", total, self.device.attr.max_msg_size)
            }
            Data::Inline(_) if wr.op.fetches() => {
                Err(Error::Invalid("inline data cannot take what the operation returns".into()))
            }
            Data::Inline(bytes) => {
                Error::check_limit("inline bytes", bytes.len() as u64, self.cap.max_inline.into())
            }
        }
    }

    /// Posts a request; whether the queue pair failed on it.
    #[inline(never)]
    fn post(&self, wr: &SendWr<'_>) -> Result<bool> {
        self.check_request(wr)?;
        let mut side = self.enter_send();
        if side.outstanding(self) >= self.send_depth() {
            return Err(Error::QueueFull { queue: "send", depth: self.cap.max_send_wr });
        }
        let status = self.state();
        if status != state::RTS {
            return self.post_unready(&mut side, wr, status);
        }
        if side.pending.is_empty() {
            match self.execute(&mut side, wr) {
                Outcome::Done(status, bytes) => return Ok(self.post_done(&mut side, wr, status, bytes)),
                Outcome::Wait => self.set_stalled(true),
            }
        }
        side.posted += 1;
        side.pending.push_back(Pending::of(wr));
        Ok(false)
    }

    #[cold]
    fn post_unready(&self, side: &mut SendSide, wr: &SendWr<'_>, status: u32) -> Result<bool> {
        if status != state::ERROR {
            return Err(Error::WrongState { call: "post_send", state: state_of(status) });
        }
        if side.pending.is_empty() {
            self.post_done(side, wr, WcStatus::WrFlushErr, 0);
        } else {
            side.posted += 1;
            side.pending.push_back(Pending::of(wr));
        }
        Ok(false)
    }

    /// Counts a request that was over at once and reports it; whether the queue pair fails with it.
    #[inline]
    pub(super) fn post_done(
        &self,
        side: &mut SendSide,
        wr: &SendWr<'_>,
        status: WcStatus,
        bytes: u32,
    ) -> bool {
        side.posted += 1;
        let quiet =
            status == WcStatus::Success && !wr.flags.contains(SendFlags::SIGNALED) && !self.sq_sig_all;
        !quiet && self.finish(wr, side.posted, status, bytes)
    }

    /// Requests that a send queue holds.
    #[inline]
    pub(super) fn send_depth(&self) -> u64 {
        self.cap.max_send_wr.into()
    }

    /// Bytes of inline data that a request may have.
    #[inline]
    pub(super) fn inline_max(&self) -> usize {
        self.cap.max_inline as usize
    }

    /// Reports a request that is over, if it is to be reported; whether the queue pair fails with it.
    fn finish(&self, wr: &SendWr<'_>, upto: u64, status: WcStatus, bytes: u32) -> bool {
        let failed = status != WcStatus::Success;
        if failed || self.sq_sig_all || wr.flags.contains(SendFlags::SIGNALED) {
            let wc = Wc {
                wr_id: wr.wr_id,
                status,
                opcode: wr.op.opcode(),
                byte_len: bytes,
                qp_num: self.num,
                imm: None,
                invalidated: None,
            };
            let seat = self.seat.get().copied().unwrap_or(usize::MAX);
            self.send_cq.push(SendDone { wc, seat, upto }, failed);
        }
        failed && status != WcStatus::WrFlushErr && {
            // Under the lock of the send queue still, so that nobody carries out what stands behind it.
            self.advance(state::RTS, state::ERROR);
            true
        }
    }

    fn set_stalled(&self, stalled: bool) {
        if self.stalled.swap(stalled, Ordering::AcqRel) != stalled && stalled {
            // Whoever polls takes it out when it finds that nothing waits.
            self.seat.get().iter().for_each(|seat| self.send_cq.stalled.add(**seat));
            self.device.look_at(self.index);
        }
    }

    /// Whether requests wait for the peer.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Acquire)
    }

    /// Carries on with requests that wait; called by whoever polls, and by the NIC thread.
    pub(super) fn progress(&self) {
        if !self.is_stalled() {
            return;
        }
        let mut side = self.enter_send();
        let mut failed = false;
        while !failed && self.state() == state::RTS {
            let Some(first) = side.pending.pop_front() else { break };
            let upto = side.posted - side.pending.len() as u64;
            match self.execute(&mut side, &first.request()) {
                Outcome::Done(status, bytes) => failed = self.finish(&first.request(), upto, status, bytes),
                Outcome::Wait => {
                    side.pending.push_front(first);
                    return;
                }
            }
        }
        if side.pending.is_empty() {
            self.set_stalled(false);
        }
        drop(side);
        if failed {
            self.fail();
        }
    }

    /// Flushes everything that waits in the send queue; the queue pair has failed.
    pub(super) fn flush_sends(&self) {
        let mut side = self.send.lock();
        while let Some(first) = side.pending.pop_front() {
            let upto = side.posted - side.pending.len() as u64;
            self.finish(&first.request(), upto, WcStatus::WrFlushErr, 0);
        }
        side.progress.abandon();
        self.set_stalled(false);
    }

    /// Before which position completions of receives can be: a peer completes only what was posted.
    #[inline]
    fn comps_end(&self) -> u64 {
        match self.recvs {
            Some(_) => self.posted.load(Ordering::Acquire),
            None => self.taken.load(Ordering::Relaxed) + (1 << self.comps.shift()),
        }
    }

    /// Completions of receives that wait to be polled.
    pub(super) fn waiting_receives(&self) -> usize {
        let first = self.taken.load(Ordering::Relaxed);
        (self.first_missing(first) - first) as usize
    }

    /// The first position from this one on at which no completion is.
    fn first_missing(&self, mut next: u64) -> u64 {
        let (end, shift) = (self.comps_end(), self.comps.shift());
        while next < end && ring::filled(&self.comps.slot(next)[comp::MARK], ring::lap(next, shift)).is_some()
        {
            next += 1;
        }
        next
    }

    /// Counts completions of receives, each once: how many are new.
    pub(super) fn count_arrivals(&self) -> usize {
        let first = self.counted.load(Ordering::Relaxed).max(self.taken.load(Ordering::Relaxed));
        let next = self.first_missing(first);
        self.counted.store(next, Ordering::Relaxed);
        (next - first) as usize
    }

    /// Completions of receives that have been counted and not taken.
    pub(super) fn counted_arrivals(&self) -> usize {
        self.counted.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed)) as usize
    }

    /// Takes completions of receives, in order; under the receive queue's poll lock.
    #[inline]
    pub(super) fn poll_receives(&self, wcs: &mut [Wc]) -> usize {
        let (first, end, shift) = (self.taken.load(Ordering::Relaxed), self.comps_end(), self.comps.shift());
        let mut next = first;
        let mut got = 0;
        while got < wcs.len() && next < end {
            let slot = self.comps.slot(next);
            let Some(low) = ring::filled(&slot[comp::MARK], ring::lap(next, shift)) else { break };
            match self.take_completion(slot, low, next) {
                Some(wc) => {
                    wcs[got] = wc;
                    got += 1;
                }
                // About nothing that the peer could have used: it is passed over.
                None => self.device.condemn(self),
            }
            next += 1;
        }
        if next != first {
            self.taken.store(next, Ordering::Release);
            self.fetch_next_receive();
            if self.srq.is_some() {
                self.after_shared_receives(next);
            }
        } else if self.state() == state::ERROR && !wcs.is_empty() {
            got = self.flush_receives(next, wcs);
        }
        got
    }

    #[cold]
    fn after_shared_receives(&self, taken: u64) {
        self.shared.taken.store(taken, Ordering::Release);
        crate::sync::fence::light();
        self.feed_if_starved();
        if let Some(srq) = &self.srq {
            srq.check_limit();
        }
    }

    /// Flushes posted receives, once nothing of the peer can arrive any more.
    #[cold]
    fn flush_receives(&self, mut next: u64, wcs: &mut [Wc]) -> usize {
        crate::sync::fence::heavy();
        if self.peer_is_inside() || self.waiting_receives() > 0 {
            return 0;
        }
        let flushed = |wr_id| Wc {
            wr_id,
            status: WcStatus::WrFlushErr,
            opcode: WcOpcode::Recv,
            qp_num: self.num,
            ..Wc::default()
        };
        let mut got = 0;
        if let Some(recvs) = &self.recvs {
            let posted = self.posted.load(Ordering::Acquire);
            while got < wcs.len() && next < posted {
                wcs[got] = flushed(recvs.slot(next)[recv::WR_ID].load(Ordering::Relaxed));
                got += 1;
                next += 1;
            }
            self.taken.store(next, Ordering::Release);
        } else if let Some(srq) = &self.srq {
            let me = self.index as u16 + 1;
            for receive in srq.claims_of(me).into_iter().take(wcs.len()) {
                wcs[got] = flushed(srq.receive(receive)[recv::WR_ID].load(Ordering::Relaxed));
                srq.give_back(receive, me);
                got += 1;
            }
        }
        got
    }

    /// Wakes a peer that waits for something here.
    #[inline]
    pub(super) fn feed_if_starved(&self) {
        let starved = &self.shared.starved.0;
        if starved.load(Ordering::Relaxed) != 0 {
            starved.store(0, Ordering::Release);
            if let Some(link) = self.link.get() {
                link.kick();
            }
        }
    }

    fn post_receive(&self, wr: &RecvWr<'_>) -> Result<()> {
        let Some(recvs) = &self.recvs else {
            return Err(Error::Invalid(
                "the queue pair takes its receives from a shared queue; post there".into(),
            ));
        };
        check_sges(wr, self.cap.max_recv_sge)?;
        let side = self.recv.lock();
        let posted = self.posted.load(Ordering::Relaxed);
        if posted - self.taken.load(Ordering::Acquire) >= self.cap.max_recv_wr.into() {
            return Err(Error::QueueFull { queue: "receive", depth: self.cap.max_recv_wr });
        }
        let (slot, shift) = (recvs.slot(posted), recvs.shift());
        fill(slot, wr);
        // Before the peer can see it: what it answers is about a receive that was posted.
        self.posted.store(posted + 1, Ordering::Release);
        ring::publish(&slot[recv::MARK], ring::lap(posted, shift), wr.sges.len() as u32);
        drop(side);
        crate::sync::fence::light();
        self.feed_if_starved();
        if self.state() == state::ERROR {
            self.recv_cq.alarm(self.index);
        }
        Ok(())
    }

    /// Destroys: the peer is told, nothing of this queue pair is left anywhere.
    fn destroy(self: &Arc<Self>) {
        self.device.nic.part(&self.device, self, false);
        self.quiet.store(true, Ordering::Release);
        self.fail();
        // A connection that came about between the two is over as well.
        self.device.nic.part(&self.device, self, false);
        let out = || (!self.peer_is_inside()).then_some(());
        let is_out =
            self.device.host.poll("Qp::drop", self.device.host.after(DESTROY_PATIENCE), out).is_some();
        self.send_cq.detach(self, self.seat.get().copied(), self.cap.max_send_wr);
        let depth = 1 << self.comps.shift();
        let depth = if self.srq.is_some() { depth } else { self.cap.max_recv_wr };
        self.recv_cq.detach(self, None, depth);
        if let Some(srq) = &self.srq {
            let me = self.index as u16 + 1;
            srq.claims_of(me).into_iter().for_each(|receive| srq.give_back(receive, me));
        }
        if is_out {
            self.device.free_turn_of(self.index);
            self.device.forget_qp(self.index, true);
            self.rings.lock().clear();
        } else {
            // A stopped peer may wake up inside: rings and number stay taken until it has left or died.
            unpoisoned(&self.device.departed).push(self.clone());
            self.device.forget_qp(self.index, false);
            self.device.nic.wake();
        }
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.device.fall(queue(self.cap.max_send_wr + self.cap.max_recv_wr));
    }
}

impl QpShared {
    /// Tells peers where the rings are.
    fn describe_rings(&self, rings: &[Ring], shift: u32, recv_stride: u64) {
        self.recv_shift.store(shift, Ordering::Relaxed);
        self.recv_stride.store(recv_stride as u32, Ordering::Relaxed);
        self.comp_shift.store(shift, Ordering::Relaxed);
        self.comp_ring.store(rings[0].at, Ordering::Relaxed);
        self.recv_ring.store(rings.get(1).map_or(0, |r| r.at), Ordering::Relaxed);
    }
}

/// The state behind a number of [`state`].
pub(super) fn state_of(number: u32) -> QpState {
    match number {
        state::INIT => QpState::Init,
        state::RTR => QpState::ReadyToReceive,
        state::RTS => QpState::ReadyToSend,
        state::ERROR => QpState::Error,
        _ => QpState::Reset,
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
        if self.0.express(wr) {
            return Ok(());
        }
        if self.0.post(wr)? {
            self.0.fail();
        }
        Ok(())
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.0.device.birth.check()?;
        self.0.post_receive(wr)
    }

    fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        self.0.device.birth.check()?;
        self.0.map_peer(remote, len)
    }

    fn to_error(&self) {
        if self.0.device.birth.is_elsewhere() {
            return;
        }
        self.0.device.nic.part(&self.0.device, &self.0, true);
        self.0.quiet.store(true, Ordering::Release);
        self.0.fail();
    }
}
