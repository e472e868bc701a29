//! Connection channels: connect requests and events that are lost, refused or late.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};

use host::{Span, Time, Wake};
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{CmEvent, CmFailure, ConnParam, ConnectRequest, Error, QpState, Result, Screen};

use crate::api::qp::FaultQp;
use crate::effect::Effect;
use crate::event_lane::EventLane;
use crate::operation::Operation;
use crate::shared::{Shared, delay_of, vanish};

/// Lost connect requests that are kept, so that their peers wait as long as they would for an answer; further ones are
/// rejected.
const LOST_MAX: usize = 256;

/// The events of connections, as bits.
fn cm_events() -> u32 {
    Operation::ConnectRequest.bit() | Operation::Established.bit() | Operation::Disconnected.bit()
}

pub(crate) struct FaultCm {
    shared: Arc<Shared>,
    pub(crate) below: Arc<dyn CmOps>,
    lane: EventLane<CmEvent>,
    lost: Mutex<Vec<ConnectRequest>>,
    own: Weak<Self>,
}

impl FaultCm {
    pub(crate) fn create(shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let below = shared.below.create_cm()?;
        let lane = EventLane::new(below.fd())?;
        let (shared, lost) = (shared.clone(), Mutex::default());
        Ok(Arc::new_cyclic(|own| Self { shared, below, lane, lost, own: own.clone() }))
    }

    /// Adds an event behind the waiting events; the program gets it at `due` at the earliest.
    fn queue(&self, due: Time, event: CmEvent) {
        let due = self.lane.push(due, event);
        let own = self.own.clone();
        let wake = move || {
            if let Some(own) = own.upgrade() {
                own.lane.wake(own.shared.host(), Some(own.below.prepare_wait()));
            }
        };
        if due <= self.shared.host().now() {
            wake();
        } else if let Err(why) = self.shared.timer.at(due, wake.clone()) {
            // Without a timer the event is late for the next poll only.
            host::real::remark(format_args!("a late event wakes nobody: {why}"));
            wake();
        }
    }

    /// What the program gets of an event now.
    fn pass(&self, event: CmEvent) -> Option<CmEvent> {
        if !self.shared.engine.wants(cm_events()) && !self.lane.has_events() {
            return Some(event);
        }
        let (operation, peer, qp_num) = match &event {
            CmEvent::ConnectRequest(request) => {
                (Some(Operation::ConnectRequest), Some(request.info.peer), None)
            }
            CmEvent::Established { info, qp_num, .. } => {
                (Some(Operation::Established), Some(info.peer), Some(*qp_num))
            }
            CmEvent::Disconnected { qp_num } => {
                (Some(Operation::Disconnected), self.shared.peer_of(*qp_num), Some(*qp_num))
            }
            _ => (None, None, None),
        };
        let hit = operation.and_then(|operation| self.shared.engine.decide(operation, peer, qp_num));
        let effect = hit.as_ref().map(|hit| hit.effect);
        match (effect, event) {
            (Some(Effect::Vanish), _) => vanish(),
            (Some(Effect::Lose), CmEvent::ConnectRequest(request)) => {
                self.keep_lost(request);
                None
            }
            (Some(Effect::Lose), _) => None,
            (Some(Effect::Reject), CmEvent::ConnectRequest(request)) => {
                // If even this fails, the peer learns it from the closed connection.
                let _ = request.reject(&[]);
                None
            }
            (_, event) => {
                let delay = hit.as_ref().and_then(delay_of);
                if delay.is_none() && !self.lane.has_events() {
                    return Some(event);
                }
                self.queue(self.shared.host().now() + delay.unwrap_or(Span::ZERO), event);
                None
            }
        }
    }

    /// Keeps a lost request unanswered as long as its peer waits.
    fn keep_lost(&self, request: ConnectRequest) {
        let mut lost = self.lost.lock().unwrap_or_else(|e| e.into_inner());
        let (alive, dead): (Vec<_>, Vec<_>) = lost.drain(..).partition(ConnectRequest::is_alive);
        *lost = alive;
        let refused = if lost.len() < LOST_MAX {
            lost.push(request);
            None
        } else {
            Some(request)
        };
        drop(lost);
        drop((dead, refused));
    }

    /// What a fault does to a connect; `None` if the NIC connects.
    fn connect_by_fault(&self, qp: &FaultQp, addr: SocketAddr, param: &ConnParam) -> Option<Result<()>> {
        let hit = self.shared.engine.decide(Operation::Connect, Some(addr), Some(qp.num()))?;
        if qp.state() != QpState::Init {
            // The NIC refuses the call.
            self.shared.engine.take_back(Operation::Connect, Some(addr), Some(&hit));
            return None;
        }
        let (qp_num, now) = (qp.num(), self.shared.host().now());
        match hit.effect {
            Effect::Reject => self.queue(now, CmEvent::Rejected { qp_num, private_data: Vec::new() }),
            Effect::Lose => {
                self.queue(now + param.timeout, CmEvent::ConnectFailed { qp_num, why: CmFailure::TimedOut });
            }
            _ => return Some(self.shared.happen_to_call(Operation::Connect, &hit)),
        }
        Some(Ok(()))
    }
}

/// The queue pair of this device behind the API's.
fn own_qp(qp: &Arc<dyn QpOps>) -> Result<Arc<FaultQp>> {
    downcast(qp.clone(), "the queue pair")
}

/// A connect request that the program has not answered.
struct FaultRequest {
    below: Box<dyn RequestOps>,
    peer: SocketAddr,
}

impl RequestOps for FaultRequest {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let any: &dyn std::any::Any = cm;
        let cm: &FaultCm = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
        let qp = own_qp(qp)?;
        qp.set_peer(self.peer);
        self.below.accept(&*cm.below, &qp.below, param)
    }

    fn is_alive(&self) -> bool {
        self.below.is_alive()
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.below.reject(private_data)
    }
}

/// Puts this device's part around a request.
fn own_event(event: CmEvent) -> CmEvent {
    match event {
        CmEvent::ConnectRequest(request) => {
            let peer = request.info.peer;
            CmEvent::ConnectRequest(request.wrapped(|below| Box::new(FaultRequest { below, peer })))
        }
        other => other,
    }
}

impl CmOps for FaultCm {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        self.below.listen(addr, backlog, screen)
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let qp = own_qp(qp)?;
        if let Some(done) = self.connect_by_fault(&qp, addr, param) {
            return done;
        }
        qp.set_peer(addr);
        self.below.connect(&qp.below, addr, param)
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        self.below.bind(addr)
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        self.below.listen_at(port, backlog)
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let qp = own_qp(qp)?;
        if let Some(done) = self.connect_by_fault(&qp, addr, param) {
            return done;
        }
        qp.set_peer(addr);
        self.below.connect_from(port, &qp.below, addr, param)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        self.below.disconnect(&own_qp(qp)?.below)
    }

    fn poll_event(&self) -> Option<CmEvent> {
        // In a forked child the NIC has no events, and this device must not be used either.
        self.shared.below.check().ok()?;
        loop {
            if let Some(event) = self.lane.pop(self.shared.host().now()) {
                return Some(event);
            }
            let event = own_event(self.below.poll_event()?);
            if let Some(event) = self.pass(event) {
                return Some(event);
            }
        }
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.lane.joined_wake(self.below.prepare_wait())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.lane.fd()
    }
}
