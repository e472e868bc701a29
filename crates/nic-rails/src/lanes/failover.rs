//! Failover: both ends close a failed lane, report what they received on it, and continue without it.
//!
//! 1. The side that notices first (by a completion, an event, or a lane report of the peer) closes its own end: nothing
//!    that was sent on the lane can arrive here any more.
//! 2. When all of its own requests and receives have come back from the lane, it posts the receives to the next
//!    connected lane, and writes a lane report (`lane_reports`): the lane is closed, N messages were received on it, and
//!    this other lane has the receives.
//! 3. With the peer's report, and when nothing is in flight on the other lanes, failover finishes: messages that the
//!    peer has received are completed, everything else starts again, in order, as if it had just been posted.
//!
//! Until then no request starts. Writes and reads may so be executed twice, messages are not. An atomic whose result is
//! unknown cannot be decided and fails the queue pair. The failure of the last lane ends the connection.

use std::sync::Arc;

use host::{LockGuard, Span};
use verbs::AsyncEvent;

use crate::RAILS_MAX;
use crate::connect::connection::{ConnPhase, Connection, LaneState};
use crate::connect::outcome::{end_connection, lane_failed_early};
use crate::device_inner::DeviceInner;
use crate::lanes::lane_reports::LaneReport;
use crate::lanes::reconnect::discard_attempt;
use crate::qp::QpInner;
use crate::state;

/// How long the peer may take to agree that a lane has failed; after that the connection ends.
const FAILOVER_TIMEOUT: Span = Span::from_secs(30);
/// Delay before the first attempt to reconnect a lane: by then the peer has finished its failover, too.
const RETRY_DELAY: Span = Span::from_ms(20);

/// Progress of a failover.
pub(crate) enum FailoverProgress {
    /// No lane has failed, or the connection has ended.
    Done,
    /// Something is still outstanding.
    Waiting,
    /// All requests of failed lanes are decided; `waits`: there are requests that only completions can start.
    Finished { waits: bool },
}

/// Handles the failure of a lane or the end of the whole connection. Returns whether this closed the lane, which
/// must then fail over.
pub(crate) fn on_lane_down(device: &DeviceInner, qp: &Arc<QpInner>, lane: usize) -> bool {
    // The rail may report a reason that ends the whole connection.
    device.poll_rail_events();
    let mut link = qp.link();
    match link.phase {
        ConnPhase::Connecting | ConnPhase::Accepting => {
            lane_failed_early(device, qp, link, lane);
            return false;
        }
        ConnPhase::None | ConnPhase::Ended => return false,
        ConnPhase::Up => {}
    }
    let others = (0..qp.width()).any(|at| at != lane && link.is_up(at));
    if qp.state_number() == state::ERROR || (!others && link.is_up(lane)) {
        drop(link);
        end_connection(device, qp);
        return false;
    }
    if !link.is_up(lane) {
        return false;
    }
    link.lanes[lane].health = LaneState::Failed;
    link.lanes[lane].due = qp.shared().host.after(FAILOVER_TIMEOUT);
    drop(link);
    close(qp, lane);
    device.failing_over.add(qp);
    qp.shared().service.wake();
    qp.shared().host.signal();
    true
}

/// Closes this side's end of a failed lane.
fn close(qp: &QpInner, lane: usize) {
    let host = &qp.shared().host;
    qp.sending.lock(host).pause(lane);
    let mut receives = qp.receiving.lock(host);
    if receives.lane == lane {
        receives.pause();
    }
    drop(receives);
    qp.context.set_failing_over(true);
    qp.lane(lane).to_error();
    let mut link = qp.link();
    if link.lanes[lane].health == LaneState::Failed {
        link.lanes[lane].health = LaneState::Draining;
        link.lanes[lane].closed = Some(host.now());
    }
}

/// Checks the peer's lane reports: it may have closed a lane that this side considers connected.
pub(crate) fn check_lane_reports(device: &DeviceInner, qp: &Arc<QpInner>) {
    if qp.state_number() != state::READY_TO_SEND {
        return;
    }
    write_lane_reports(qp);
    for lane in 0..qp.width() {
        let Some(report) = qp.context.report_buffer.read(lane) else { continue };
        let mut link = qp.link();
        let known = &mut link.lanes[lane];
        match known.health {
            LaneState::Up if known.generation == report.generation => {
                drop(link);
                // The device's list contains this queue pair: its failover continues there.
                on_lane_down(device, qp, lane);
            }
            // Only the peer saw the lane connected; it waits for a lane report from this side.
            LaneState::Down if report.generation > known.generation => {
                known.generation = report.generation;
                known.tried = known.tried.max(report.generation);
                let forgotten = known.attempt.take_if(|(generation, _)| *generation <= report.generation);
                drop(link);
                discard_attempt(device, lane, forgotten);
                let recv_lane = qp.receiving.lane(&qp.shared().host) as u8;
                store_lane_report(qp, lane, LaneReport { recv_lane, messages_received: 0, ..report });
                write_lane_reports(qp);
            }
            _ => {}
        }
    }
}

