//! Data path: completion, the short way of a look: one completion of the device's that becomes an event at once, when nothing
//! else feeds the dispatcher, nothing is queued there, and nothing about it is special.

use crate::EvdFlags;
use crate::evd::{EvdInner, Taking};
use crate::event::DtoEvent;

/// What a glance saw.
pub(crate) enum Glance {
    /// The next event. Not yet an `Event`: made where it is wanted, it is not copied on the way there.
    Found(DtoEvent),
    /// There is none.
    Nothing,
    /// Only a look will tell.
    Unclear,
}

impl EvdInner {
    /// Glances at what has completed, for one event that wakes.
    #[inline(always)]
    pub(crate) fn glance(&self) -> Glance {
        if self.flags.intersects(EvdFlags::CR | EvdFlags::CONNECTION | EvdFlags::ASYNC) || self.is_special() {
            return Glance::Unclear;
        }
        let (Some(cq), Some(mut taking)) = (&self.cq, self.taking.try_lock(&self.ia.host)) else {
            return Glance::Unclear;
        };
        if self.has_queued() {
            return Glance::Unclear;
        }
        let Taking { turn, wc, last } = &mut *taking;
        match cq.poll(wc) {
            Ok(0) => return Glance::Nothing,
            Ok(_) => {}
            // An overrun, which lasts: the look finds it again.
            Err(_) => return Glance::Unclear,
        }
        let [wc] = wc;
        if last.as_ref().is_none_or(|lane| !lane.knows(wc.wr_id)) {
            *last = self.lanes.of(wc.wr_id).cloned();
        }
        if let Some(event) = last.as_ref().and_then(|lane| lane.complete_plain(turn, wc)) {
            return Glance::Found(event);
        }
        if let Some((event, wakes)) = self.event_of(turn, wc) {
            self.keep(event, wakes);
        }
        Glance::Unclear
    }
}
