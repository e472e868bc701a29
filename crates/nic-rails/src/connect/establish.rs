//! Connecting: lane 0 first, at the program's addresses; then the further lanes, at the accepting side's join
//! listeners. `Established` is reported when all lanes are connected. A lane that fails later is replaced by the others
//! (`failover`) and connected again (`reconnect`).

use std::net::SocketAddr;
use std::sync::Arc;

use verbs::{Cm, CmEvent, CmFailure, ConnInfo, ConnParam, ConnectRequest, Error, Result};

use crate::connect::cm_events::CmEvents;
use crate::connect::connection::{ConnPhase, Connection};
use crate::connect::handshake::{hello, lane_handshake, lane_param};
use crate::connect::hello::{Hello, LaneHello, RequestKind, read_addrs, read_refusal, write_addrs};
use crate::connect::outcome::{connection_failed, is_silence, report_established};
use crate::connect::screening::ScreenedJoin;
use crate::device_inner::DeviceInner;
use crate::lanes::reconnect::{accept_reconnect, cancel_attempt, on_lane_reconnected};
use crate::lanes::srq_move::join_srq;
use crate::progress::poll::handle_lane_failure;
use crate::qp::QpInner;
use crate::state;

pub(crate) fn connect(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    cm: &Arc<CmEvents>,
    addr: SocketAddr,
    param: &ConnParam,
) -> Result<()> {
    if !qp.advance(state::INIT, state::CONNECTING) {
        return Err(match qp.state_number() {
            state::CONNECTING => Error::Invalid("the queue pair is being connected already".into()),
            _ => Error::WrongState { call: "connect", state: qp.state() },
        });
    }
    join_srq(device, qp).inspect_err(|_| {
        qp.advance(state::CONNECTING, state::INIT);
    })?;
    *qp.link() = Connection {
        phase: ConnPhase::Connecting,
        cm: Some(cm.clone()),
        param: param.clone(),
        is_active: true,
        begun: 1,
        deadline: qp.shared().host.after(param.timeout),
        ..Connection::default()
    };
    let private_data = hello(qp, RequestKind::New, 0, 0).write(&param.private_data);
    cm.rail_cm(0).connect(&qp.lane(0), addr, &lane_param(param, private_data)).inspect_err(|_| {
        *qp.link() = Connection::default();
        qp.advance(state::CONNECTING, state::INIT);
    })
}

pub(crate) fn accept(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    cm: &Arc<CmEvents>,
    request: ConnectRequest,
    actions: &Hello,
    param: &ConnParam,
) -> Result<()> {
    let addrs = device.lane_addrs(request.info.local)?;
    if !qp.advance(state::INIT, state::READY_TO_RECEIVE) {
        return Err(Error::WrongState { call: "accept", state: qp.state() });
    }
    join_srq(device, qp).inspect_err(|_| {
        qp.advance(state::READY_TO_RECEIVE, state::INIT);
    })?;
    let token = device.shared.token();
    qp.sending.lock(&qp.shared().host).set_peer_hello(0, *actions);
    let mut link = Connection {
        phase: ConnPhase::Accepting,
        cm: Some(cm.clone()),
        param: param.clone(),
        token,
        info: Some(program_conn_info(request.info)),
        begun: 1,
        deadline: device.shared.host.after(param.timeout),
        ..Connection::default()
    };
    link.lanes.iter_mut().zip(&addrs).for_each(|(lane, addr)| lane.join_addr = Some(*addr));
    *qp.link() = link;
    let mut rest = Vec::new();
    write_addrs(&addrs[1..], &mut rest);
    rest.extend(&param.private_data);
    let private_data = hello(qp, RequestKind::New, 0, token).write(&rest);
    device.tokens.add(token, qp);
    device.expected.add(qp);
    device.shared.service.wake();
    cm.rail_cm(0).accept(request, &qp.lane(0), &lane_param(param, private_data)).inspect_err(|_| {
        device.tokens.remove(token);
        *qp.link() = Connection::default();
        qp.advance(state::READY_TO_RECEIVE, state::INIT);
    })
}

