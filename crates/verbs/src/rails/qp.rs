//! Queue pairs: a lane on each rail, and what posting to the whole means.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::cq::CqInner;
use super::device::{Inner, unpoisoned};
use super::domain::PdInner;
use super::link::Link;
use super::sends::Sends;
use super::srq::SrqInner;
use crate::provider::{QpOps, own};
use crate::{Data, Error, Qp, QpCap, QpInit, QpState, RecvWr, Result, SendOp, SendWr, Sge, Wc, WcStatus};

/// The most pieces of a request.
pub(super) const PIECES_MAX: usize = 32;
/// Requests of the device's own, beside the program's, on a lane.
const OWN_REQUESTS: u32 = 2;

/// States, in their order; CONNECTING is `Init` to the program.
pub(super) mod state {
    pub(in crate::rails) const INIT: u8 = 0;
    pub(in crate::rails) const CONNECTING: u8 = 1;
    pub(in crate::rails) const READY_TO_RECEIVE: u8 = 2;
    pub(in crate::rails) const READY_TO_SEND: u8 = 3;
    pub(in crate::rails) const ERROR: u8 = 4;
}

/// Receives that are posted or not yet polled, by their place in the ring.
struct Receives {
    wr_ids: Vec<u64>,
    next: u64,
    free: u32,
}

pub(super) struct QpInner {
    pub(super) num: u32,
    pub(super) pd: Arc<PdInner>,
    pub(super) lanes: Vec<Qp>,
    /// Where this side takes messages.
    pub(super) recv_lane: usize,
    pub(super) send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    srq: Option<Arc<SrqInner>>,
    pub(super) cap: QpCap,
    sig_all: bool,
    state: AtomicU8,
    sends: Mutex<Sends>,
    receives: Mutex<Receives>,
    pub(super) link: Mutex<Link>,
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
        let recv_lane = srq.as_ref().map_or_else(|| device.next_lane(), |srq| srq.lane);
        let lane = |rail: usize| {
            let takes = rail == recv_lane;
            let cap = QpCap {
                max_send_wr: init.cap.max_send_wr + OWN_REQUESTS,
                max_recv_wr: if takes { init.cap.max_recv_wr.max(1) } else { 1 },
                ..init.cap
            };
            pd.pds[rail].create_qp(&QpInit {
                send_cq: send_cq.on(rail).clone(),
                recv_cq: recv_cq.on(rail).clone(),
                srq: srq.as_ref().filter(|_| takes).map(|srq| srq.of_lane.clone()),
                cap,
                sq_sig_all: false,
                mtu: init.mtu,
            })
        };
        let lanes = (0..device.rails.len()).map(lane).collect::<Result<Vec<Qp>>>()?;
        let wr_ids = vec![0; init.cap.max_recv_wr as usize];
        let qp = Arc::new(Self {
            num: device.fresh(),
            scratch: pd.take_scratch()?,
            pd: pd.clone(),
            recv_lane,
            send_cq,
            recv_cq,
            srq,
            cap: init.cap,
            sig_all: init.sq_sig_all,
            state: AtomicU8::new(state::INIT),
            sends: Mutex::new(Sends::new(&init.cap, lanes.len())),
            receives: Mutex::new(Receives { wr_ids, next: 0, free: init.cap.max_recv_wr }),
            link: Mutex::default(),
            lanes,
        });
        device.add_qp(&qp);
        Ok(qp)
    }

    pub(super) fn device(&self) -> &Arc<Inner> {
        &self.pd.device
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
        let mut sends = unpoisoned(&self.sends);
        let result = work(&mut sends);
        sends.advance(self);
        let (kill, waits) = (sends.wants_the_lanes_killed(), sends.waits());
        drop(sends);
        if kill {
            self.fail();
        } else if waits {
            self.send_cq.watch();
        }
        result
    }

    /// Everything that is outstanding is flushed, at both ends.
    pub(super) fn fail(&self) {
        self.state.store(state::ERROR, Ordering::Release);
        // A lane that failed by itself tells its peer why, in its own time.
        self.lanes.iter().filter(|lane| lane.state() != QpState::Error).for_each(Qp::to_error);
        let mut sends = unpoisoned(&self.sends);
        sends.killed();
        sends.advance(self);
        drop(sends);
        self.device().signal();
    }

    /// A completion of a lane's send queue.
    pub(super) fn on_sent(self: &Arc<Self>, lane: usize, wc: &Wc) {
        self.with_sends(|sends| sends.complete(self, lane, wc));
        if wc.status == WcStatus::WrFlushErr && self.now() != state::ERROR {
            self.lane_is_down(lane);
        }
    }

    /// A completion of a lane's receive queue.
    pub(super) fn on_received(self: &Arc<Self>, lane: usize, wc: &Wc) {
        let mut wc = Wc { qp_num: self.num, ..*wc };
        let mut receives = 0;
        if self.srq.is_none() {
            let posted = unpoisoned(&self.receives);
            wc.wr_id = posted.wr_ids[wc.wr_id as usize % posted.wr_ids.len()];
            receives = 1;
        }
        wc.invalidated = wc.invalidated.and_then(|key| self.pd.invalidate(lane, key));
        self.recv_cq.push(wc, 0, receives);
        match wc.status {
            WcStatus::Success => {}
            _ if self.now() == state::ERROR => {}
            // The peer's doing, of which the reason may still come.
            WcStatus::WrFlushErr => self.lane_is_down(lane),
            _ => self.fail(),
        }
    }

    /// The program has polled completions: so many requests may be posted again.
    pub(super) fn give_back(&self, sends: u32, receives: u32) {
        if sends > 0 {
            unpoisoned(&self.sends).free += sends;
        }
        if receives > 0 {
            unpoisoned(&self.receives).free += receives;
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
        self.device().forget_qp(self);
        self.pd.give_scratch(self.scratch);
    }
}

