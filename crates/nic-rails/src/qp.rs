//! Queue pairs: a lane on each rail, a sending and a receiving half, and their connection.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use host::{Lock, LockGuard, Span};
use verbs::{AsyncEvent, Error, Qp, QpCap, QpInit, QpState, RecvWr, Result, SendWr, Wc};

use crate::completion::completions::{CompletionSink, Completions};
use crate::connect::connection::Connection;
use crate::context::QpContext;
use crate::memory::domain::PdInner;
use crate::qp_actions::QpActions;
use crate::receive::recv_half::RecvHalf;
use crate::receive::srq::SrqInner;
use crate::send::send_half::SendHalf;
use crate::send::send_queue::SendQueue;
use crate::shared::DeviceShared;
use crate::state;

/// Requests of the device's own on a lane, in addition to the program's.
pub(crate) const OWN_REQUESTS: u32 = 2;

/// Parameters of a new queue pair.
pub(crate) struct QpSettings {
    pub(crate) cap: QpCap,
    pub(crate) mtu: Option<u32>,
    pub(crate) signals_all: bool,
    pub(crate) reported_qp_num: Option<u32>,
    pub(crate) send: Arc<Completions>,
    pub(crate) recv: Arc<Completions>,
    pub(crate) srq: Option<Arc<SrqInner>>,
}

/// A queue pair.
pub(crate) struct QpInner {
    lanes: RwLock<Vec<Arc<Qp>>>,
    pub(crate) sending: SendHalf,
    pub(crate) receiving: RecvHalf,
    link: Lock<Connection>,
    pub(crate) context: QpContext,
    cap: QpCap,
    mtu: Option<u32>,
    /// Bit mask of the lanes that have completed all shared receives which they had taken.
    drained: AtomicU8,
    has_reported_last: AtomicBool,
    /// The program's receiver-not-ready settings, which apply to each lane.
    rnr: Mutex<Rnr>,
}

/// A program's receiver-not-ready settings.
#[derive(Default)]
struct Rnr {
    retries: Option<u8>,
    pause: Option<Span>,
}

impl Rnr {
    fn apply(&self, lane: &Qp) -> Result<()> {
        self.retries.map_or(Ok(()), |retries| lane.set_rnr_retry(retries))?;
        self.pause.map_or(Ok(()), |pause| lane.set_rnr_pause(pause))
    }
}

impl QpInner {
    pub(crate) fn new(pd: &Arc<PdInner>, settings: QpSettings) -> Result<Self> {
        let (shared, QpSettings { cap, mtu, signals_all, reported_qp_num, send, recv, srq }) =
            (&pd.shared, settings);
        let qp = Self {
            lanes: RwLock::default(),
            receiving: RecvHalf::new(shared, &cap, recv, srq),
            sending: SendHalf::new(shared, &cap, signals_all, send),
            link: Lock::new(Connection::default()),
            context: QpContext::new(pd, reported_qp_num)?,
            cap,
            mtu,
            drained: AtomicU8::new(0),
            has_reported_last: AtomicBool::new(false),
            rnr: Mutex::default(),
        };
        let lanes = (0..shared.width()).map(|rail| qp.make_lane(rail).map(Arc::new));
        let lanes: Vec<Arc<Qp>> = lanes.collect::<Result<_>>()?;
        qp.sending.lock(&shared.host).set_lanes(&lanes);
        qp.receiving.lock(&shared.host).set_lanes(&lanes);
        *qp.lanes.write().unwrap_or_else(|e| e.into_inner()) = lanes;
        Ok(qp)
    }

    /// Creates a queue pair on a rail.
    pub(crate) fn make_lane(&self, rail: usize) -> Result<Qp> {
        let srq = self.receiving.srq.as_ref();
        let cap = QpCap {
            max_send_wr: self.cap.max_send_wr + OWN_REQUESTS,
            max_recv_wr: if srq.is_none() { self.cap.max_recv_wr.max(1) } else { 1 },
            ..self.cap
        };
        self.context.pd.pds[rail].create_qp(&QpInit {
            send_cq: self.sending.completions.rail_cq(rail).clone(),
            recv_cq: self.receiving.completions.rail_cq(rail).clone(),
            srq: srq.map(|srq| srq.rail_srq(rail)),
            cap,
            sq_sig_all: false,
            mtu: self.mtu,
            reported_qp_num: None,
            split_receives: false,
        })
    }

    #[inline]
    pub(crate) fn num(&self) -> u32 {
        self.context.num
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<DeviceShared> {
        self.context.shared()
    }

    /// Whether the program has dropped it.
    pub(crate) fn is_dropped(&self) -> bool {
        self.context.is_dropped()
    }

    /// Marks it as dropped by the program.
    pub(crate) fn set_dropped(&self) {
        self.context.set_dropped();
    }

    /// The number of lanes.
    pub(crate) fn width(&self) -> usize {
        self.shared().width()
    }

    pub(crate) fn lane(&self, lane: usize) -> Arc<Qp> {
        self.lanes.read().unwrap_or_else(|e| e.into_inner())[lane].clone()
    }

    /// The queue pairs of all lanes.
    pub(crate) fn lanes(&self) -> Vec<Arc<Qp>> {
        self.lanes.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Replaces the queue pair of a lane; returns the old one.
    pub(crate) fn replace_lane(&self, lane: usize, by: Arc<Qp>) -> Arc<Qp> {
        self.drained.fetch_and(!(1 << lane), Ordering::AcqRel);
        self.sending.lock(&self.shared().host).on_lane_connected(lane, &by);
        self.receiving.lock(&self.shared().host).on_lane_connected(lane, &by);
        let before =
            std::mem::replace(&mut self.lanes.write().unwrap_or_else(|e| e.into_inner())[lane], by.clone());
        // The rail's device has accepted the same settings for the lane before.
        let _ = self.rnr().apply(&by);
        before
    }

    fn rnr(&self) -> MutexGuard<'_, Rnr> {
        self.rnr.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        let mut rnr = self.rnr();
        rnr.retries = Some(retries);
        self.lanes().iter().try_for_each(|lane| rnr.apply(lane))
    }

    pub(crate) fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        let mut rnr = self.rnr();
        rnr.pause = Some(pause);
        self.lanes().iter().try_for_each(|lane| rnr.apply(lane))
    }

