//! Connecting: lane 0 first, by the program's own addresses; then the further lanes, at the accepting side's back door.
//! `Established` comes when all of them are up. A lane that dies later is mended (`mend`) and comes back (`rejoin`).
//!
//! **Who is told what when the peer falls silent.** The connecting side may send once it has the answers on all lanes. The
//! accepting side cannot know whether it had them: what confirms them is lost with a peer that dies, and messages may have
//! come before it by any lane. But no answer goes out before the lane is accepted. So when the peer is gone or late:
//!
//! - before all lanes are accepted, nothing can have come: `ConnectFailed`;
//! - afterwards anything can have come: `Established`, then `Disconnected`, as for a peer that died right after.
//!
//! A failure that says more than silence, such as a lane that was refused for want of something, says that the peer never had
//! that lane: `ConnectFailed` with the reason.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use host::{Held, Time};

use super::RAILS_MAX;
use super::cm::CmInner;
use super::device::Inner;
use super::hello::{Hello, Kind, More, read_addrs, read_refusal, write_addrs};
use super::lock::unpoisoned;
use super::qp::{QpInner, state};
use crate::{Cm, CmEvent, CmFailure, ConnInfo, ConnParam, ConnectRequest, Error, Qp, Result};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    None,
    Connecting,
    Accepting,
    Up,
    Over,
}

/// How a lane of a connection that is up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    #[default]
    Up,
    /// It has died; this side is about to close its own end.
    Dying,
    /// This side has closed it, and waits until everything on it has come back.
    Draining,
    /// This side has written so to the peer, and waits for the same from there.
    Told,
    /// Both ends have closed it, and have settled what that means.
    Down,
}

/// A lane of a connection.
#[derive(Default)]
pub(super) struct LaneLink {
    pub(super) health: Health,
    /// Which time it is that it is connected, and which time it has been tried.
    pub(super) generation: u32,
    pub(super) tried: u32,
    /// When its death is to be settled, or the next attempt begins.
    pub(super) due: Option<Time>,
    /// When this side closed it.
    pub(super) closed: Option<Time>,
    /// The queue pair that is to take its place.
    pub(super) joining: Option<(u32, Arc<Qp>)>,
    /// Where it is joined, at the accepting side.
    pub(super) door: Option<SocketAddr>,
}

/// The connection of a queue pair.
#[derive(Default)]
pub(super) struct Link {
    pub(super) phase: Phase,
    /// Where its events go.
    pub(super) cm: Option<Arc<CmInner>>,
    /// Lanes that have been asked for or accepted, of which therefore news come; those that have come up; and those that
    /// have gone before all were up. By bits.
    begun: u8,
    up: u8,
    gone: u8,
    pub(super) param: ConnParam,
    pub(super) token: u64,
    /// Whether this side connected.
    pub(super) is_active: bool,
    /// What the accepting side said to the program.
    answer: Vec<u8>,
    /// Where the ends of the first lane are: the addresses that the programs know. On the accepting side known from the request
    /// on, as it may be told of the whole before it hears of that lane.
    info: Option<ConnInfo>,
    deadline: Option<Time>,
    pub(super) lanes: [LaneLink; RAILS_MAX],
}

impl QpInner {
    fn hello(&self, kind: Kind, lane: usize, token: u64) -> Hello {
        Hello {
            kind,
            rails: self.width() as u8,
            lane: lane as u8,
            recv_lane: self.receives().lane as u8,
            token,
            table: self.pd.table_on(lane),
            nobody: self.device().nobody(lane).rkey(),
        }
    }

    /// What this side says on a further lane, or on any that comes back.
    pub(super) fn joining_words(&self, lane: usize, token: u64, generation: u32) -> Vec<u8> {
        let mut more = Vec::new();
        let keys = (self.mailbox.rkey(lane), self.mailbox.rkey(0));
        More { generation, mailbox: self.mailbox.addr(), keys }.write(&mut more);
        self.hello(Kind::Join, lane, token).write(&more)
    }

    /// The program's parameters as a lane gets them: the peer's tables must be readable.
    pub(super) fn lane_param(param: &ConnParam, private_data: Vec<u8>) -> ConnParam {
        ConnParam {
            private_data,
            responder_resources: param.responder_resources.saturating_add(1),
            initiator_depth: param.initiator_depth.saturating_add(1),
            ..param.clone()
        }
    }

