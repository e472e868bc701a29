//! Settles the failure of a lane: both ends close it, report what they received on it, and continue without
//! it.
//!
//! 1. The side that notices first (by a completion, an event, or a letter of the peer) closes its own end: nothing that
//!    was sent on the lane can arrive here any more.
//! 2. When all of its own requests and receives have come back from the lane, it posts the receives to the next
//!    connected lane, and writes a letter (`mail`): this lane is closed, N messages were received on it, receives are
//!    there now.
//! 3. With the peer's letter, and when nothing is in flight on the other lanes, it settles: messages that the peer has
//!    received are completed, everything else starts again, in order, as if it had just been posted.
//!
//! Until then no request starts. Writes and reads may so be executed twice, messages are not. An atomic whose result is
//! unknown cannot be decided and fails the queue pair. The failure of the last lane ends the connection.

use std::sync::Arc;

use host::{LockGuard, Span};
use verbs::AsyncEvent;

use crate::RAILS_MAX;
use crate::connect::connection::{Connection, Health, Phase};
use crate::connect::outcome::{end, lane_failed_early};
use crate::inner::Inner;
use crate::lanes::mail::Letter;
use crate::lanes::rejoin::forget_attempt;
use crate::qp::QpInner;
use crate::state;

/// How long the peer may take to agree that a lane has failed; after that the connection ends.
const SETTLE_TIMEOUT: Span = Span::from_secs(30);
/// Delay before the first attempt to reconnect a lane: by then the peer has settled its failure, too.
const RETRY_DELAY: Span = Span::from_ms(20);

/// Progress of settling failed lanes.
pub(crate) enum Settling {
    /// There is nothing to settle, or the connection has ended.
    Done,
    /// Something is still outstanding.
    Waits,
    /// Settled; `waits`: there are requests that only completions can start.
    Settled { waits: bool },
}

/// Handles the failure of a lane or the end of the whole connection. Returns whether this closed the lane, which must
/// then be settled.
pub(crate) fn lane_is_down(device: &Inner, qp: &Arc<QpInner>, lane: usize) -> bool {
    // The rail may report a reason that ends the whole connection.
    device.poll_rails();
    let mut link = qp.link();
    match link.phase {
        Phase::Connecting | Phase::Accepting => {
            lane_failed_early(device, qp, link, lane);
            return false;
        }
        Phase::None | Phase::Ended => return false,
        Phase::Up => {}
    }
    let others = (0..qp.width()).any(|at| at != lane && link.is_up(at));
    if qp.now() == state::ERROR || (!others && link.is_up(lane)) {
        drop(link);
        end(device, qp);
        return false;
    }
    if !link.is_up(lane) {
        return false;
    }
    link.lanes[lane].health = Health::Failed;
    link.lanes[lane].due = qp.shared().host.after(SETTLE_TIMEOUT);
    drop(link);
    close(qp, lane);
    device.settling.add(qp);
    qp.shared().service.wake();
    qp.shared().host.signal();
    true
}

/// Closes this side's end of a failed lane.
fn close(qp: &QpInner, lane: usize) {
    let host = &qp.shared().host;
    qp.sending.lock(host).hold(lane);
    let mut receives = qp.receiving.lock(host);
    if receives.lane == lane {
        receives.hold();
    }
    drop(receives);
    qp.context.set_settling(true);
    qp.lane(lane).to_error();
    let mut link = qp.link();
    if link.lanes[lane].health == Health::Failed {
        link.lanes[lane].health = Health::Draining;
        link.lanes[lane].closed = Some(host.now());
    }
}

/// Checks the peer's letters: it may have closed a lane that this side considers connected.
pub(crate) fn check_letters(device: &Inner, qp: &Arc<QpInner>) {
    if qp.now() != state::READY_TO_SEND {
        return;
    }
    write_letters(qp);
    for lane in 0..qp.width() {
        let Some(letter) = qp.context.mailbox.read(lane) else { continue };
        let mut link = qp.link();
        let known = &mut link.lanes[lane];
        match known.health {
            Health::Up if known.generation == letter.generation => {
                drop(link);
                // The failure is settled with all others on the device's list.
                lane_is_down(device, qp, lane);
            }
            // Only the peer saw the lane connected; it waits for a letter from this side.
            Health::Down if letter.generation > known.generation => {
                known.generation = letter.generation;
                known.tried = known.tried.max(letter.generation);
                let forgotten = known.attempt.take_if(|(generation, _)| *generation <= letter.generation);
                drop(link);
                forget_attempt(device, lane, forgotten);
                let recv_lane = qp.receiving.lane(&qp.shared().host) as u8;
                put_letter(qp, lane, Letter { recv_lane, received: 0, ..letter });
                write_letters(qp);
            }
            _ => {}
        }
    }
}

