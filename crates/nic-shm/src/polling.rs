//! Data path: polling. A completion queue as its poller knows it: the queue pairs that complete there, each looked at in its turn.
//!
//! Completions of send requests come from this process's own posting threads, through a ring under a lock.
//! Completions of receives are written by peers, each into the ring of its queue pair, so that a peer which
//! dies in the middle has published nothing and hinders nobody. Polling looks at both.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::BiasedGuard;
use verbs::{Error, Result, Wc};

use crate::qp::QpInner;
use crate::queues::completions::Completions;
use crate::send::sending::By;
use crate::shared::Shared;
use nic_util::sync::reader_registry::Workplace;

/// Queue pairs that a poll looks at one by one; beyond that peers mark the ones that have something.
const FEW: usize = 8;

/// What polling works on.
#[derive(Default)]
pub(crate) struct PollSide {
    /// Queue pairs whose send requests complete here, by seat.
    senders: Vec<Option<Arc<QpInner>>>,
    /// Seats that nobody has.
    free: Vec<usize>,
    /// Queue pairs whose receives complete here, by their index.
    receivers: Vec<Arc<QpInner>>,
    /// Where the next look begins, so that each gets its turn.
    turn: usize,
    /// Only with many: the same queue pairs, each at its index.
    places: Vec<Option<Arc<QpInner>>>,
    /// Only with many: the indices of queue pairs that reported something and may have more, each once. Not the queue pairs:
    /// counting references to them would wait for a line of each, one after the other.
    due: VecDeque<usize>,
    /// Only with many: who had a completion last. It is looked at also before it has said that it has another: what is in use is
    /// likely to be used again, and what it says is two more lines from the peer's core.
    recent: Option<usize>,
    /// Only with many: completions of receives that have been counted when they were reported, and not polled.
    arrived: usize,
}

impl PollSide {
    /// A queue pair among many has reported something.
    fn report(&mut self, index: usize) {
        let Some(qp) = self.places.get(index).and_then(Option::as_ref) else { return };
        let new = qp.receiving.count_arrivals();
        self.arrived += new;
        if new == 0 && !qp.connection.is_failing() {
            // Taken before it was said.
            return;
        }
        let is_due = &qp.receiving.is_due;
        if !is_due.load(Ordering::Relaxed) {
            is_due.store(true, Ordering::Relaxed);
            self.due.push_back(index);
        }
    }

    /// From now on peers say which queue pairs have something; one of them has come now.
    fn grow(&mut self, qp: &Arc<QpInner>) {
        if self.places.len() <= qp.index() {
            self.places.resize(qp.index() + 1, None);
        }
        self.places[qp.index()] = Some(qp.clone());
        self.report(qp.index());
    }

    /// Takes completions of receives, of each in its turn.
    #[inline]
    fn poll_few(&mut self, wcs: &mut [Wc]) -> usize {
        if let [only] = &self.receivers[..] {
            return only.poll_receives(wcs);
        }
        let (turn, mut got) = (self.turn.min(self.receivers.len()), 0);
        let (later, first) = self.receivers.split_at(turn);
        for (step, qp) in first.iter().chain(later).enumerate() {
            got += qp.poll_receives(&mut wcs[got..]);
            if got == wcs.len() {
                // It may have more: the next look begins there.
                self.turn = if step < first.len() { turn + step } else { step - first.len() };
                return got;
            }
        }
        self.turn = if first.len() > 1 { turn + 1 } else { 0 };
        got
    }

