//! The queue pair's part when its shared receive queue leaves a rail (`srq`): it closes its lane there, unless that has
//! failed already, and reports when nothing more can arrive on it.

use std::sync::Arc;

use verbs::{QpState, Result};

use crate::completion::completions::CompletionSink;
use crate::connect::connection::{ConnPhase, LaneState};
use crate::connect::outcome::end_connection;
use crate::device_inner::DeviceInner;
use crate::lanes::failover::on_lane_down;
use crate::progress::poll::poll_rail;
use crate::qp::QpInner;
use crate::receive::srq::{GRACE, SrqInner};
use crate::state;

/// Called before connecting: receives messages on the rail that holds the receives, on lanes that use the queue's
/// current rail queues.
pub(crate) fn join_srq(device: &DeviceInner, qp: &Arc<QpInner>) -> Result<()> {
    let Some(srq) = &qp.receiving.srq else { return Ok(()) };
    let lane = srq.add_qp(qp.num());
    qp.receiving.lock(&qp.shared().host).move_shared_to(&qp.receiving.completions, lane);
    for rail in 0..qp.width() {
        let lane = qp.lane(rail);
        if lane.init().srq.as_ref().is_some_and(|of_lane| srq.is_current_srq(rail, of_lane)) {
            continue;
        }
        let lane = Arc::new(qp.make_lane(rail)?);
        device.add_lane(rail, lane.num(), qp);
        let old = qp.replace_lane(rail, lane);
        device.forget_lane(rail, old.num());
    }
    Ok(())
}

/// Continues leaving a rail if the queue is leaving one, or starts to leave a rail if necessary.
pub(crate) fn progress_srq_move(device: &DeviceInner, qp: &Arc<QpInner>) {
    let Some(srq) = &qp.receiving.srq else { return };
    if qp.context.is_failing_over() {
        start_srq_move(device, qp, srq);
    }
    let Some(rail) = srq.rail_being_left(qp.num()) else { return };
    let link = qp.link();
    let (phase, health) = (link.phase, link.lanes[rail].health);
    drop(link);
    match (qp.state_number(), phase) {
        (state::INIT, _) => srq.record_done(qp.num()),
        // Messages may arrive on it until it has closed its lane.
        (state::ERROR, _) => finish_lane(device, qp, srq, rail),
        (_, ConnPhase::Up) if health == LaneState::Up => {
            // The device's list contains this queue pair: its failover continues there.
            on_lane_down(device, qp, rail);
        }
        (_, ConnPhase::Up | ConnPhase::Ended) => finish_lane(device, qp, srq, rail),
        // The outcome of connecting is known soon.
        (_, ConnPhase::None | ConnPhase::Connecting | ConnPhase::Accepting) => {}
    }
}

/// Makes the queue leave the rail with its receives if the lane there has failed, and the queue pair lives on.
fn start_srq_move(device: &DeviceInner, qp: &QpInner, srq: &Arc<SrqInner>) {
    let (lane, now) = (srq.lane(), qp.shared().host.now());
    let link = qp.link();
    let known = &link.lanes[lane];
    let closed = known.closed.filter(|_| link.phase == ConnPhase::Up && known.health == LaneState::Draining);
    let mut others = (1..qp.width()).map(|step| (lane + step) % qp.width());
    let next = others.find(|&at| link.is_up(at));
    drop(link);
    let (Some(closed), Some(next)) = (closed, next) else { return };
    if now.since(closed) < GRACE {
        return;
    }
    match srq.start_move(lane, next) {
        Ok(None) => {}
        Ok(Some((old, id))) => {
            device.forget_srq(lane, old.id());
            device.add_srq(lane, id, srq);
        }
        Err(_) => end_connection(device, qp),
    }
}

/// A closed lane, as soon as its rail has closed it: takes the rest of its completions.
fn finish_lane(device: &DeviceInner, qp: &QpInner, srq: &SrqInner, rail: usize) {
    let completions = &qp.receiving.completions;
    let Some(polling) = device.polling(completions) else { return };
    if qp.lane(rail).state() != QpState::Error || !srq.record_closed(qp.num()) {
        return;
    }
    if poll_rail(device, &polling, rail, &mut CompletionSink::ring(completions)).is_some() {
        srq.record_done(qp.num());
    }
}
