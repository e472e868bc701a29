//! Queue pairs: a lane on each rail, and what posting to the whole means.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, RwLock};

use host::{Held, Lock};

use super::cq::{CqInner, Sink};
use super::device::Inner;
use super::domain::PdInner;
use super::link::Link;
use super::mail::Mailbox;
use super::receives::Receives;
use super::request::PIECES_MAX;
use super::sends::{Sends, is_loss};
use super::srq::SrqInner;
use super::wants::Wants;
use crate::provider::{QpOps, own};
use crate::{Data, Error, Qp, QpCap, QpInit, QpState, RecvWr, Result, SendOp, SendWr, Sge, Wc, WcStatus};

/// Requests of the device's own, beside the program's, on a lane.
pub(super) const OWN_REQUESTS: u32 = 2;

/// States, in their order; CONNECTING is `Init` to the program.
pub(super) mod state {
    pub(in crate::rails) const INIT: u8 = 0;
    pub(in crate::rails) const CONNECTING: u8 = 1;
    pub(in crate::rails) const READY_TO_RECEIVE: u8 = 2;
    pub(in crate::rails) const READY_TO_SEND: u8 = 3;
    pub(in crate::rails) const ERROR: u8 = 4;
}

pub(super) struct QpInner {
    pub(super) num: u32,
    pub(super) pd: Arc<PdInner>,
    lanes: RwLock<Vec<Arc<Qp>>>,
    pub(super) send_cq: Arc<CqInner>,
    pub(super) recv_cq: Arc<CqInner>,
    pub(super) srq: Option<Arc<SrqInner>>,
    cap: QpCap,
    mtu: Option<u32>,
    sig_all: bool,
    state: AtomicU8,
    sends: Lock<Sends>,
    receives: Lock<Receives>,
    pub(super) mailbox: Mailbox,
    link: Lock<Link>,
    /// A lane has died, and the rest goes on as soon as both ends know.
    pub(super) is_mending: AtomicBool,
    /// Its place in the domain's scratch memory.
    pub(super) scratch: u32,
}

