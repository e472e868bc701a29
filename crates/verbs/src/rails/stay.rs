//! What a queue pair does when its shared receive queue leaves a rail (`srq`): it closes its lane there, if that has not died,
//! and says when nothing comes by it any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cq::Sink;
use super::link::{Health, Phase};
use super::qp::{QpInner, state};
use super::srq::{GRACE, SrqInner};
use crate::{QpState, Result};

impl QpInner {
    /// About to connect: takes messages where the receives lie, by lanes that take from the queue as it is.
    pub(super) fn join_shared(self: &Arc<Self>) -> Result<()> {
        let Some(srq) = &self.srq else { return Ok(()) };
        let lane = srq.enter(self.num);
        self.receives().follow(self, lane);
        for rail in 0..self.width() {
            let lane = self.lane(rail);
            if lane.init().srq.as_ref().is_some_and(|of_lane| srq.is_on(rail, of_lane)) {
                continue;
            }
            let lane = Arc::new(self.make_lane(rail)?);
            self.device().add_lane(rail, lane.num(), self);
            self.sends().revive(rail, &lane);
            self.receives().begin(rail, &lane);
            let old = self.replace_lane(rail, lane);
            self.device().forget_lane(rail, old.num());
        }
        Ok(())
    }

    /// Goes on with leaving a rail, if its queue does, or has it leave one.
    pub(super) fn look_at_shared(self: &Arc<Self>) {
        let Some(srq) = &self.srq else { return };
        if self.is_mending.load(Ordering::Relaxed) {
            self.have_it_leave(srq);
        }
        let Some(rail) = srq.left(self.num) else { return };
        let link = self.link();
        let (phase, health) = (link.phase, link.lanes[rail].health);
        drop(link);
        match (self.now(), phase) {
            (state::INIT, _) => srq.is_off(self.num),
            // Messages may come by it until it has closed its lane.
            (state::ERROR, _) => self.look_at_rest(srq, rail),
            (_, Phase::Up) if health == Health::Up => self.lane_is_down(rail),
            (_, Phase::Up | Phase::Over) => self.look_at_rest(srq, rail),
            // It is known soon what becomes of it.
            (_, Phase::None | Phase::Connecting | Phase::Accepting) => {}
        }
    }

    /// The lane on which receives lie has died here, and the queue pair lives on: then the queue leaves it.
    fn have_it_leave(&self, srq: &Arc<SrqInner>) {
        let (lane, now) = (srq.lane(), self.device().host.now());
        let link = self.link();
        let known = &link.lanes[lane];
        let closed = known.closed.filter(|_| link.phase == Phase::Up && known.health == Health::Draining);
        let others = (1..self.width()).map(|step| (lane + step) % self.width());
        let next = others.clone().find(|&at| link.lanes[at].health == Health::Up);
        drop(link);
        if let (Some(closed), Some(next)) = (closed, next)
            && now.since(closed) >= GRACE
            && srq.leave(lane, next).is_err()
        {
            self.end();
        }
    }

    /// A lane that is closed, as soon as its rail knows: takes the rest of what it has brought.
    fn look_at_rest(&self, srq: &SrqInner, rail: usize) {
        if self.lane(rail).state() != QpState::Error {
            return;
        }
        let is_alone = || self.recv_cq.take_from_rail(rail, &mut Sink::ring(&self.recv_cq)).is_some();
        if srq.is_closed(self.num) && is_alone() {
            srq.is_off(self.num);
        }
    }
}
