//! [`Parting`] withholds completions of a queue pair until its program has learned that the peer has gone, and [`Late`] delivers them
//! after that. `parted` says why.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ffi::lock;
use verbs::Wc;

/// Whether a queue pair withholds completions, and which.
#[derive(Default)]
pub(crate) struct Parting {
    /// It was connected by numbers, and the program has not learned that it failed.
    is_unaware: AtomicBool,
    withheld: Mutex<Withheld>,
}

/// Completions and reports that are withheld.
#[derive(Default)]
struct Withheld {
    wcs: Vec<Wc>,
    /// That the shared receives which it had taken are completed.
    is_drained: bool,
}

/// Completions that were withheld and may be taken now.
#[derive(Default)]
pub(crate) struct Late {
    is_some: AtomicBool,
    wcs: Mutex<VecDeque<Wc>>,
}

impl Late {
    pub(crate) fn add(&self, wcs: impl Iterator<Item = Wc>) {
        let mut late = lock(&self.wcs);
        late.extend(wcs);
        self.is_some.store(!late.is_empty(), Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.wcs).len()
    }

    /// Forgets those of a queue pair.
    pub(crate) fn forget(&self, qp_num: u32) {
        let mut late = lock(&self.wcs);
        late.retain(|wc| wc.qp_num != qp_num);
        self.is_some.store(!late.is_empty(), Ordering::Release);
    }

    /// Takes as many as there is room for.
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

impl Parting {
    /// It is connected by numbers from now on.
    pub(crate) fn begin(&self) {
        self.is_unaware.store(true, Ordering::Release);
    }

    pub(crate) fn is_unaware(&self) -> bool {
        self.is_unaware.load(Ordering::Acquire)
    }

    /// The program learns that it failed: what was withheld goes to where its receives complete. Whether it is to be told, too, that its
    /// shared receives are completed.
    pub(crate) fn learn(&self, receives: &Late) -> bool {
        let mut withheld = lock(&self.withheld);
        self.is_unaware.store(false, Ordering::Release);
        receives.add(withheld.wcs.drain(..));
        std::mem::take(&mut withheld.is_drained)
    }

    /// The shared receives that it had taken are completed. Whether the program is told now.
    pub(crate) fn drained(&self) -> bool {
        let mut withheld = lock(&self.withheld);
        withheld.is_drained = self.is_unaware();
        !withheld.is_drained
    }

    /// Withholds a completion; gives it back if the program knows already.
    pub(crate) fn withhold(&self, wc: Wc) -> Option<Wc> {
        let mut withheld = lock(&self.withheld);
        if !self.is_unaware() {
            return Some(wc);
        }
        withheld.wcs.push(wc);
        None
    }
}