impl QpInner {
    pub(super) fn create(pd: &Arc<PdInner>, init: &QpInit) -> Result<Arc<Self>> {
        let device = &pd.device;
        let queue =
            |cq: &crate::Cq| -> Result<Arc<CqInner>> { own(cq.ops().clone(), "the completion queue") };
        let (send_cq, recv_cq) = (queue(&init.send_cq)?, queue(&init.recv_cq)?);
        let srq = init.srq.as_ref().map(|srq| own(srq.ops().clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqInner>> = srq.transpose()?;
        let recv_lane = srq.as_ref().map_or_else(|| device.next_lane(), |srq| srq.lane());
        let receives = Receives::new(srq.is_none().then_some(&init.cap), recv_lane);
        let mailbox = Mailbox::new(&pd.pds)?;
        let scratch = pd.take_scratch()?;
        let qp = Arc::new(Self {
            num: device.fresh(),
            scratch,
            pd: pd.clone(),
            lanes: RwLock::default(),
            send_cq,
            recv_cq,
            srq,
            cap: init.cap,
            mtu: init.mtu,
            sig_all: init.sq_sig_all,
            state: AtomicU8::new(state::INIT),
            sends: Lock::new(Sends::new(&init.cap, device.rails.len(), &device.config.weights)),
            receives: Lock::new(receives),
            mailbox,
            link: Lock::new(Link::default()),
            is_mending: AtomicBool::new(false),
        });
        qp.send_cq.want(qp.cap.max_send_wr);
        qp.recv_cq.want(qp.receives_at_most());
        if qp.srq.is_some() {
            // What is shared is expected for as long as the queue pair lives.
            qp.receives().expect(&qp);
        }
        let lanes = (0..device.rails.len()).map(|rail| qp.make_lane(rail).map(Arc::new));
        let lanes: Vec<Arc<Qp>> = lanes.collect::<Result<_>>()?;
        qp.sends().go_by(&lanes);
        qp.receives().go_by(&lanes);
        *qp.lanes.write().unwrap_or_else(|e| e.into_inner()) = lanes;
        device.add_qp(&qp);
        Ok(qp)
    }

    /// A queue pair on a rail.
    pub(super) fn make_lane(&self, rail: usize) -> Result<Qp> {
        let shared = self.srq.as_ref().map(|srq| srq.on(rail));
        let takes = self.srq.is_none();
        let cap = QpCap {
            max_send_wr: self.cap.max_send_wr + OWN_REQUESTS,
            max_recv_wr: if takes { self.cap.max_recv_wr.max(1) } else { 1 },
            ..self.cap
        };
        self.pd.pds[rail].create_qp(&QpInit {
            send_cq: self.send_cq.on(rail).clone(),
            recv_cq: self.recv_cq.on(rail).clone(),
            srq: shared,
            cap,
            sq_sig_all: false,
            mtu: self.mtu,
        })
    }

    /// How many receives may complete at a time.
    fn receives_at_most(&self) -> u32 {
        self.srq.as_ref().map_or(self.cap.max_recv_wr, |srq| srq.depth)
    }

    pub(super) fn lane(&self, lane: usize) -> Arc<Qp> {
        self.lanes.read().unwrap_or_else(|e| e.into_inner())[lane].clone()
    }

    /// All of its lanes.
    pub(super) fn lanes(&self) -> Vec<Arc<Qp>> {
        self.lanes.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Puts another queue pair in a lane's place, which it gives back.
    pub(super) fn replace_lane(&self, lane: usize, by: Arc<Qp>) -> Arc<Qp> {
        std::mem::replace(&mut self.lanes.write().unwrap_or_else(|e| e.into_inner())[lane], by)
    }

    /// How many lanes it has.
    pub(super) fn width(&self) -> usize {
        self.device().rails.len()
    }

    pub(super) fn device(&self) -> &Arc<Inner> {
        &self.pd.device
    }

    /// Locks are taken in this order: the connection, then sends or receives.
    pub(super) fn link(&self) -> Held<'_, Link> {
        self.link.lock(&self.device().host)
    }

    pub(super) fn sends(&self) -> Held<'_, Sends> {
        self.sends.lock(&self.device().host)
    }

    pub(super) fn receives(&self) -> Held<'_, Receives> {
        self.receives.lock(&self.device().host)
    }

