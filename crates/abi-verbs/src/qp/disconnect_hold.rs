//! [`DisconnectHold`] withholds completions of a queue pair until its program has learned that the peer has gone; then [`DelayedCompletions`] delivers them.
//! `peer_gone` explains why.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ffi::lock;
use verbs::Wc;

/// Whether a queue pair withholds completions, and which.
#[derive(Default)]
pub(crate) struct DisconnectHold {
    /// Connected out of band, and the program has not learned of a failure.
    hides_failure: AtomicBool,
    withheld: Mutex<Withheld>,
}

/// Completions and events that are withheld.
#[derive(Default)]
struct Withheld {
    wcs: Vec<Wc>,
    /// The event that its receives from a shared queue have completed.
    is_drained: bool,
}

/// Withheld completions that the program may take now.
#[derive(Default)]
pub(crate) struct DelayedCompletions {
    is_some: AtomicBool,
    wcs: Mutex<VecDeque<Wc>>,
}

impl DelayedCompletions {
    pub(crate) fn add(&self, wcs: impl Iterator<Item = Wc>) {
        let mut late = lock(&self.wcs);
        late.extend(wcs);
        self.is_some.store(!late.is_empty(), Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.wcs).len()
    }

    /// Discards the completions of a queue pair.
    pub(crate) fn forget(&self, qp_num: u32) {
        let mut late = lock(&self.wcs);
        late.retain(|wc| wc.qp_num != qp_num);
        self.is_some.store(!late.is_empty(), Ordering::Release);
    }

    /// Takes as many completions as fit.
    #[inline]
    pub(crate) fn take(&self, place: &mut [Wc]) -> usize {
        if !self.is_some.load(Ordering::Acquire) {
            return 0;
        }
        let mut late = lock(&self.wcs);
        let count = late.len().min(place.len());
        place.iter_mut().zip(late.drain(..count)).for_each(|(place, wc)| *place = wc);
        self.is_some.store(!late.is_empty(), Ordering::Release);
        count
    }
}

impl DisconnectHold {
    /// Starts withholding: the queue pair is connected out of band.
    pub(crate) fn begin(&self) {
        self.hides_failure.store(true, Ordering::Release);
    }

    /// Whether the program must not see yet that the peer has gone.
    pub(crate) fn hides_failure(&self) -> bool {
        self.hides_failure.load(Ordering::Acquire)
    }

    /// Ends withholding, since the program learns of the failure: withheld completions move to the queue of its receives. Returns whether
    /// a withheld last-WQE event must be reported too.
    pub(crate) fn end(&self, receives: &DelayedCompletions) -> bool {
        let mut withheld = lock(&self.withheld);
        self.hides_failure.store(false, Ordering::Release);
        receives.add(withheld.wcs.drain(..));
        std::mem::take(&mut withheld.is_drained)
    }

    /// Its receives from a shared queue have completed. Returns whether to report that now; else the event is withheld.
    pub(crate) fn may_report_drained(&self) -> bool {
        let mut withheld = lock(&self.withheld);
        withheld.is_drained = self.hides_failure();
        !withheld.is_drained
    }

    /// Withholds a completion; returns it if the program already knows of the failure.
    pub(crate) fn withhold(&self, wc: Wc) -> Option<Wc> {
        let mut withheld = lock(&self.withheld);
        if !self.hides_failure() {
            return Some(wc);
        }
        withheld.wcs.push(wc);
        None
    }
}