/// Handles the connection of a lane; `private_data` is the accepting side's answer, on the connecting side.
pub(crate) fn on_lane_connected(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    lane: usize,
    num: u32,
    private_data: &[u8],
    info: ConnInfo,
) {
    let mut link = qp.link();
    if lane == 0 {
        link.info = Some(program_conn_info(info));
    }
    let phase = link.phase;
    drop(link);
    if phase == ConnPhase::Up {
        return on_lane_reconnected(device, qp, lane, num, private_data);
    }
    if phase == ConnPhase::Connecting && !read_answer(device, qp, lane, private_data) {
        return connection_failed(
            device,
            qp,
            CmFailure::Protocol(format!("its answer is not that of a device of {} rails", qp.width())),
        );
    }
    let mut link = qp.link();
    link.up |= 1 << lane;
    let all = link.up.count_ones() as usize == qp.width();
    if !all || !matches!(link.phase, ConnPhase::Connecting | ConnPhase::Accepting) {
        return;
    }
    let gone = link.gone;
    report_established(qp, &mut link, phase);
    drop(link);
    qp.shared().service.wake();
    (0..qp.width())
        .filter(|lane| gone & 1 << lane != 0)
        .for_each(|lane| handle_lane_failure(device, qp, lane));
}

/// Processes the accepting side's answer; on lane 0, also connects the further lanes. False if the answer is malformed.
fn read_answer(device: &DeviceInner, qp: &QpInner, lane: usize, private_data: &[u8]) -> bool {
    let Some((hello, rest)) = Hello::read(private_data) else { return false };
    if hello.rails as usize != qp.width() || hello.lane as usize != lane {
        return false;
    }
    qp.sending.lock(&qp.shared().host).set_peer_hello(lane, hello);
    if lane != 0 {
        return read_lane_hello(qp, lane, rest);
    }
    let Some((addrs, rest)) = read_addrs(rest, qp.width() - 1) else { return false };
    let mut link = qp.link();
    link.answer = rest.to_vec();
    link.token = hello.token;
    link.lanes[1..].iter_mut().zip(&addrs).for_each(|(lane, addr)| lane.join_addr = Some(*addr));
    link.begun = u8::MAX >> (u8::BITS as usize - qp.width());
    let (cm, param) = (link.cm.clone(), link.param.clone());
    drop(link);
    let Some(cm) = cm else { return false };
    for (lane, addr) in (1..).zip(addrs) {
        let param = lane_param(&param, lane_handshake(qp, lane, hello.token, 0));
        if let Err(why) = cm.rail_cm(lane).connect(&qp.lane(lane), addr, &param) {
            let rail = qp.shared().rails[lane].name();
            connection_failed(device, qp, CmFailure::Unreachable(addr, format!("{rail}: {why}")));
            return true;
        }
    }
    true
}

/// Reads the rest of the answer on a further lane.
fn read_lane_hello(qp: &QpInner, lane: usize, rest: &[u8]) -> bool {
    let Some((lane_hello, rest)) = LaneHello::read(rest) else { return false };
    qp.sending.lock(&qp.shared().host).set_peer_report_buffer(lane, &lane_hello);
    if lane == 1 {
        let Some((addrs, _)) = read_addrs(rest, 1) else { return false };
        qp.link().lanes[0].join_addr = Some(addrs[0]);
    }
    true
}

/// The accepting side has rejected the lane.
pub(crate) fn on_lane_rejected(
    device: &DeviceInner,
    qp: &QpInner,
    lane: usize,
    num: u32,
    private_data: Vec<u8>,
) {
    if cancel_attempt(device, qp, lane, num) {
        return;
    }
    if lane != 0 {
        return connection_failed(
            device,
            qp,
            CmFailure::Protocol(format!("it rejected the lane on {}", qp.shared().rails[lane].name())),
        );
    }
    let cm = std::mem::take(&mut *qp.link()).cm;
    qp.advance(state::CONNECTING, state::INIT);
    let Some(cm) = cm else { return };
    let qp_num = qp.num();
    cm.push(match read_refusal(&private_data) {
        None => CmEvent::Rejected { qp_num, private_data },
        Some(rails) => {
            let why = format!("it has {rails} rails, and this side {}; both need as many", qp.width());
            CmEvent::ConnectFailed { qp_num, why: CmFailure::Protocol(why) }
        }
    });
}