    pub(super) fn connect(
        self: &Arc<Self>,
        cm: &Arc<CmInner>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        if !self.advance(state::INIT, state::CONNECTING) {
            return Err(match self.now() {
                state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
                _ => Error::WrongState { call: "connect", state: self.state_now() },
            });
        }
        self.join_shared().inspect_err(|_| {
            self.advance(state::CONNECTING, state::INIT);
        })?;
        *self.link() = Link {
            phase: Phase::Connecting,
            cm: Some(cm.clone()),
            param: param.clone(),
            is_active: true,
            begun: 1,
            deadline: self.device().host.after(param.timeout),
            ..Link::default()
        };
        let said = self.hello(Kind::New, 0, 0).write(&param.private_data);
        cm.on(0).connect(&self.lane(0), addr, &Self::lane_param(param, said)).inspect_err(|_| {
            *self.link() = Link::default();
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
        let addrs = device.lane_addrs(request.info.local)?;
        if !self.advance(state::INIT, state::READY_TO_RECEIVE) {
            return Err(Error::WrongState { call: "accept", state: self.state_now() });
        }
        self.join_shared().inspect_err(|_| {
            self.advance(state::READY_TO_RECEIVE, state::INIT);
        })?;
        let token = device.token();
        self.with_sends(|sends| sends.meet(0, *hello));
        let mut link = Link {
            phase: Phase::Accepting,
            cm: Some(cm.clone()),
            param: param.clone(),
            token,
            info: Some(of_program(request.info)),
            begun: 1,
            deadline: device.host.after(param.timeout),
            ..Link::default()
        };
        link.lanes.iter_mut().zip(&addrs).for_each(|(lane, addr)| lane.door = Some(*addr));
        *self.link() = link;
        let mut rest = Vec::new();
        write_addrs(&addrs[1..], &mut rest);
        rest.extend(&param.private_data);
        let said = self.hello(Kind::New, 0, token).write(&rest);
        unpoisoned(&device.tokens).insert(token, Arc::downgrade(self));
        unpoisoned(&device.expected).push(Arc::downgrade(self));
        device.service.wake();
        cm.on(0).accept(request, &self.lane(0), &Self::lane_param(param, said)).inspect_err(|_| {
            unpoisoned(&device.tokens).remove(&token);
            *self.link() = Link::default();
            self.advance(state::READY_TO_RECEIVE, state::INIT);
        })
    }

    /// A lane's queue pair is connected; `said` is the accepting side's answer, on the connecting side.
    pub(super) fn lane_is_up(self: &Arc<Self>, lane: usize, num: u32, said: &[u8], info: ConnInfo) {
        let mut link = self.link();
        if lane == 0 {
            link.info = Some(of_program(info));
        }
        let phase = link.phase;
        drop(link);
        if phase == Phase::Up {
            return self.lane_is_back(lane, num, said);
        }
        if phase == Phase::Connecting && !self.read_answer(lane, said) {
            return self.connection_failed(CmFailure::Protocol(format!(
                "its answer is not that of a device of {} rails",
                self.width()
            )));
        }
        let mut link = self.link();
        link.up |= 1 << lane;
        let all = link.up.count_ones() as usize == self.width();
        if !all || !matches!(link.phase, Phase::Connecting | Phase::Accepting) {
            return;
        }
        let gone = link.gone;
        self.establish(&mut link, phase);
        drop(link);
        self.device().service.wake();
        (0..self.width()).filter(|lane| gone & 1 << lane != 0).for_each(|lane| self.lane_is_down(lane));
    }

    /// All lanes are up. Said while the link is held: another thread may have news of its end, which come behind this.
    fn establish(&self, link: &mut Link, was: Phase) {
        link.phase = Phase::Up;
        let from = if was == Phase::Connecting { state::CONNECTING } else { state::READY_TO_RECEIVE };
        self.advance(from, state::READY_TO_SEND);
        let private_data = std::mem::take(&mut link.answer);
        if let Some(cm) = &link.cm {
            let info = link.info.expect("of the request, or of the first lane, without which not all are up");
            cm.push(CmEvent::Established { qp_num: self.num, private_data, info });
        }
    }

    /// A lane has gone before this side knew of all that they are up. If all have begun, the peer may have a whole connection and
    /// go on without this lane: then the news of the others tell. Each of them brings some, of its beginning or its failure.
    pub(super) fn gone_early(&self, mut link: Held<'_, Link>, lane: usize) {
        link.gone |= 1 << lane;
        if !self.all_begun(&link) || self.now() == state::ERROR {
            drop(link);
            self.connection_failed(CmFailure::PeerGone);
        }
    }

    fn all_begun(&self, link: &Link) -> bool {
        link.begun.count_ones() as usize == self.width()
    }

    /// Learns from the accepting side's answer; on lane 0, connects the further lanes. Whether it could be understood.
    fn read_answer(&self, lane: usize, said: &[u8]) -> bool {
        let Some((hello, rest)) = Hello::read(said) else { return false };
        if hello.rails as usize != self.width() || hello.lane as usize != lane {
            return false;
        }
        self.with_sends(|sends| sends.meet(lane, hello));
        if lane != 0 {
            return self.read_more(lane, rest);
        }
        let Some((addrs, rest)) = read_addrs(rest, self.width() - 1) else { return false };
        let mut link = self.link();
        link.answer = rest.to_vec();
        link.token = hello.token;
        link.lanes[1..].iter_mut().zip(&addrs).for_each(|(lane, addr)| lane.door = Some(*addr));
        link.begun = u8::MAX >> (u8::BITS as usize - self.width());
        let (cm, param) = (link.cm.clone(), link.param.clone());
        drop(link);
        let Some(cm) = cm else { return false };
        for (lane, addr) in (1..).zip(addrs) {
            let param = Self::lane_param(&param, self.joining_words(lane, hello.token, 0));
            if let Err(why) = cm.on(lane).connect(&self.lane(lane), addr, &param) {
                let rail = self.device().rails[lane].name();
                self.connection_failed(CmFailure::Unreachable(addr, format!("{rail}: {why}")));
                return true;
            }
        }
        true
    }

    /// What the answer on a further lane goes on with.
    fn read_more(&self, lane: usize, rest: &[u8]) -> bool {
        let Some((more, rest)) = More::read(rest) else { return false };
        self.with_sends(|sends| sends.meet_mail(lane, &more));
        if lane == 1 {
            let Some((addrs, _)) = read_addrs(rest, 1) else { return false };
            self.link().lanes[0].door = Some(addrs[0]);
        }
        true
    }

    /// The accepting side said no.
    pub(super) fn lane_was_rejected(self: &Arc<Self>, lane: usize, num: u32, private_data: Vec<u8>) {
        if self.attempt_failed(lane, num) {
            return;
        }
        if lane != 0 {
            return self.connection_failed(CmFailure::Protocol(format!(
                "it rejected the lane on {}",
                self.device().rails[lane].name()
            )));
        }
        let cm = std::mem::take(&mut *self.link()).cm;
        self.advance(state::CONNECTING, state::INIT);
        let Some(cm) = cm else { return };
        let qp_num = self.num;
        cm.push(match read_refusal(&private_data) {
            None => CmEvent::Rejected { qp_num, private_data },
            Some(rails) => {
                let why = format!("it has {rails} rails, and this side {}; both need as many", self.width());
                CmEvent::ConnectFailed { qp_num, why: CmFailure::Protocol(why) }
            }
        });
    }

    /// A lane's queue pair was not connected.
    pub(super) fn lane_failed(self: &Arc<Self>, lane: usize, num: u32, why: CmFailure) {
        if self.attempt_failed(lane, num) {
            return;
        }
        let mut link = self.link();
        let (is_active, has_begun) = (link.is_active, lane != 0 || link.gone != 0);
        if has_begun || !is_active {
            let door = link.lanes[lane].door.filter(|_| lane != 0 && (is_active || !is_silence(&why)));
            let why = match door {
                // It never was whole.
                _ if is_active && link.gone != 0 => CmFailure::PeerGone,
                Some(addr) => {
                    let rail = self.device().rails[lane].name();
                    CmFailure::Unreachable(addr, format!("the lane on {rail}: {why}"))
                }
                None => why,
            };
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
    pub(super) fn connection_failed(&self, why: CmFailure) {
        let mut link = self.link();
        let was = link.phase;
        if !matches!(was, Phase::Connecting | Phase::Accepting) {
            drop(link);
            return self.end();
        }
        if was == Phase::Accepting && self.all_begun(&link) && is_silence(&why) {
            self.establish(&mut link, was);
            return self.end_of(link);
        }
        link.phase = Phase::Over;
        let cm = link.cm.clone();
        self.forget_token(&link);
        drop(link);
        self.fail();
        if let Some(cm) = cm {
            cm.push(CmEvent::ConnectFailed { qp_num: self.num, why });
        }
    }

    /// The connection is over.
    pub(super) fn end(&self) {
        self.end_of(self.link());
    }

    fn end_of(&self, mut link: Held<'_, Link>) {
        if link.phase != Phase::Up {
            return;
        }
        link.phase = Phase::Over;
        let cm = link.cm.clone();
        self.forget_token(&link);
        let joining: Vec<_> = link.lanes.iter_mut().filter_map(|lane| lane.joining.take()).collect();
        drop(link);
        drop(joining);
        self.is_mending.store(false, Ordering::Relaxed);
        self.fail();
        if let Some(cm) = cm {
            cm.push(CmEvent::Disconnected { qp_num: self.num });
        }
    }

    /// Nobody joins with this connection's token any more.
    pub(super) fn forget_token(&self, link: &Link) {
        if !link.is_active {
            self.device().forget_token(link.token);
        }
    }

    pub(super) fn disconnect(&self) -> Result<()> {
        let link = self.link();
        let (phase, cm) = (link.phase, link.cm.clone());
        drop(link);
        let (Phase::Up | Phase::Over, Some(cm)) = (phase, cm) else {
            return Err(Error::WrongState { call: "disconnect", state: self.state_now() });
        };
        for (rail, lane) in self.lanes().iter().enumerate() {
            // A lane that has gone already is as disconnected as can be.
            let _ = cm.on(rail).disconnect(lane);
        }
        self.fail();
        Ok(())
    }

    /// On the accepting side: lanes that have not come by now will not. Whether there is nothing to wait for any more.
    pub(super) fn give_up_if_overdue(&self) -> bool {
        let link = self.link();
        let waits = link.phase == Phase::Accepting;
        let overdue = waits && link.deadline.is_some_and(|deadline| self.device().host.now() >= deadline);
        drop(link);
        if overdue {
            self.connection_failed(CmFailure::TimedOut);
        }
        !waits || overdue
    }

    /// A further lane, as the connecting side asks for it.
    fn take_lane(self: &Arc<Self>, cm: &Cm, rail: usize, request: ConnectRequest, hello: Hello, more: &More) {
        let mut link = self.link();
        if link.phase == Phase::Up {
            drop(link);
            return self.take_back(cm, rail, request, more);
        }
        let (param, token, door) = (link.param.clone(), link.token, link.lanes[0].door);
        let fits = link.phase == Phase::Accepting && link.begun & 1 << rail == 0 && more.generation == 0;
        link.begun |= if fits { 1 << rail } else { 0 };
        drop(link);
        if !fits {
            // Dropping the request rejects it.
            return;
        }
        self.with_sends(|sends| {
            sends.meet(rail, hello);
            sends.meet_mail(rail, more);
        });
        let mut said = self.joining_words(rail, token, 0);
        if let (1, Some(door)) = (rail, door) {
            write_addrs(&[door], &mut said);
        }
        if cm.accept(request, &self.lane(rail), &Self::lane_param(&param, said)).is_err() {
            // No answer went out.
            self.link().begun &= !(1 << rail);
            self.connection_failed(CmFailure::PeerGone);
        }
    }
}

/// What the program is told of the first lane. A rail's depths are not the program's: the rails read, too.
fn of_program(info: ConnInfo) -> ConnInfo {
    ConnInfo { depths: None, ..info }
}

/// Whether a lane failed for no other reason than that nothing is heard of the peer any more.
fn is_silence(why: &CmFailure) -> bool {
    matches!(why, CmFailure::PeerGone | CmFailure::TimedOut)
}

/// Somebody asks for a lane at the back door. Whoever has no token is rejected by dropping the request.
pub(super) fn join(device: &Inner, rail: usize, cm: &Cm, request: ConnectRequest) {
    let fits = |hello: &Hello| {
        let rails = device.rails.len();
        hello.kind == Kind::Join && hello.lane as usize == rail && hello.rails as usize == rails
    };
    let read = |said: &[u8]| {
        let (hello, rest) = Hello::read(said).filter(|(hello, _)| fits(hello))?;
        Some((hello, More::read(rest)?.0))
    };
    let Some((hello, more)) = read(&request.private_data) else { return };
    let known = unpoisoned(&device.tokens).get(&hello.token).and_then(Weak::upgrade);
    if let Some(qp) = known {
        qp.take_lane(cm, rail, request, hello, &more);
    }
}
