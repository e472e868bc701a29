//! What the program is told of a connection: that it is there, that it failed, that it has ended.
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

use host::Held;
use verbs::{CmEvent, CmFailure};

use crate::connect::connection::{Connection, Phase};
use crate::inner::Inner;
use crate::qp::QpInner;
use crate::state;

/// All lanes are up. Said while the link is held: another thread may have news of its end, which come behind this.
pub(crate) fn establish(qp: &QpInner, link: &mut Connection, was: Phase) {
    link.phase = Phase::Up;
    let from = if was == Phase::Connecting { state::CONNECTING } else { state::READY_TO_RECEIVE };
    qp.advance(from, state::READY_TO_SEND);
    let private_data = std::mem::take(&mut link.answer);
    if let Some(cm) = &link.cm {
        let info = link.info.expect("of the request, or of the first lane, without which not all are up");
        cm.push(CmEvent::Established { qp_num: qp.num(), private_data, info });
    }
}

/// A lane has gone before this side knew of all that they are up. If all have begun, the peer may have a whole connection and
/// go on without this lane: then the news of the others tell. Each of them brings some, of its beginning or its failure.
pub(crate) fn gone_early(device: &Inner, qp: &QpInner, mut link: Held<'_, Connection>, lane: usize) {
    link.gone |= 1 << lane;
    if !link.has_begun(qp.width()) || qp.now() == state::ERROR {
        drop(link);
        connection_failed(device, qp, CmFailure::PeerGone);
    }
}

/// The connection failed when some lane was up already, or on the accepting side.
pub(crate) fn connection_failed(device: &Inner, qp: &QpInner, why: CmFailure) {
    let mut link = qp.link();
    let was = link.phase;
    if !matches!(was, Phase::Connecting | Phase::Accepting) {
        drop(link);
        return end(device, qp);
    }
    if was == Phase::Accepting && link.has_begun(qp.width()) && is_silence(&why) {
        establish(qp, &mut link, was);
        return end_of(device, qp, link);
    }
    link.phase = Phase::Over;
    let cm = link.cm.clone();
    forget_token(device, &link);
    drop(link);
    qp.fail();
    if let Some(cm) = cm {
        cm.push(CmEvent::ConnectFailed { qp_num: qp.num(), why });
    }
}

/// The connection is over.
pub(crate) fn end(device: &Inner, qp: &QpInner) {
    end_of(device, qp, qp.link());
}

fn end_of(device: &Inner, qp: &QpInner, mut link: Held<'_, Connection>) {
    if link.phase != Phase::Up {
        return;
    }
    link.phase = Phase::Over;
    let cm = link.cm.clone();
    forget_token(device, &link);
    let joining: Vec<_> = link.lanes.iter_mut().filter_map(|lane| lane.joining.take()).collect();
    drop(link);
    drop(joining);
    qp.lent.set_mending(false);
    qp.fail();
    if let Some(cm) = cm {
        cm.push(CmEvent::Disconnected { qp_num: qp.num() });
    }
}

/// Whether a lane failed for no other reason than that nothing is heard of the peer any more.
pub(crate) fn is_silence(why: &CmFailure) -> bool {
    matches!(why, CmFailure::PeerGone | CmFailure::TimedOut)
}

/// Nobody joins with this connection's token any more.
fn forget_token(device: &Inner, link: &Connection) {
    if !link.is_active {
        device.tokens.forget(link.token);
    }
}
