//! Pairs whose other end has gone. On InfiniBand a queue pair that was connected by numbers does not notice: its receives stay
//! posted, and its next request fails, as nobody acknowledges it. Our devices end both sides at once, and flush. So flushed
//! receives are withheld until the program learns that its queue pair has failed, or moves it to the error state; the first
//! flushed request of the send queue is told as not acknowledged.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cface::lock;
use verbs::{Wc, WcOpcode, WcStatus};

use crate::cq::Cq;
use crate::qp::Qp;
use crate::slab::Held;

/// How a queue pair stands to this.
#[derive(Default)]
pub(crate) struct Parting {
    /// It was connected by numbers, and the program has not learned that it failed.
    is_unaware: AtomicBool,
    withheld: Mutex<Withheld>,
}

/// What the program is not to be told yet.
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

    /// The program learns that it failed: what was withheld goes to the queue of its receives. Whether it is to be told, too, that its
    /// shared receives are completed.
    pub(crate) fn learn(&self, receives: &Cq) -> bool {
        let mut withheld = lock(&self.withheld);
        self.is_unaware.store(false, Ordering::Release);
        receives.late.add(withheld.wcs.drain(..));
        std::mem::take(&mut withheld.is_drained)
    }

    /// The shared receives that it had taken are completed. Whether the program is told now.
    pub(crate) fn drained(&self) -> bool {
        let mut withheld = lock(&self.withheld);
        withheld.is_drained = self.is_unaware();
        !withheld.is_drained
    }

    /// Withholds a completion; gives it back if the program knows already.
    fn withhold(&self, wc: Wc) -> Option<Wc> {
        let mut withheld = lock(&self.withheld);
        if !self.is_unaware() {
            return Some(wc);
        }
        withheld.wcs.push(wc);
        None
    }
}

/// Of completions that were taken, those that the program is told of, in front; how many.
#[cold]
#[inline(never)]
pub(crate) fn sift(cq: Held<Cq>, wcs: &mut [Wc]) -> usize {
    let mut told = 0;
    for at in 0..wcs.len() {
        let wc = wcs[at];
        if let Some(wc) = if wc.is_ok() { Some(wc) } else { failed(cq, wc) } {
            wcs[told] = wc;
            told += 1;
        }
    }
    told
}

#[cold]
fn failed(cq: Held<Cq>, wc: Wc) -> Option<Wc> {
    let Ok(context) = cq.context.look() else { return Some(wc) };
    let objects = lock(&context.engine.objects);
    let Some(qp) = objects.qps.get(&wc.qp_num).and_then(|qp| qp.look().ok()) else { return Some(wc) };
    let parting = &qp.life().parting;
    if !parting.is_unaware() {
        return Some(wc);
    }
    let is_flushed = wc.status == WcStatus::WrFlushErr;
    if is_flushed && matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm) {
        return parting.withhold(wc);
    }
    let status = if is_flushed { WcStatus::RetryExcErr } else { wc.status };
    Qp::learn(qp);
    Some(Wc { status, ..wc })
}
