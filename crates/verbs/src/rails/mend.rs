//! A lane that dies: both ends close it, write each other what had come by it, and go on without it.
//!
//! 1. Whoever notices first (a completion that says so, an event, a letter of the peer) closes its own end: nothing that
//!    was sent on the lane can arrive here any more.
//! 2. When all of its own requests and receives have come back from the lane, it lays the receives on the next lane that
//!    lives, and writes a letter (`mail`): this lane is closed, so many messages came by it, receives are there now.
//! 3. With the peer's letter, and when nothing is under way on the other lanes, it settles: messages that the peer has
//!    received have ended, everything else starts again, in order, as if it had just been posted.
//!
//! Until then no request starts. Writes and reads may so be carried out twice, messages are not; an atomic in doubt cannot
//! be decided, and fails the queue pair. The death of the last lane is the connection's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use host::{Held, Span};

use super::RAILS_MAX;
use super::link::{Health, Link, Phase};
use super::lock::unpoisoned;
use super::mail::Letter;
use super::qp::{QpInner, state};
use crate::AsyncEvent;

/// How long the peer may take to agree that a lane has died; then the connection is over.
const PATIENCE: Span = Span::from_secs(30);
/// Until a lane is tried again for the first time: by then the peer has settled its death, too.
const MOMENT: Span = Span::from_ms(20);

impl QpInner {
    /// A queue pair of a lane has lost its connection.
    pub(super) fn lane_disconnected(self: &Arc<Self>, lane: usize, num: u32) {
        if !self.attempt_failed(lane, num) && self.lane(lane).num() == num {
            self.lane_is_down(lane);
        }
    }

    /// A lane has died, or the whole connection ends.
    pub(super) fn lane_is_down(self: &Arc<Self>, lane: usize) {
        // The rail may say that it was no accident.
        self.device().poll_rails();
        let mut link = self.link();
        match link.phase {
            Phase::Connecting | Phase::Accepting => return self.gone_early(link, lane),
            Phase::None | Phase::Over => return,
            Phase::Up => {}
        }
        let others = (0..self.width()).any(|at| at != lane && link.lanes[at].health == Health::Up);
        if self.now() == state::ERROR || (!others && link.lanes[lane].health == Health::Up) {
            drop(link);
            return self.end();
        }
        if link.lanes[lane].health != Health::Up {
            return;
        }
        link.lanes[lane].health = Health::Dying;
        link.lanes[lane].due = self.device().host.after(PATIENCE);
        drop(link);
        self.close(lane);
        enlist(&self.device().mending, self);
        self.device().service.wake();
        self.device().host.signal();
        self.mend();
    }

    /// Closes this side's end of a lane that is dying.
    fn close(&self, lane: usize) {
        self.sends().hold(lane);
        let mut receives = self.receives();
        if receives.lane == lane {
            receives.hold();
        }
        drop(receives);
        self.is_mending.store(true, Ordering::Relaxed);
        self.lane(lane).to_error();
        let mut link = self.link();
        if link.lanes[lane].health == Health::Dying {
            link.lanes[lane].health = Health::Draining;
            link.lanes[lane].closed = Some(self.device().host.now());
        }
    }

    /// The peer may have written that it has closed a lane of which this side thinks well.
    pub(super) fn look_at_mail(self: &Arc<Self>) {
        if self.now() != state::READY_TO_SEND {
            return;
        }
        self.write_mail();
        for lane in 0..self.width() {
            let Some(letter) = self.mailbox.read(lane) else { continue };
            let mut link = self.link();
            let known = &mut link.lanes[lane];
            match known.health {
                Health::Up if known.generation == letter.generation => {
                    drop(link);
                    self.lane_is_down(lane);
                }
                // It was connected for the peer only, which waits for this side to say so.
                Health::Down if letter.generation > known.generation => {
                    known.generation = letter.generation;
                    known.tried = known.tried.max(letter.generation);
                    let forgotten = known.joining.take_if(|(generation, _)| *generation <= letter.generation);
                    drop(link);
                    self.forget_attempt(lane, forgotten);
                    let recv_lane = self.receives().lane as u8;
                    self.put_letter(lane, Letter { recv_lane, received: 0, ..letter });
                    self.write_mail();
                }
                _ => {}
            }
        }
    }

    /// Goes on with settling what lanes that died mean. Whether it is not done.
    pub(super) fn mend(self: &Arc<Self>) -> bool {
        self.send_cq.progress();
        self.recv_cq.progress();
        self.go_on_mending()
    }

