//! Connecting: lane 0 first, by the program's own addresses; then the further lanes, at the accepting side's back door.
//! `Established` comes when all of them are up.

use std::net::SocketAddr;
use std::sync::Arc;

use host::{Span, Time};

use super::cm::CmInner;
use super::device::{Inner, unpoisoned};
use super::hello::{Hello, Kind, read_addrs, write_addrs};
use super::qp::{QpInner, state};
use crate::{Cm, CmEvent, CmFailure, ConnParam, ConnectRequest, Error, Result};

/// How long a queue pair that has lost a lane waits for what is in flight on the others.
const GRACE: Span = Span::from_ms(200);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    None,
    Connecting,
    Accepting,
    Up,
    /// A lane has gone; what is in flight on the others may still say why.
    Ending,
    Over,
}

/// The connection of a queue pair.
#[derive(Default)]
pub(super) struct Link {
    phase: Phase,
    /// Where its events go.
    cm: Option<Arc<CmInner>>,
    /// Lanes that are up, by bits.
    up: u8,
    param: ConnParam,
    token: u64,
    /// What the accepting side said to the program.
    answer: Vec<u8>,
    deadline: Option<Time>,
}

impl QpInner {
    fn hello(&self, kind: Kind, lane: usize, token: u64) -> Hello {
        Hello {
            kind,
            rails: self.lanes.len() as u8,
            lane: lane as u8,
            recv_lane: self.recv_lane as u8,
            token,
            table: self.pd.table_on(lane),
            nobody: self.device().nobody(lane).rkey(),
        }
    }

    /// The program's parameters as a lane gets them: the peer's tables must be readable.
    fn lane_param(param: &ConnParam, private_data: Vec<u8>) -> ConnParam {
        ConnParam {
            private_data,
            responder_resources: param.responder_resources.saturating_add(1),
            initiator_depth: param.initiator_depth.saturating_add(1),
            ..param.clone()
        }
    }

    pub(super) fn connect(&self, cm: &Arc<CmInner>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        if !self.advance(state::INIT, state::CONNECTING) {
            return Err(match self.now() {
                state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
                _ => Error::WrongState { call: "connect", state: self.state_now() },
            });
        }
        *unpoisoned(&self.link) = Link {
            phase: Phase::Connecting,
            cm: Some(cm.clone()),
            param: param.clone(),
            deadline: self.device().host.after(param.timeout),
            ..Link::default()
        };
        let said = self.hello(Kind::New, 0, 0).write(&param.private_data);
        cm.on(0).connect(&self.lanes[0], addr, &Self::lane_param(param, said)).inspect_err(|_| {
            *unpoisoned(&self.link) = Link::default();
            self.advance(state::CONNECTING, state::INIT);
        })
    }

    pub(super) fn accept(
        self: &Arc<Self>,
        cm: &Arc<CmInner>,
        request: ConnectRequest,
        hello: &Hello,
        param: &ConnParam,
    ) -> Result<()> {
        let device = self.device();
        let addrs = device.lane_addrs(request.local)?;
        if !self.advance(state::INIT, state::READY_TO_RECEIVE) {
            return Err(Error::WrongState { call: "accept", state: self.state_now() });
        }
        let token = device.token();
        self.with_sends(|sends| sends.meet(0, *hello));
        *unpoisoned(&self.link) = Link {
            phase: Phase::Accepting,
            cm: Some(cm.clone()),
            param: param.clone(),
            token,
            deadline: device.host.after(param.timeout),
            ..Link::default()
        };
        let mut rest = Vec::new();
        write_addrs(&addrs, &mut rest);
        rest.extend(&param.private_data);
        let said = self.hello(Kind::New, 0, token).write(&rest);
        unpoisoned(&device.expected).insert(token, Arc::downgrade(self));
        device.service.wake();
        cm.on(0).accept(request, &self.lanes[0], &Self::lane_param(param, said)).inspect_err(|_| {
            unpoisoned(&device.expected).remove(&token);
            *unpoisoned(&self.link) = Link::default();
            self.advance(state::READY_TO_RECEIVE, state::INIT);
        })
    }

