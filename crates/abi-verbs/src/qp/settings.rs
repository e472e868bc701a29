//! Attributes of a queue pair apart from its connection: the visible state, timeouts and RNR pauses.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use ffi::lock;
use verbs::{RNR_PAUSE_MAX, host::Span};

use crate::objects::Qp;
use crate::slab::Held;

/// The retry count for unacknowledged messages: the maximum, since no device here loses messages.
pub(crate) const RETRY_COUNT: u8 = 7;

/// The pause for a `min_rnr_timer` (IBA 9.7.5.2.8, table 45). From 2 on, each second value doubles it.
pub(crate) fn pause(timer: u8) -> Span {
    let timer = timer & 31;
    match timer {
        0 => RNR_PAUSE_MAX,
        1 => Span::from_us(10),
        _ => Span::from_us((if timer.is_multiple_of(2) { 20 } else { 30 }) << ((timer - 2) / 2)),
    }
}

/// Stores the acknowledgement timeout that a program has set through librdmacm.
pub(crate) fn set_timeout(qp: Held<Qp>, timeout: u8) {
    lock(&qp.settings).0.timeout = timeout;
}

/// Sets the state that the program sees.
pub(crate) fn set_visible_state(qp: Held<Qp>, state: u32) {
    qp.state.store(state as c_int, Ordering::Relaxed);
    qp.update_c(|seen| seen.qp_base.state = state as c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_those_of_the_table() {
        let us = [655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560];
        for (timer, us) in (0..).zip(us) {
            assert_eq!(pause(timer), Span::from_us(us), "{timer}");
        }
        assert_eq!((pause(30), pause(31)), (Span::from_us(327_680), Span::from_us(491_520)));
    }
}