/// Does `post` with pieces as a lane knows them. A key that names nothing becomes one of the lane's that allows nothing,
/// so that the lane refuses it as it refuses any.
pub(super) fn local_pieces<R>(
    device: &Inner,
    lane: usize,
    sges: &[Sge],
    post: impl FnOnce(&[Sge]) -> Result<R>,
) -> Result<R> {
    Error::check_limit("pieces of a request", sges.len() as u64, PIECES_MAX as u64)?;
    let mut pieces = [Sge::default(); PIECES_MAX];
    let keys = device.keys.read().unwrap_or_else(|e| e.into_inner());
    for (piece, sge) in pieces.iter_mut().zip(sges) {
        let lkey = keys.get(sge.lkey).map_or_else(|| device.nobody(lane).lkey(), |lanes| lanes[lane]);
        *piece = Sge { lkey, ..*sge };
    }
    drop(keys);
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
        if qp.now() != state::ERROR {
            let dead = qp.lanes.iter().position(|lane| lane.state() == QpState::Error);
            match dead {
                _ if qp.uses_an_overrun_queue() => qp.fail(),
                Some(lane) => qp.lane_is_down(lane),
                None => {}
            }
        }
        qp.state_now()
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let qp = &self.0;
        let len = qp.check_send(wr)?;
        if !matches!(qp.now(), state::READY_TO_SEND | state::ERROR) {
            return Err(Error::WrongState { call: "post_send", state: qp.state_now() });
        }
        qp.with_sends(|sends| sends.push(wr, len))
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let qp = &self.0;
        if qp.srq.is_some() {
            return Err(Error::Invalid("the queue pair has a shared receive queue; post there".into()));
        }
        Error::check_limit("pieces of a receive", wr.sges.len() as u64, qp.cap.max_recv_sge.into())?;
        let mut receives = unpoisoned(&qp.receives);
        if receives.free == 0 {
            return Err(Error::QueueFull { queue: "receive", depth: qp.cap.max_recv_wr });
        }
        let (at, depth) = (receives.next, receives.wr_ids.len());
        local_pieces(qp.device(), qp.recv_lane, wr.sges, |sges| {
            qp.lanes[qp.recv_lane].post_recv(&RecvWr::new(at, sges))
        })?;
        receives.wr_ids[at as usize % depth] = wr.wr_id;
        receives.next += 1;
        receives.free -= 1;
        Ok(())
    }

    fn to_error(&self) {
        self.0.fail();
    }
}
