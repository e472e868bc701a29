//! Data path: completion, the short way of a look: one completion of the device's that becomes an event at once, when nothing
//! else feeds the dispatcher, nothing is queued there, and nothing about it is special.

use crate::evd::EvdInner;
use crate::{EvdFlags, Event};

/// What a glance saw.
pub(crate) enum Glance {
    /// The next event.
    Found(Event),
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
        let (Some(cq), Some(mut wc)) = (&self.cq, self.taking.try_lock(&self.ia.host)) else {
            return Glance::Unclear;
        };
        if self.has_queued() {
            return Glance::Unclear;
        }
        match cq.poll(&mut wc[..]) {
            Ok(0) => Glance::Nothing,
            Ok(_) => match self.event_of(&wc[0]) {
                Some((event, wakes)) if wakes || at_call => Glance::Found(event),
                Some((event, wakes)) => {
                    self.keep(event, wakes);
                    Glance::Unclear
                }
                None => Glance::Unclear,
            },
            // An overrun, which lasts: the look finds it again.
            Err(_) => Glance::Unclear,
        }
    }
}