    /// Takes completions of receives, of those that have reported some.
    fn poll_due(&mut self, wcs: &mut [Wc]) -> usize {
        let Self { due, places, arrived, recent, .. } = self;
        let mut got = 0;
        if due.is_empty() && !wcs.is_empty() {
            due.extend(*recent);
        }
        while got < wcs.len()
            && let Some(index) = due.pop_front()
        {
            let Some(qp) = places.get(index).and_then(Option::as_ref) else { continue };
            let counted = qp.receiving.counted_arrivals();
            let n = qp.poll_receives(&mut wcs[got..]);
            let left = qp.receiving.counted_arrivals();
            *arrived -= counted - left;
            got += n;
            if n > 0 {
                *recent = Some(index);
            }
            if n > 0 && (left > 0 || qp.connection.is_failing()) {
                // It has more, or something to flush; others get their turn first. What comes later is reported.
                due.push_back(index);
            } else {
                qp.receiving.is_due.store(false, Ordering::Relaxed);
            }
        }
        got
    }
}

/// Who polls a completion queue, and whom for.
pub(crate) struct Polling {
    pub(crate) completions: Arc<Completions>,
    side: Workplace<PollSide>,
    /// There are too many queue pairs to look at each: peers say which ones have something. Once so, always so.
    has_many: AtomicBool,
}

impl Polling {
    pub(crate) fn new(completions: Completions) -> Self {
        let completions = Arc::new(completions);
        Self { completions, side: Workplace::default(), has_many: AtomicBool::new(false) }
    }

    /// Takes a queue pair's sending half in, which has a seat here from now on; whether the queue can overrun by that, and could not
    /// before.
    pub(crate) fn attach_sender(&self, qp: &Arc<QpInner>) -> bool {
        let can_overrun = self.completions.want(qp.sending.depth());
        let mut side = self.side.lock();
        self.completions.make_room();
        let seat = side.free.pop().unwrap_or_else(|| {
            side.senders.push(None);
            side.senders.len() - 1
        });
        side.senders[seat] = Some(qp.clone());
        qp.sending.set_seat(seat);
        can_overrun
    }

    /// Takes a queue pair's receiving half in; says the same.
    pub(crate) fn attach_receiver(&self, qp: &Arc<QpInner>) -> bool {
        let can_overrun = self.completions.want(qp.receiving.depth());
        let mut side = self.side.lock();
        let at = side.receivers.partition_point(|other| other.index() < qp.index());
        side.receivers.insert(at, qp.clone());
        if self.has_many.load(Ordering::Relaxed) {
            side.grow(qp);
        } else if side.receivers.len() > FEW {
            self.has_many.store(true, Ordering::Relaxed);
            self.completions.becomes_unusual();
            let words = &self.completions.words;
            words.many.store(1, Ordering::SeqCst);
            words.heed.demand();
            // Peers publish first and look at `many` afterwards; whoever looked too early is found by this.
            nic_util::sync::fence::heavy();
            let all = side.receivers.clone();
            all.iter().for_each(|qp| side.grow(qp));
        }
        can_overrun
    }

    /// Forgets a queue pair's sending half and its completions.
    pub(crate) fn detach_sender(&self, qp: &QpInner) {
        self.completions.unwant(qp.sending.depth());
        let mut side = self.side.lock();
        if let Some(seat) = qp.sending.seat() {
            side.senders[seat] = None;
            side.free.push(seat);
            self.completions.forget(seat);
        }
    }

    /// Forgets a queue pair's receiving half and its completions.
    pub(crate) fn detach_receiver(&self, qp: &QpInner) {
        self.completions.unwant(qp.receiving.depth());
        let mut side = self.side.lock();
        if let Ok(at) = side.receivers.binary_search_by_key(&qp.index(), |other| other.index()) {
            side.receivers.remove(at);
        }
        if let Some(place) = side.places.get_mut(qp.index()) {
            *place = None;
        }
        if qp.receiving.is_due.swap(false, Ordering::Relaxed) {
            side.due.retain(|other| *other != qp.index());
        }
        side.arrived -= qp.receiving.counted_arrivals();
    }

    /// Takes completions: of send requests first, then of receives. Completions that have none go to the error of an overrun.
    #[inline]
    pub(crate) fn poll(&self, device: &Shared, wcs: &mut [Wc]) -> Result<(usize, usize)> {
        if self.completions.is_unusual() {
            return self.poll_any(device, wcs);
        }
        let mut side = self.enter(device);
        let sends = self.take_sent(&side, wcs);
        Ok((sends, side.poll_few(&mut wcs[sends..])))
    }