/// A lane could not be connected.
pub(crate) fn on_lane_failed(device: &DeviceInner, qp: &QpInner, lane: usize, num: u32, why: CmFailure) {
    if cancel_attempt(device, qp, lane, num) {
        return;
    }
    let mut link = qp.link();
    let (is_active, has_begun) = (link.is_active, lane != 0 || link.gone != 0);
    if has_begun || !is_active {
        let join_addr = link.lanes[lane].join_addr.filter(|_| lane != 0 && (is_active || !is_silence(&why)));
        let why = match join_addr {
            // The connection was never complete.
            _ if is_active && link.gone != 0 => CmFailure::PeerGone,
            Some(addr) => {
                let rail = qp.shared().rails[lane].name();
                CmFailure::Unreachable(addr, format!("the lane on {rail}: {why}"))
            }
            None => why,
        };
        drop(link);
        return connection_failed(device, qp, why);
    }
    // Nothing was established: the queue pair may try again.
    let cm = std::mem::take(&mut *link).cm;
    drop(link);
    qp.advance(state::CONNECTING, state::INIT);
    if let Some(cm) = cm {
        cm.push(CmEvent::ConnectFailed { qp_num: qp.num(), why });
    }
}

/// A lane's queue pair has lost its connection.
pub(crate) fn on_lane_disconnected(device: &DeviceInner, qp: &Arc<QpInner>, lane: usize, num: u32) {
    if !cancel_attempt(device, qp, lane, num) && qp.lane(lane).num() == num {
        handle_lane_failure(device, qp, lane);
    }
}

pub(crate) fn disconnect(qp: &QpInner) -> Result<()> {
    let link = qp.link();
    let (phase, cm) = (link.phase, link.cm.clone());
    drop(link);
    let (ConnPhase::Up | ConnPhase::Ended, Some(cm)) = (phase, cm) else {
        return Err(Error::WrongState { call: "disconnect", state: qp.state() });
    };
    for (rail, lane) in qp.lanes().iter().enumerate() {
        // A lane that has failed already is disconnected anyway.
        let _ = cm.rail_cm(rail).disconnect(lane);
    }
    qp.fail();
    Ok(())
}

/// On the accepting side: fails the connection if its lanes were not connected in time. Returns whether there is
/// nothing left to wait for.
pub(crate) fn fail_if_timed_out(device: &DeviceInner, qp: &QpInner) -> bool {
    let link = qp.link();
    let waits = link.phase == ConnPhase::Accepting;
    let overdue = waits && link.deadline.is_some_and(|deadline| qp.shared().host.now() >= deadline);
    drop(link);
    if overdue {
        connection_failed(device, qp, CmFailure::TimedOut);
    }
    !waits || overdue
}

/// Accepts a further lane that the connecting side requests.
fn accept_lane(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    cm: &Cm,
    rail: usize,
    request: ConnectRequest,
    (hello, lane_hello): (Hello, &LaneHello),
) {
    let mut link = qp.link();
    if link.phase == ConnPhase::Up {
        drop(link);
        return accept_reconnect(device, qp, cm, rail, request, lane_hello);
    }
    let (param, token, join_addr) = (link.param.clone(), link.token, link.lanes[0].join_addr);
    let fits =
        link.phase == ConnPhase::Accepting && link.begun & 1 << rail == 0 && lane_hello.generation == 0;
    link.begun |= if fits { 1 << rail } else { 0 };
    drop(link);
    if !fits {
        // Dropping the request rejects it.
        return;
    }
    let mut sends = qp.sending.lock(&qp.shared().host);
    sends.set_peer_hello(rail, hello);
    sends.set_peer_report_buffer(rail, lane_hello);
    drop(sends);
    let mut private_data = lane_handshake(qp, rail, token, 0);
    if let (1, Some(join_addr)) = (rail, join_addr) {
        write_addrs(&[join_addr], &mut private_data);
    }
    if cm.accept(request, &qp.lane(rail), &lane_param(&param, private_data)).is_err() {
        // No answer was sent.
        qp.link().begun &= !(1 << rail);
        connection_failed(device, qp, CmFailure::PeerGone);
    }
}

/// The part of the first lane's information that applies to the program. A rail's depths include the device's own
/// reads, and its queue pair is a lane.
pub(crate) fn program_conn_info(info: ConnInfo) -> ConnInfo {
    ConnInfo::of_ends(info.local, info.peer)
}

/// Handles a request for a lane at a join listener. If its connection no longer exists, the request is rejected by
/// being dropped.
pub(crate) fn accept_join(device: &DeviceInner, rail: usize, cm: &Cm, mut request: ConnectRequest) {
    let Some(ScreenedJoin { hello, lane_hello }) = request.take_screened() else { return };
    if let Some(qp) = device.tokens.get(hello.token) {
        accept_lane(device, &qp, cm, rail, request, (hello, &lane_hello));
    }
}