    /// A lane is connected; `said` is the accepting side's answer, on the connecting side.
    pub(super) fn lane_is_up(&self, lane: usize, said: &[u8]) {
        let phase = unpoisoned(&self.link).phase;
        if phase == Phase::Connecting && !self.read_answer(lane, said) {
            return self.connection_failed(CmFailure::Protocol(format!(
                "its answer is not that of a device of {} rails",
                self.lanes.len()
            )));
        }
        let mut link = unpoisoned(&self.link);
        link.up |= 1 << lane;
        let all = link.up.count_ones() as usize == self.lanes.len();
        if !all || !matches!(link.phase, Phase::Connecting | Phase::Accepting) {
            return;
        }
        link.phase = Phase::Up;
        let (cm, private_data) = (link.cm.clone(), std::mem::take(&mut link.answer));
        let token = link.token;
        drop(link);
        if phase == Phase::Accepting {
            unpoisoned(&self.device().expected).remove(&token);
        }
        let from = if phase == Phase::Connecting { state::CONNECTING } else { state::READY_TO_RECEIVE };
        self.advance(from, state::READY_TO_SEND);
        if let Some(cm) = cm {
            cm.push(CmEvent::Established { qp_num: self.num, private_data });
        }
    }

    /// Learns from the accepting side's answer; on lane 0, connects the further lanes. Whether it could be understood.
    fn read_answer(&self, lane: usize, said: &[u8]) -> bool {
        let Some((hello, rest)) = Hello::read(said) else { return false };
        if hello.rails as usize != self.lanes.len() || hello.lane as usize != lane {
            return false;
        }
        self.with_sends(|sends| sends.meet(lane, hello));
        if lane != 0 {
            return true;
        }
        let Some((addrs, rest)) = read_addrs(rest, self.lanes.len() - 1) else { return false };
        let mut link = unpoisoned(&self.link);
        link.answer = rest.to_vec();
        link.token = hello.token;
        let (cm, param) = (link.cm.clone(), link.param.clone());
        drop(link);
        let Some(cm) = cm else { return false };
        for (lane, addr) in (1..).zip(addrs) {
            let said = self.hello(Kind::Join, lane, hello.token).write(&[]);
            let param = Self::lane_param(&param, said);
            if let Err(why) = cm.on(lane).connect(&self.lanes[lane], addr, &param) {
                self.connection_failed(CmFailure::Unreachable(addr, why.to_string()));
                return true;
            }
        }
        true
    }

    /// The accepting side said no.
    pub(super) fn lane_was_rejected(&self, lane: usize, private_data: Vec<u8>) {
        if lane != 0 {
            return self.connection_failed(CmFailure::Protocol(format!("it rejected lane {lane}")));
        }
        let cm = std::mem::take(&mut *unpoisoned(&self.link)).cm;
        self.advance(state::CONNECTING, state::INIT);
        if let Some(cm) = cm {
            cm.push(CmEvent::Rejected { qp_num: self.num, private_data });
        }
    }

    /// A lane did not come about.
    pub(super) fn lane_failed(&self, lane: usize, why: CmFailure) {
        let mut link = unpoisoned(&self.link);
        if lane != 0 || link.phase != Phase::Connecting {
            drop(link);
            return self.connection_failed(why);
        }
        // Nothing has happened yet: the queue pair may try again.
        let cm = std::mem::take(&mut *link).cm;
        drop(link);
        self.advance(state::CONNECTING, state::INIT);
        if let Some(cm) = cm {
            cm.push(CmEvent::ConnectFailed { qp_num: self.num, why });
        }
    }

    /// The connection failed when some lane was up already, or on the accepting side.
    fn connection_failed(&self, why: CmFailure) {
        let mut link = unpoisoned(&self.link);
        let was = std::mem::replace(&mut link.phase, Phase::Over);
        let (cm, token) = (link.cm.clone(), link.token);
        drop(link);
        unpoisoned(&self.device().expected).remove(&token);
        self.fail();
        if let (Phase::Connecting | Phase::Accepting, Some(cm)) = (was, cm) {
            cm.push(CmEvent::ConnectFailed { qp_num: self.num, why });
        }
    }