    #[inline]
    fn enter(&self, device: &Shared) -> BiasedGuard<'_, PollSide> {
        self.side.enter(|| device.pollers.add(self.completions.index))
    }

    #[inline]
    fn take_sent(&self, side: &PollSide, wcs: &mut [Wc]) -> usize {
        self.completions.take(wcs, |done| {
            if let Some(qp) = side.senders.get(done.seat as usize).and_then(Option::as_ref) {
                qp.sending.reclaim(done.upto);
            }
        })
    }

    #[inline(never)]
    fn poll_any(&self, device: &Shared, wcs: &mut [Wc]) -> Result<(usize, usize)> {
        let completions = &*self.completions;
        let overrun = || Error::CqOverrun { cqe: completions.cqe() };
        if completions.is_dead() {
            return Err(overrun());
        }
        if completions.stalled.any() {
            self.drive_stalled();
        }
        let mut side = self.enter(device);
        self.hear_reports(&mut side);
        if self.is_overrun(&side) {
            drop(side);
            completions.overrun();
            return Err(overrun());
        }
        let sends = self.take_sent(&side, wcs);
        let wcs = &mut wcs[sends..];
        let has_many = self.has_many.load(Ordering::Relaxed);
        let receives = if has_many { side.poll_due(wcs) } else { side.poll_few(wcs) };
        completions.settle_into_usual(has_many);
        Ok((sends, receives))
    }

    /// Among many: hears who has reported something.
    #[inline]
    fn hear_reports(&self, side: &mut PollSide) {
        let ready = &self.completions.words.ready;
        if self.has_many.load(Ordering::Relaxed) && ready.any() {
            ready.take(|index| side.report(index));
        }
    }

    /// Whether more completions wait than the queue has entries.
    #[inline]
    fn is_overrun(&self, side: &PollSide) -> bool {
        self.completions.may_overrun() && self.has_too_many(side)
    }

    fn has_too_many(&self, side: &PollSide) -> bool {
        self.completions.is_overrun_with(self.received(side))
    }

    /// Completions of receives that wait.
    fn received(&self, side: &PollSide) -> usize {
        // Among many, those that have something have said so; otherwise they are looked at.
        let few = if self.has_many.load(Ordering::Relaxed) { &[][..] } else { &side.receivers };
        side.arrived + few.iter().map(|qp| qp.receiving.waiting()).sum::<usize>()
    }

    /// Gives the queue another size, if no more completions wait; whether it can overrun by that.
    pub(crate) fn resize(&self, cqe: u32) -> Option<bool> {
        let side = self.side.lock();
        let receives = side.receivers.iter().map(|qp| qp.receiving.due(&qp.connection)).sum();
        self.completions.resize(cqe, receives)
    }

    /// Finds an overrun that nobody has polled for.
    pub(crate) fn look_for_overrun(&self) {
        let mut side = self.side.lock();
        self.hear_reports(&mut side);
        let is_overrun = self.is_overrun(&side);
        drop(side);
        if is_overrun {
            self.completions.overrun();
        }
    }

    #[cold]
    fn drive_stalled(&self) {
        let stalled = &self.completions.stalled;
        for seat in stalled.taken() {
            let sender = self.side.lock().senders.get(seat).cloned().flatten();
            // It reports failures, which takes the lock.
            sender.iter().for_each(|qp| qp.progress(By::Poller));
            if sender.is_some_and(|qp| qp.sending.is_stalled()) {
                self.completions.stalls(seat);
            }
        }
    }

    /// Waits until whoever polls now has ended.
    pub(crate) fn pass(&self) {
        self.side.pass();
    }

    /// See [`nic_util::sync::reader_registry::ReaderMark::erase`].
    pub(crate) fn erase(&self) {
        self.side.erase();
    }
}
