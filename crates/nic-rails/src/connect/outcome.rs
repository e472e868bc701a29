//! Connection events for the program: established, failed, disconnected.
//!
//! **Events when the peer falls silent.** The connecting side may send once it has the answers on all lanes. The
//! accepting side cannot know whether the answers arrived: a confirmation is lost with a peer that dies, and messages
//! on any lane may have overtaken it. But no answer is sent before its lane is accepted. So if the peer is gone or
//! late:
//!
//! - before all lanes are accepted, nothing can have been received: `ConnectFailed`;
//! - afterwards anything can have been received: `Established`, then `Disconnected`, as for a peer that died right
//!   after.
//!
//! A failure with another reason than silence, such as a lane that was refused for lack of resources, proves that the
//! peer never had that lane: `ConnectFailed` with the reason.

use host::LockGuard;
use verbs::{CmEvent, CmFailure};

use crate::connect::connection::{ConnPhase, Connection};
use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::state;

/// All lanes are connected. The event is pushed while the link is locked: another thread may have an event of its end,
/// which must follow this one.
pub(crate) fn report_established(qp: &QpInner, link: &mut Connection, was: ConnPhase) {
    link.phase = ConnPhase::Up;
    let from = if was == ConnPhase::Connecting { state::CONNECTING } else { state::READY_TO_RECEIVE };
    qp.advance(from, state::READY_TO_SEND);
    let private_data = std::mem::take(&mut link.answer);
    if let Some(cm) = &link.cm {
        let info = link.info.expect("of the request, or of the first lane, without which not all are up");
        cm.push(CmEvent::Established { qp_num: qp.num(), private_data, info });
    }
}

/// Handles a lane that failed before this side knew that all were connected. If all have been requested or accepted,
/// the peer may have a complete connection and continue without this lane; then the events of the other lanes decide.
/// Each other lane yields an event, of success or failure.
pub(crate) fn lane_failed_early(
    device: &DeviceInner,
    qp: &QpInner,
    mut link: LockGuard<'_, Connection>,
    lane: usize,
) {
    link.gone |= 1 << lane;
    if !link.has_begun(qp.width()) || qp.state_number() == state::ERROR {
        drop(link);
        connection_failed(device, qp, CmFailure::PeerGone);
    }
}

/// The connection failed after some lane was connected, or on the accepting side.
pub(crate) fn connection_failed(device: &DeviceInner, qp: &QpInner, why: CmFailure) {
    let mut link = qp.link();
    let was = link.phase;
    if !matches!(was, ConnPhase::Connecting | ConnPhase::Accepting) {
        drop(link);
        return end_connection(device, qp);
    }
    if was == ConnPhase::Accepting && link.has_begun(qp.width()) && is_silence(&why) {
        report_established(qp, &mut link, was);
        return end_locked(device, qp, link);
    }
    link.phase = ConnPhase::Ended;
    let cm = link.cm.clone();
    remove_token(device, &link);
    drop(link);
    qp.fail();
    if let Some(cm) = cm {
        cm.push(CmEvent::ConnectFailed { qp_num: qp.num(), why });
    }
}

/// Ends the connection.
pub(crate) fn end_connection(device: &DeviceInner, qp: &QpInner) {
    end_locked(device, qp, qp.link());
}

/// Ends an established connection, whose lock the caller has taken: stops its queue pair, and reports that to the program.
fn end_locked(device: &DeviceInner, qp: &QpInner, mut link: LockGuard<'_, Connection>) {
    if link.phase != ConnPhase::Up {
        return;
    }
    link.phase = ConnPhase::Ended;
    let cm = link.cm.clone();
    remove_token(device, &link);
    let attempts: Vec<_> = link.lanes.iter_mut().filter_map(|lane| lane.attempt.take()).collect();
    // The rails' queue pairs of attempts are destroyed after unlocking.
    drop(link);
    drop(attempts);
    qp.context.set_failing_over(false);
    qp.fail();
    if let Some(cm) = cm {
        cm.push(CmEvent::Disconnected { qp_num: qp.num() });
    }
}

/// Whether a lane failed only because the peer no longer answers.
pub(crate) fn is_silence(why: &CmFailure) -> bool {
    matches!(why, CmFailure::PeerGone | CmFailure::TimedOut)
}

/// No further lane can be connected with this connection's token.
fn remove_token(device: &DeviceInner, link: &Connection) {
    if !link.is_active {
        device.tokens.remove(link.token);
    }
}