    /// A lane's connection is over, and so will be the whole: once what is in flight on the others has ended, as the reason
    /// may come on one of them.
    pub(super) fn lane_is_down(self: &Arc<Self>, lane: usize) {
        let mut link = unpoisoned(&self.link);
        if link.phase != Phase::Up {
            let ending = link.phase == Phase::Ending;
            link.up &= !(1 << lane);
            drop(link);
            if ending {
                self.end_if_quiet();
            } else {
                self.connection_failed(CmFailure::PeerGone);
            }
            return;
        }
        link.phase = Phase::Ending;
        link.up &= !(1 << lane);
        link.deadline = self.device().host.after(GRACE);
        drop(link);
        unpoisoned(&self.device().ending).push(Arc::downgrade(self));
        self.end_if_quiet();
    }

    /// Ends a connection that has lost a lane, if nothing is in flight on the others, or for too long. Whether it has ended.
    pub(super) fn end_if_quiet(&self) -> bool {
        self.device().poll_rails();
        self.send_cq.progress();
        let quiet = self.with_sends(|sends| !sends.in_flight()) || self.now() == state::ERROR;
        let mut link = unpoisoned(&self.link);
        let late = link.deadline.is_some_and(|deadline| self.device().host.now() >= deadline);
        if link.phase != Phase::Ending || !(quiet || late || link.up == 0) {
            return link.phase != Phase::Ending;
        }
        link.phase = Phase::Over;
        let cm = link.cm.clone();
        drop(link);
        self.fail();
        if let Some(cm) = cm {
            cm.push(CmEvent::Disconnected { qp_num: self.num });
        }
        true
    }

    pub(super) fn disconnect(&self) -> Result<()> {
        let link = unpoisoned(&self.link);
        let (phase, cm) = (link.phase, link.cm.clone());
        drop(link);
        let (Phase::Up | Phase::Ending | Phase::Over, Some(cm)) = (phase, cm) else {
            return Err(Error::WrongState { call: "disconnect", state: self.state_now() });
        };
        for (rail, lane) in self.lanes.iter().enumerate() {
            // A lane that has gone already is as disconnected as can be.
            let _ = cm.on(rail).disconnect(lane);
        }
        self.fail();
        Ok(())
    }

    /// On the accepting side: lanes that have not come by now will not.
    pub(super) fn give_up_if_overdue(&self) {
        let link = unpoisoned(&self.link);
        let overdue = link.phase == Phase::Accepting
            && link.deadline.is_some_and(|deadline| self.device().host.now() >= deadline);
        drop(link);
        if overdue {
            self.connection_failed(CmFailure::TimedOut);
        }
    }

    /// A further lane, as the connecting side asks for it.
    fn take_lane(&self, cm: &Cm, rail: usize, request: ConnectRequest, hello: Hello) {
        self.with_sends(|sends| sends.meet(rail, hello));
        let link = unpoisoned(&self.link);
        let (param, token) = (link.param.clone(), link.token);
        drop(link);
        let said = self.hello(Kind::Join, rail, token).write(&[]);
        if cm.accept(request, &self.lanes[rail], &Self::lane_param(&param, said)).is_err() {
            self.connection_failed(CmFailure::PeerGone);
        }
    }
}

/// Somebody asks for a lane at the back door. Whoever has no token is rejected by dropping the request.
pub(super) fn join(device: &Inner, rail: usize, cm: &Cm, request: ConnectRequest) {
    let fits = |hello: &Hello| {
        let rails = device.rails.len();
        hello.kind == Kind::Join && hello.lane as usize == rail && hello.rails as usize == rails
    };
    let Some((hello, _)) = Hello::read(&request.private_data).filter(|(hello, _)| fits(hello)) else {
        return;
    };
    let expected = unpoisoned(&device.expected).get(&hello.token).and_then(std::sync::Weak::upgrade);
    if let Some(qp) = expected {
        qp.take_lane(cm, rail, request, hello);
    }
}