    /// As [`QpInner::mend`], with what has been taken from the rails.
    pub(super) fn go_on_mending(self: &Arc<Self>) -> bool {
        if self.now() == state::ERROR || !self.is_mending.load(Ordering::Relaxed) {
            return false;
        }
        let mut link = self.link();
        if link.phase != Phase::Up {
            return false;
        }
        let now = self.device().host.now();
        let late = |health, due: Option<_>| health != Health::Down && due.is_some_and(|due| now >= due);
        if link.lanes.iter().any(|lane| lane.health != Health::Up && late(lane.health, lane.due)) {
            drop(link);
            self.end();
            return false;
        }
        if !self.drain(&mut link) {
            drop(link);
            self.end();
            return false;
        }
        let died = self.answers(&link);
        let settled = died.filter(|_| {
            let sends = self.sends();
            sends.is_quiet() && sends.mail_has_come()
        });
        let Some(died) = settled else {
            drop(link);
            self.write_mail();
            return true;
        };
        self.settle(link, &died);
        false
    }

    /// Lanes from which everything has come back: there is a letter about each. False if there is no lane for messages.
    fn drain(&self, link: &mut Link) -> bool {
        for lane in 0..self.width() {
            if link.lanes[lane].health != Health::Draining || self.sends().outstanding(lane) > 0 {
                continue;
            }
            let next = (1..self.width()).map(|step| (lane + step) % self.width());
            let next = next.clone().find(|&at| link.lanes[at].health == Health::Up);
            let mut receives = self.receives();
            if receives.lane == lane
                && let Some(srq) = &self.srq
            {
                let next = srq.lane();
                if next == lane {
                    // The queue has not left it yet.
                    continue;
                }
                if link.lanes[next].health != Health::Up {
                    return false;
                }
                receives.follow(self, next);
            } else if receives.lane == lane {
                let (true, Some(next)) = (receives.are_back(), next) else { continue };
                receives.move_to(self, next);
            }
            let (recv_lane, received) = (receives.lane as u8, receives.received(lane));
            drop(receives);
            let generation = link.lanes[lane].generation;
            self.put_letter(lane, Letter { generation, recv_lane, received });
            link.lanes[lane].health = Health::Told;
        }
        true
    }

    fn put_letter(&self, lane: usize, letter: Letter) {
        self.mailbox.put(lane, letter);
        self.sends().has_mail();
    }

    /// The peer's letters about lanes that died here, if there is one for each.
    fn answers(&self, link: &Link) -> Option<[Option<Letter>; RAILS_MAX]> {
        let mut died = [None; RAILS_MAX];
        for (lane, known) in link.lanes.iter().enumerate().take(self.width()) {
            match known.health {
                Health::Up | Health::Down => {}
                Health::Told => {
                    let letter = self.mailbox.read(lane);
                    died[lane] = Some(letter.filter(|letter| letter.generation == known.generation)?);
                }
                Health::Dying | Health::Draining => return None,
            }
        }
        Some(died)
    }

    /// Both ends know of the lanes that died: goes on without them.
    fn settle(self: &Arc<Self>, mut link: Held<'_, Link>, died: &[Option<Letter>; RAILS_MAX]) {
        if !self.sends().settle(died) {
            drop(link);
            return self.end();
        }
        let retry = self.device().host.now() + MOMENT;
        for (lane, _) in died.iter().enumerate().filter(|(_, letter)| letter.is_some()) {
            link.lanes[lane].health = Health::Down;
            link.lanes[lane].due = Some(retry);
        }
        self.is_mending.store(false, Ordering::Relaxed);
        drop(link);
        for (lane, _) in died.iter().enumerate().filter(|(_, letter)| letter.is_some()) {
            let rail = self.device().rail_names[lane].clone();
            self.device().async_event(AsyncEvent::RailDown { qp_num: self.num, rail });
        }
        self.with_sends(|_| ());
        self.send_cq.announce();
        enlist(&self.device().lame, self);
        self.device().service.wake();
        self.device().host.signal();
    }

    /// Writes letters to the peer, if there are any, on a lane that lives.
    fn write_mail(&self) {
        let link = self.link();
        let live: Vec<usize> =
            (0..self.width()).filter(|&lane| link.lanes[lane].health == Health::Up).collect();
        drop(link);
        self.sends().write_mail(self, live.into_iter());
    }
}

/// Puts a queue pair on a list, once.
fn enlist(list: &Mutex<Vec<Weak<QpInner>>>, qp: &Arc<QpInner>) {
    let mut list = unpoisoned(list);
    if !list.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(qp))) {
        list.push(Arc::downgrade(qp));
    }
}