    pub(super) fn now(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Goes from one state to another; whether it was there.
    pub(super) fn advance(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The state as the API has it.
    pub(super) fn state_now(&self) -> QpState {
        match self.now() {
            state::INIT | state::CONNECTING => QpState::Init,
            state::READY_TO_RECEIVE => QpState::ReadyToReceive,
            state::READY_TO_SEND => QpState::ReadyToSend,
            _ => QpState::Error,
        }
    }

    /// Works on the queue of send requests, then does what that asks for.
    pub(super) fn with_sends<R>(&self, work: impl FnOnce(&mut Sends) -> R) -> R {
        let mut sends = self.sends();
        let result = work(&mut sends);
        sends.advance(self, &mut Sink::ring(&self.send_cq));
        let wants = sends.wants();
        drop(sends);
        self.see_to(wants);
        result
    }

    /// Does what the queue of send requests asks for.
    fn see_to(&self, wants: Wants) {
        if wants.failure {
            self.fail();
        } else if wants.attention {
            self.send_cq.watch();
        }
    }

    /// Does what completions of a lane have asked for.
    pub(super) fn grant(self: &Arc<Self>, lane: usize, wants: Wants) {
        self.see_to(wants);
        if wants.mourning && self.now() != state::ERROR {
            self.lane_is_down(lane);
        } else if wants.mending {
            self.go_on_mending();
        }
    }

    /// Everything that is outstanding is flushed, at both ends.
    pub(super) fn fail(&self) {
        self.state.store(state::ERROR, Ordering::Release);
        self.send_cq.sees_an_end();
        self.recv_cq.sees_an_end();
        // A lane that failed by itself tells its peer why, in its own time.
        self.lanes().iter().filter(|lane| lane.state() != QpState::Error).for_each(|lane| lane.to_error());
        let mut sends = self.sends();
        sends.killed();
        sends.advance(self, &mut Sink::ring(&self.send_cq));
        drop(sends);
        self.flush_receives(&mut self.receives(), &mut Sink::ring(&self.recv_cq));
        self.device().host.signal();
    }

    /// A rail says that a lane failed for a reason of its own, which is the end of the whole. But not before this side has taken
    /// the news that it is connected, of which the accepting side may have made use, and ended it: they are on their way.
    pub(super) fn is_blamed(&self) {
        if self.now() != state::CONNECTING {
            self.fail();
        }
    }

    /// The connection is over: tells of receives that lie on no lane.
    fn flush_receives(&self, receives: &mut Receives, sink: &mut Sink<'_>) {
        let own = |wc| Wc { qp_num: self.num, ..wc };
        match &self.srq {
            None => receives.flush(|wc| sink.give(own(wc), 0, 1)),
            Some(srq) => receives.flush_shared(srq, |wc| sink.give(own(wc), 0, 0)),
        }
    }

    /// A completion of a lane's send queue.
    pub(super) fn on_sent(&self, lane: usize, wc: &Wc, sink: &mut Sink<'_>) -> Wants {
        let mut sends = self.sends();
        sends.complete(self, lane, wc);
        sends.advance(self, sink);
        sends.expect_no_more(self, lane);
        let wants = sends.wants();
        drop(sends);
        let mending = self.is_mending.load(Ordering::Relaxed);
        Wants { mourning: is_loss(wc.status), mending, ..wants }
    }

    /// A completion of a lane's receive queue.
    pub(super) fn on_received(&self, lane: usize, wc: &Wc, sink: &mut Sink<'_>) -> Wants {
        let mut wc = Wc { qp_num: self.num, ..*wc };
        wc.invalidated = wc.invalidated.and_then(|key| self.pd.invalidate(lane, key));
        let mut receives = self.receives();
        // The program's own failure is told of; a lane's need not be the connection's.
        let is_over = self.now() == state::ERROR;
        match &self.srq {
            None => receives.ended(lane, wc, is_over, |wc| sink.give(Wc { qp_num: self.num, ..wc }, 0, 1)),
            Some(srq) => receives.shared_ended(srq, lane, wc, is_over, |wc| sink.give(wc, 0, 0)),
        }
        if self.now() == state::ERROR {
            self.flush_receives(&mut receives, sink);
        }
        receives.expect_no_more(self);
        drop(receives);
        let mending = self.is_mending.load(Ordering::Relaxed);
        match wc.status {
            WcStatus::Success => Wants { mending, ..Wants::default() },
            _ if self.now() == state::ERROR => Wants::default(),
            // The peer's doing, of which the reason may still come.
            WcStatus::WrFlushErr => Wants { mourning: true, ..Wants::default() },
            _ => Wants { failure: true, ..Wants::default() },
        }
    }

    /// The program has polled completions: so many requests may be posted again.
    pub(super) fn give_back(&self, sends: u32, receives: u32) {
        let mut awaited = false;
        if sends > 0 {
            let mut queue = self.sends();
            queue.free += sends;
            awaited |= std::mem::take(&mut queue.refused);
        }
        if receives > 0 {
            let mut queue = self.receives();
            queue.free += receives;
            awaited |= std::mem::take(&mut queue.refused);
        }
        if awaited {
            self.device().host.signal();
        }
    }

    pub(super) fn uses_an_overrun_queue(&self) -> bool {
        self.send_cq.has_overrun() || self.recv_cq.has_overrun()
    }

    pub(super) fn signals_all(&self) -> bool {
        self.sig_all
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<u64> {
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
                Error::check_limit(
                    "pieces of a send request",
                    sges.len() as u64,
                    self.cap.max_send_sge.into(),
                )?;
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
        };
        Error::check_limit("bytes of a message", len, self.device().attr.max_msg_size)?;
        Ok(len)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let device = self.device().clone();
        device.forget_qp(self);
        // What has not completed will not: nothing else is outstanding then.
        self.sends.get_mut().expected().for_each(|lane| self.send_cq.expect_no_more(lane));
        self.receives.get_mut().expected().for_each(|lane| self.recv_cq.expect_no_more(lane));
        if let Some(srq) = &self.srq {
            srq.forget(self.num);
        }
        self.send_cq.want_no_more(self.cap.max_send_wr);
        self.recv_cq.want_no_more(self.receives_at_most());
        let link = self.link.get_mut();
        if !link.is_active {
            device.forget_token(link.token);
        }
        self.pd.give_scratch(self.scratch);
    }
}

/// Does `post` with pieces as a lane knows them. A key that names nothing becomes one of the lane's that allows nothing,
/// so that the lane refuses it as it refuses any.
#[inline]
pub(super) fn local_pieces<R>(
    device: &Inner,
    lane: usize,
    sges: &[Sge],
    post: impl FnOnce(&[Sge]) -> Result<R>,
) -> Result<R> {
    let local = |sge: &Sge| {
        let lkey = device.keys.get(sge.lkey, lane).unwrap_or_else(|| device.nobody(lane).lkey());
        Sge { lkey, ..*sge }
    };
    if let [one] = sges {
        return post(&[local(one)]);
    }
    Error::check_limit("pieces of a request", sges.len() as u64, PIECES_MAX as u64)?;
    let mut pieces = [Sge::default(); PIECES_MAX];
    pieces.iter_mut().zip(sges).for_each(|(piece, sge)| *piece = local(sge));
    post(&pieces[..sges.len()])
}

/// The API's hold on a queue pair.
pub(super) struct QpHandle(pub(super) Arc<QpInner>);

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.0.num
    }