/// Continues a failover, using the completions taken from the rails so far.
pub(crate) fn advance(device: &DeviceInner, qp: &Arc<QpInner>) -> FailoverProgress {
    if qp.state_number() == state::ERROR || !qp.context.is_failing_over() {
        return FailoverProgress::Done;
    }
    let mut link = qp.link();
    if link.phase != ConnPhase::Up {
        return FailoverProgress::Done;
    }
    let now = qp.shared().host.now();
    let late = |health, due: Option<_>| health != LaneState::Down && due.is_some_and(|due| now >= due);
    let is_late = link.lanes.iter().any(|lane| lane.health != LaneState::Up && late(lane.health, lane.due));
    if is_late || !drain(qp, &mut link) {
        drop(link);
        end_connection(device, qp);
        return FailoverProgress::Done;
    }
    let failed_lanes = peer_reports(qp, &link);
    let decided = failed_lanes.filter(|_| {
        let sends = qp.sending.lock(&qp.shared().host);
        sends.has_nothing_in_flight() && sends.has_sent_reports()
    });
    let Some(failed_lanes) = decided else {
        drop(link);
        write_lane_reports(qp);
        return FailoverProgress::Waiting;
    };
    finish(device, qp, link, &failed_lanes)
}

/// Writes lane reports about lanes from which all requests and receives have come back. False if no lane for messages
/// is left.
fn drain(qp: &QpInner, link: &mut Connection) -> bool {
    let (shared, completions) = (qp.shared(), &qp.receiving.completions);
    for lane in 0..qp.width() {
        if link.lanes[lane].health != LaneState::Draining
            || qp.sending.lock(&shared.host).outstanding(lane) > 0
        {
            continue;
        }
        let mut receives = qp.receiving.lock(&shared.host);
        if receives.lane == lane
            && let Some(srq) = &qp.receiving.srq
        {
            let next = srq.lane();
            if next == lane {
                // The queue has not left it yet.
                continue;
            }
            if !link.is_up(next) {
                return false;
            }
            receives.move_shared_to(completions, next);
        } else if receives.lane == lane {
            let next = (1..qp.width()).map(|step| (lane + step) % qp.width()).find(|&at| link.is_up(at));
            let (true, Some(next)) = (receives.is_drained(), next) else { continue };
            receives.move_to(shared, completions, next);
        }
        let (recv_lane, messages_received) = (receives.lane as u8, receives.received(lane));
        drop(receives);
        let generation = link.lanes[lane].generation;
        store_lane_report(qp, lane, LaneReport { generation, recv_lane, messages_received });
        link.lanes[lane].health = LaneState::Reported;
    }
    true
}

fn store_lane_report(qp: &QpInner, lane: usize, report: LaneReport) {
    qp.context.report_buffer.put(lane, report);
    qp.sending.lock(&qp.shared().host).set_reports_pending();
}

/// The peer's lane reports about lanes that failed here, if there is one for each.
fn peer_reports(qp: &QpInner, link: &Connection) -> Option<[Option<LaneReport>; RAILS_MAX]> {
    let mut failed_lanes = [None; RAILS_MAX];
    for (lane, known) in link.lanes.iter().enumerate().take(qp.width()) {
        match known.health {
            LaneState::Up | LaneState::Down => {}
            LaneState::Reported => {
                let report = qp.context.report_buffer.read(lane);
                failed_lanes[lane] = Some(report.filter(|report| report.generation == known.generation)?);
            }
            LaneState::Failed | LaneState::Draining => return None,
        }
    }
    Some(failed_lanes)
}

/// Both ends know of the failed lanes: continues without them.
fn finish(
    device: &DeviceInner,
    qp: &Arc<QpInner>,
    mut link: LockGuard<'_, Connection>,
    failed_lanes: &[Option<LaneReport>; RAILS_MAX],
) -> FailoverProgress {
    let shared = qp.shared();
    if !qp.sending.lock(&shared.host).resolve_failed_lanes(failed_lanes) {
        drop(link);
        end_connection(device, qp);
        return FailoverProgress::Done;
    }
    let retry = shared.host.now() + RETRY_DELAY;
    for (lane, _) in failed_lanes.iter().enumerate().filter(|(_, report)| report.is_some()) {
        link.lanes[lane].health = LaneState::Down;
        link.lanes[lane].due = Some(retry);
    }
    qp.context.set_failing_over(false);
    drop(link);
    for (lane, _) in failed_lanes.iter().enumerate().filter(|(_, report)| report.is_some()) {
        let rail = shared.rail_names[lane].clone();
        shared.async_event(AsyncEvent::RailDown { qp_num: qp.num(), rail });
    }
    let ((), waits) = qp.with_sends(|_| ());
    device.degraded.add(qp);
    shared.service.wake();
    shared.host.signal();
    FailoverProgress::Finished { waits }
}

/// Writes pending lane reports to the peer, on a connected lane.
fn write_lane_reports(qp: &QpInner) {
    let link = qp.link();
    let live: Vec<usize> = (0..qp.width()).filter(|&lane| link.is_up(lane)).collect();
    drop(link);
    qp.sending.lock(&qp.shared().host).write_lane_reports(&qp.context, live.into_iter());
}