    /// The locked connection. Lock order: the connection, then sends or receives.
    pub(crate) fn link(&self) -> LockGuard<'_, Connection> {
        self.link.lock(&self.shared().host)
    }

    #[inline]
    pub(crate) fn state_number(&self) -> u8 {
        self.context.state.get()
    }

    /// Changes from one state to another; returns whether it was in the first.
    pub(crate) fn advance(&self, from: u8, to: u8) -> bool {
        self.context.state.advance(from, to)
    }

    /// The state as the API defines it.
    pub(crate) fn state(&self) -> QpState {
        self.context.state.to_api()
    }

    /// Posts a send request. Returns also whether requests wait that only completions can start.
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> (Result<()>, bool) {
        let len = match self.sending.check(self.shared(), wr) {
            Ok(len) => len,
            Err(why) => return (Err(why), false),
        };
        if !matches!(self.state_number(), state::READY_TO_SEND | state::ERROR) {
            return (Err(Error::WrongState { call: "post_send", state: self.state() }), false);
        }
        self.fail_if_requested(self.sending.post(&self.context, wr, len))
    }

    /// Works on the queue of send requests. Returns also whether requests wait that only completions can start.
    pub(crate) fn with_sends<R>(&self, work: impl FnOnce(&mut SendQueue) -> R) -> (R, bool) {
        self.fail_if_requested(self.sending.with_queue(&self.context, work))
    }

    #[inline]
    fn fail_if_requested<R>(&self, (result, wants): (R, QpActions)) -> (R, bool) {
        if wants.failure {
            self.fail();
        }
        (result, wants.needs_arming && !wants.failure)
    }

    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.receiving.post(&self.context, wr)
    }

    /// Fails the queue pair: all outstanding requests are flushed, at both ends.
    pub(crate) fn fail(&self) {
        self.context.state.fail();
        self.sending.completions.set_conn_ended();
        self.receiving.completions.set_conn_ended();
        // A lane that failed for its own reason notifies its peer of the reason, in its own time.
        self.lanes().iter().filter(|lane| lane.state() != QpState::Error).for_each(|lane| lane.to_error());
        self.sending.fail(&self.context);
        self.receiving.flush(&self.context);
        self.report_last_receive();
        self.shared().host.signal();
    }

    /// Stops receiving, without a report: the program is about to drop the queue pair.
    pub(crate) fn close(&self) {
        self.has_reported_last.store(true, Ordering::Release);
        self.lanes().iter().for_each(|lane| lane.to_error());
    }

    /// A rail has reported that a lane failed and completed the shared receives that it had taken.
    pub(crate) fn on_lane_drained(&self, lane: usize) {
        self.drained.fetch_or(1 << lane, Ordering::AcqRel);
        self.report_last_receive();
    }

    /// Reports that all shared receives it has taken can be polled, once it has failed and all of its lanes have
    /// reported so.
    fn report_last_receive(&self) {
        let all = u8::MAX >> (u8::BITS as usize - self.width());
        let is_due = self.receiving.srq.is_some()
            && self.state_number() == state::ERROR
            && self.drained.load(Ordering::Acquire) == all
            && !self.is_dropped();
        if is_due && !self.has_reported_last.swap(true, Ordering::AcqRel) {
            self.shared().async_event(AsyncEvent::LastWqeReached { qp_num: self.num() });
        }
    }

    /// A rail reports that a lane failed for a reason of its own, which ends the whole connection. While connecting,
    /// this is ignored: the accepting side may already have used the connection, so `Established` and its end must be
    /// reported first, and their events are on the way.
    pub(crate) fn on_lane_error(&self) {
        if self.state_number() != state::CONNECTING {
            self.fail();
        }
    }

    /// Handles a completion of a lane's send queue.
    #[inline]
    pub(crate) fn on_sent(&self, lane: usize, wc: &Wc, sink: &mut CompletionSink<'_>) -> QpActions {
        self.sending.complete(&self.context, lane, wc, sink)
    }

    /// Handles a completion of a lane's receive queue.
    #[inline]
    pub(crate) fn on_received(&self, lane: usize, wc: &Wc, sink: &mut CompletionSink<'_>) -> QpActions {
        self.receiving.complete(&self.context, lane, wc, sink)
    }

    /// Frees slots after the program has polled completions.
    pub(crate) fn free_slots(&self, sends: u32, receives: u32) {
        let host = &self.shared().host;
        let mut awaited = false;
        if sends > 0 {
            awaited |= self.sending.free_slots(host, sends);
        }
        if receives > 0 {
            awaited |= self.receiving.free_slots(host, receives);
        }
        if awaited {
            host.signal();
        }
    }

    pub(crate) fn uses_an_overrun_queue(&self) -> bool {
        self.sending.completions.has_overrun() || self.receiving.completions.has_overrun()
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if let Some(srq) = &self.receiving.srq {
            srq.remove_qp(self.num());
        }
    }
}