    fn state(&self) -> QpState {
        let qp = &self.0;
        if qp.now() != state::ERROR && qp.device().check().is_ok() {
            if qp.uses_an_overrun_queue() {
                qp.fail();
            } else {
                let dead = |lane: &Arc<Qp>| lane.state() == QpState::Error;
                let dead = qp
                    .lanes()
                    .iter()
                    .enumerate()
                    .filter(|(_, lane)| dead(lane))
                    .map(|(at, _)| at)
                    .collect::<Vec<_>>();
                dead.into_iter().for_each(|lane| qp.lane_is_down(lane));
            }
        }
        qp.state_now()
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let qp = &self.0;
        qp.device().check()?;
        let len = qp.check_send(wr)?;
        if !matches!(qp.now(), state::READY_TO_SEND | state::ERROR) {
            return Err(Error::WrongState { call: "post_send", state: qp.state_now() });
        }
        qp.with_sends(|sends| sends.push(wr, len))
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let qp = &self.0;
        qp.device().check()?;
        if qp.srq.is_some() {
            return Err(Error::Invalid("the queue pair has a shared receive queue; post there".into()));
        }
        Error::check_limit("pieces of a receive", wr.sges.len() as u64, qp.cap.max_recv_sge.into())?;
        let mut receives = qp.receives();
        receives.post(qp, wr)?;
        if qp.now() == state::ERROR {
            qp.flush_receives(&mut receives, &mut Sink::ring(&qp.recv_cq));
        }
        Ok(())
    }

    fn to_error(&self) {
        if self.0.device().check().is_ok() {
            self.0.fail();
        }
    }
}
