//! A lane that comes back: the side that connected tries it again and again, at the accepting side's back door.

use std::sync::Arc;

use host::Span;

use super::hello::{Hello, Kind, More};
use super::link::{Health, Phase};
use super::mail::GENERATIONS;
use super::qp::{QpInner, state};
use crate::{AsyncEvent, Cm, ConnParam, ConnectRequest, Qp};

/// How long to wait between two attempts: at first, each time twice as long, and at most.
const PAUSE: Span = Span::from_ms(25);
const PAUSE_MAX: Span = Span::from_ms(500);
/// How long an attempt may take: what vanishes on the way is sent again sooner than TCP would.
const ATTEMPT: Span = Span::from_ms(500);

impl QpInner {
    /// Tries lanes again whose time it is. Whether there are lanes left that are down.
    pub(super) fn rejoin(self: &Arc<Self>) -> bool {
        if self.now() != state::READY_TO_SEND {
            return false;
        }
        let now = self.device().host.now();
        let mut lame = false;
        for lane in 0..self.width() {
            let mut link = self.link();
            if link.phase != Phase::Up {
                return false;
            }
            let is_active = link.is_active;
            let known = &mut link.lanes[lane];
            if known.health != Health::Down {
                continue;
            }
            lame = true;
            let due = known.due.is_none_or(|due| now >= due);
            if !is_active || !due || known.joining.is_some() || known.tried + 1 >= GENERATIONS {
                continue;
            }
            known.tried += 1;
            let attempt = (known.tried - known.generation).min(16);
            known.due = self.device().host.after((PAUSE * (1 << (attempt - 1))).min(PAUSE_MAX));
            let generation = known.tried;
            drop(link);
            self.try_lane(lane, generation);
        }
        lame
    }

    fn try_lane(self: &Arc<Self>, lane: usize, generation: u32) {
        let link = self.link();
        let (cm, door, token) = (link.cm.clone(), link.lanes[lane].door, link.token);
        let param = ConnParam { timeout: link.param.timeout.min(ATTEMPT), ..link.param.clone() };
        drop(link);
        let (Some(cm), Some(door)) = (cm, door) else { return };
        // What cannot be had now may be later.
        let Ok(qp) = self.make_lane(lane).map(Arc::new) else { return };
        self.begin_attempt(lane, generation, &qp);
        let param = Self::lane_param(&param, self.joining_words(lane, token, generation));
        if cm.on(lane).connect(&qp, door, &param).is_err() {
            self.attempt_failed(lane, qp.num());
        }
    }

    fn begin_attempt(self: &Arc<Self>, lane: usize, generation: u32, qp: &Arc<Qp>) {
        self.device().add_lane(lane, qp.num(), self);
        let before = self.link().lanes[lane].joining.replace((generation, qp.clone()));
        self.forget_attempt(lane, before);
    }

    /// On the accepting side: a lane is asked for again. The request is rejected where the lane's death is not settled.
    pub(super) fn take_back(self: &Arc<Self>, cm: &Cm, lane: usize, request: ConnectRequest, more: &More) {
        let mut link = self.link();
        let known = &mut link.lanes[lane];
        let tried = known.joining.as_ref().map_or(known.generation, |(generation, _)| *generation);
        if known.health != Health::Down || more.generation <= tried || more.generation >= GENERATIONS {
            return;
        }
        known.tried = more.generation;
        let (param, token) = (link.param.clone(), link.token);
        drop(link);
        let Ok(qp) = self.make_lane(lane).map(Arc::new) else { return };
        self.begin_attempt(lane, more.generation, &qp);
        let param = Self::lane_param(&param, self.joining_words(lane, token, more.generation));
        if cm.accept(request, &qp, &param).is_err() {
            self.attempt_failed(lane, qp.num());
        }
    }

    /// A lane's queue pair is connected again.
    pub(super) fn lane_is_back(self: &Arc<Self>, lane: usize, num: u32, said: &[u8]) {
        let mut link = self.link();
        let is_active = link.is_active;
        let known = &mut link.lanes[lane];
        let Some((generation, qp)) = known.joining.take_if(|(_, qp)| qp.num() == num) else { return };
        let answer = Hello::read(said).filter(|(hello, _)| hello.kind == Kind::Join);
        let answer = answer.and_then(|(_, rest)| More::read(rest));
        let fits = !is_active || answer.is_some_and(|(more, _)| more.generation == generation);
        if !fits || known.health != Health::Down || self.now() != state::READY_TO_SEND {
            drop(link);
            return self.forget_attempt(lane, Some((generation, qp)));
        }
        (known.health, known.generation, known.due) = (Health::Up, generation, None);
        self.sends().revive(lane, &qp);
        self.receives().begin(lane, &qp);
        let old = self.replace_lane(lane, qp);
        drop(link);
        self.device().forget_lane(lane, old.num());
        drop(old);
        let rail = self.device().rail_names[lane].clone();
        self.device().async_event(AsyncEvent::RailUp { qp_num: self.num, rail });
    }

    /// Whether a queue pair was about to take a lane's place; then it will not.
    pub(super) fn attempt_failed(&self, lane: usize, num: u32) -> bool {
        let failed = self.link().lanes[lane].joining.take_if(|(_, qp)| qp.num() == num);
        let was = failed.is_some();
        self.forget_attempt(lane, failed);
        was
    }

    pub(super) fn forget_attempt(&self, lane: usize, attempt: Option<(u32, Arc<Qp>)>) {
        if let Some((_, qp)) = attempt {
            self.device().forget_lane(lane, qp.num());
        }
    }
}
