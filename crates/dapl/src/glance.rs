//! Data path: completion, the short way of a look: one completion of the device's that becomes an event at once, when nothing
//! else feeds the dispatcher, nothing is queued there, and nothing about it is special.

use std::sync::atomic::Ordering;

use verbs::Wc;

use crate::evd::EvdInner;
use crate::event::DtoEvent;
use crate::{EvdFlags, Event};

/// What a glance saw.
pub(crate) enum Glance {
    /// The next event.
    Found(DtoEvent),
    /// There is none.
    Nothing,
    /// Only a look will tell.
    Unclear,
}

impl EvdInner {
    /// Glances at what has completed, for one event. Before a wait begins (`at_call`) unsignalled ones count, too.
    #[inline(always)]
    pub(crate) fn glance(&self, at_call: bool) -> Glance {
        if self.flags.intersects(EvdFlags::CR | EvdFlags::CONNECTION | EvdFlags::ASYNC) || self.is_special() {
            return Glance::Unclear;
        }
        let (Some(cq), Some(mut wc)) = (&self.cq, self.taking.try_lock()) else { return Glance::Unclear };
        if self.has_queued() {
            return Glance::Unclear;
        }
        match cq.poll(&mut wc[..]) {
            Ok(0) => Glance::Nothing,
            Ok(_) => self.recognise(&wc[0], at_call),
            // An overrun, which lasts: the look finds it again.
            Err(_) => Glance::Unclear,
        }
    }

    #[inline(always)]
    fn recognise(&self, wc: &Wc, at_call: bool) -> Glance {
        if !wc.is_ok() || crate::srq::is_shared(wc.wr_id) {
            return self.leave(self.event_of(wc));
        }
        let Some(lane) = self.lanes.of(wc.wr_id) else { return Glance::Unclear };
        let found = lane.complete(wc);
        if lane.has_binds() {
            self.queue_with_binds(lane, found);
            return Glance::Unclear;
        }
        match found {
            Some((event, wakes)) if wakes || at_call => Glance::Found(event),
            found => self.leave(found.map(|(event, wakes)| (Event::Dto(event), wakes))),
        }
    }

    /// Queues an event for the look that follows.
    #[cold]
    fn leave(&self, found: Option<(Event, bool)>) -> Glance {
        if let Some((event, wakes)) = found {
            self.queue(event);
            if wakes {
                self.rung.store(true, Ordering::Release);
            }
        }
        Glance::Unclear
    }
}
