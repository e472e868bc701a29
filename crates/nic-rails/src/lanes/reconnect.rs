//! Reconnects failed lanes: the connecting side retries at the accepting side's join listener.

use std::sync::Arc;

use host::Span;
use verbs::{AsyncEvent, Cm, ConnParam, ConnectRequest, Qp};

use crate::connect::connection::{ConnPhase, LaneState};
use crate::connect::handshake::{lane_handshake, lane_param};
use crate::connect::hello::{Hello, LaneHello, RequestKind};
use crate::device_inner::DeviceInner;
use crate::lanes::lane_reports::GENERATIONS;
use crate::qp::QpInner;
use crate::state;

/// Pause between two attempts: the first, doubled each time, and the longest.
const PAUSE: Span = Span::from_ms(25);
const PAUSE_MAX: Span = Span::from_ms(500);
/// Time limit of an attempt: lost packets are then sent again sooner than by TCP's retransmission.
const ATTEMPT_TIMEOUT: Span = Span::from_ms(500);

/// Retries lanes that are due. Returns whether any lane is still down.
pub(crate) fn reconnect_lanes(device: &DeviceInner, qp: &Arc<QpInner>) -> bool {
    if qp.state_number() != state::READY_TO_SEND {
        return false;
    }
    let now = qp.shared().host.now();
    let mut degraded = false;
    for lane in 0..qp.width() {
        let mut link = qp.link();
        if link.phase != ConnPhase::Up {
            return false;
        }
        let is_active = link.is_active;
        let known = &mut link.lanes[lane];
        if known.health != LaneState::Down {
            continue;
        }
        degraded = true;
        let due = known.due.is_none_or(|due| now >= due);
        if !is_active || !due || known.attempt.is_some() || known.tried + 1 >= GENERATIONS {
            continue;
        }
        known.tried += 1;
        let attempt = (known.tried - known.generation).min(16);
        known.due = qp.shared().host.after((PAUSE * (1 << (attempt - 1))).min(PAUSE_MAX));
        let generation = known.tried;
        drop(link);
        try_reconnect(device, qp, lane, generation);
    }
    degraded
}

fn try_reconnect(device: &DeviceInner, qp: &Arc<QpInner>, lane: usize, generation: u32) {
    let link = qp.link();
    let (cm, join_addr, token) = (link.cm.clone(), link.lanes[lane].join_addr, link.token);
    let param = ConnParam { timeout: link.param.timeout.min(ATTEMPT_TIMEOUT), ..link.param.clone() };
    drop(link);
    let (Some(cm), Some(join_addr)) = (cm, join_addr) else { return };
    // What cannot be allocated now may be later.
    let Ok(by) = qp.make_lane(lane).map(Arc::new) else { return };
    begin_attempt(device, qp, lane, generation, &by);
    let param = lane_param(&param, lane_handshake(qp, lane, token, generation));
    if cm.rail_cm(lane).connect(&by, join_addr, &param).is_err() {
        cancel_attempt(device, qp, lane, by.num());
    }
}

fn begin_attempt(device: &DeviceInner, qp: &Arc<QpInner>, lane: usize, generation: u32, by: &Arc<Qp>) {
    device.add_lane(lane, by.num(), qp);
    let before = qp.link().lanes[lane].attempt.replace((generation, by.clone()));
    discard_attempt(device, lane, before);
}

/// On the accepting side: accepts a lane again. The request is rejected if the failover has not finished.
pub(crate) fn accept_reconnect(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    cm: &Cm,
    lane: usize,
    request: ConnectRequest,
    lane_hello: &LaneHello,
) {
    let mut link = qp.link();
    let known = &mut link.lanes[lane];
    let tried = known.attempt.as_ref().map_or(known.generation, |(generation, _)| *generation);
    if known.health != LaneState::Down
        || lane_hello.generation <= tried
        || lane_hello.generation >= GENERATIONS
    {
        return;
    }
    known.tried = lane_hello.generation;
    let (param, token) = (link.param.clone(), link.token);
    drop(link);
    let Ok(by) = qp.make_lane(lane).map(Arc::new) else { return };
    begin_attempt(device, qp, lane, lane_hello.generation, &by);
    let param = lane_param(&param, lane_handshake(qp, lane, token, lane_hello.generation));
    if cm.accept(request, &by, &param).is_err() {
        cancel_attempt(device, qp, lane, by.num());
    }
}

/// A lane's queue pair is connected again.
pub(crate) fn on_lane_reconnected(
    device: &DeviceInner,
    qp: &QpInner,
    lane: usize,
    num: u32,
    private_data: &[u8],
) {
    let mut link = qp.link();
    let is_active = link.is_active;
    let known = &mut link.lanes[lane];
    let Some((generation, by)) = known.attempt.take_if(|(_, by)| by.num() == num) else { return };
    let answer = Hello::read(private_data).filter(|(hello, _)| hello.kind == RequestKind::Join);
    let answer = answer.and_then(|(_, rest)| LaneHello::read(rest));
    let fits = !is_active || answer.is_some_and(|(lane_hello, _)| lane_hello.generation == generation);
    if !fits || known.health != LaneState::Down || qp.state_number() != state::READY_TO_SEND {
        drop(link);
        return discard_attempt(device, lane, Some((generation, by)));
    }
    (known.health, known.generation, known.due) = (LaneState::Up, generation, None);
    let old = qp.replace_lane(lane, by);
    drop(link);
    device.forget_lane(lane, old.num());
    drop(old);
    let rail = qp.shared().rail_names[lane].clone();
    qp.shared().async_event(AsyncEvent::RailUp { qp_num: qp.num(), rail });
}

/// Cancels the attempt of this queue pair to replace a lane. Returns whether there was one.
pub(crate) fn cancel_attempt(device: &DeviceInner, qp: &QpInner, lane: usize, num: u32) -> bool {
    let failed = qp.link().lanes[lane].attempt.take_if(|(_, by)| by.num() == num);
    let was = failed.is_some();
    discard_attempt(device, lane, failed);
    was
}

pub(crate) fn discard_attempt(device: &DeviceInner, lane: usize, attempt: Option<(u32, Arc<Qp>)>) {
    if let Some((_, by)) = attempt {
        device.forget_lane(lane, by.num());
    }
}