/// Continues settling failed lanes, using the completions taken from the rails so far.
pub(crate) fn settle_failures(device: &Inner, qp: &Arc<QpInner>) -> Settling {
    if qp.now() == state::ERROR || !qp.context.is_settling() {
        return Settling::Done;
    }
    let mut link = qp.link();
    if link.phase != Phase::Up {
        return Settling::Done;
    }
    let now = qp.shared().host.now();
    let late = |health, due: Option<_>| health != Health::Down && due.is_some_and(|due| now >= due);
    let is_late = link.lanes.iter().any(|lane| lane.health != Health::Up && late(lane.health, lane.due));
    if is_late || !drain(qp, &mut link) {
        drop(link);
        end(device, qp);
        return Settling::Done;
    }
    let failed_lanes = answers(qp, &link);
    let settled = failed_lanes.filter(|_| {
        let sends = qp.sending.lock(&qp.shared().host);
        sends.is_quiet() && sends.letters_are_sent()
    });
    let Some(failed_lanes) = settled else {
        drop(link);
        write_letters(qp);
        return Settling::Waits;
    };
    settle(device, qp, link, &failed_lanes)
}

/// Writes letters about lanes from which all requests and receives have come back. False if no lane for messages is
/// left.
fn drain(qp: &QpInner, link: &mut Connection) -> bool {
    let (shared, completions) = (qp.shared(), &qp.receiving.completions);
    for lane in 0..qp.width() {
        if link.lanes[lane].health != Health::Draining || qp.sending.lock(&shared.host).outstanding(lane) > 0
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
            receives.follow(completions, next);
        } else if receives.lane == lane {
            let next = (1..qp.width()).map(|step| (lane + step) % qp.width()).find(|&at| link.is_up(at));
            let (true, Some(next)) = (receives.are_back(), next) else { continue };
            receives.move_to(shared, completions, next);
        }
        let (recv_lane, received) = (receives.lane as u8, receives.received(lane));
        drop(receives);
        let generation = link.lanes[lane].generation;
        put_letter(qp, lane, Letter { generation, recv_lane, received });
        link.lanes[lane].health = Health::Reported;
    }
    true
}

fn put_letter(qp: &QpInner, lane: usize, letter: Letter) {
    qp.context.mailbox.put(lane, letter);
    qp.sending.lock(&qp.shared().host).set_letters_pending();
}

/// The peer's letters about lanes that failed here, if there is one for each.
fn answers(qp: &QpInner, link: &Connection) -> Option<[Option<Letter>; RAILS_MAX]> {
    let mut failed_lanes = [None; RAILS_MAX];
    for (lane, known) in link.lanes.iter().enumerate().take(qp.width()) {
        match known.health {
            Health::Up | Health::Down => {}
            Health::Reported => {
                let letter = qp.context.mailbox.read(lane);
                failed_lanes[lane] = Some(letter.filter(|letter| letter.generation == known.generation)?);
            }
            Health::Failed | Health::Draining => return None,
        }
    }
    Some(failed_lanes)
}

/// Both ends know of the failed lanes: continues without them.
fn settle(
    device: &Inner,
    qp: &Arc<QpInner>,
    mut link: LockGuard<'_, Connection>,
    failed_lanes: &[Option<Letter>; RAILS_MAX],
) -> Settling {
    let shared = qp.shared();
    if !qp.sending.lock(&shared.host).settle(failed_lanes) {
        drop(link);
        end(device, qp);
        return Settling::Done;
    }
    let retry = shared.host.now() + RETRY_DELAY;
    for (lane, _) in failed_lanes.iter().enumerate().filter(|(_, letter)| letter.is_some()) {
        link.lanes[lane].health = Health::Down;
        link.lanes[lane].due = Some(retry);
    }
    qp.context.set_settling(false);
    drop(link);
    for (lane, _) in failed_lanes.iter().enumerate().filter(|(_, letter)| letter.is_some()) {
        let rail = shared.rail_names[lane].clone();
        shared.async_event(AsyncEvent::RailDown { qp_num: qp.num(), rail });
    }
    let ((), waits) = qp.with_sends(|_| ());
    device.degraded.add(qp);
    shared.service.wake();
    shared.host.signal();
    Settling::Settled { waits }
}

/// Writes pending letters to the peer, on a connected lane.
fn write_letters(qp: &QpInner) {
    let link = qp.link();
    let live: Vec<usize> = (0..qp.width()).filter(|&lane| link.is_up(lane)).collect();
    drop(link);
    qp.sending.lock(&qp.shared().host).write_letters(&qp.context, live.into_iter());
}
