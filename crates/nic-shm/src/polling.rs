//! Data path: polling. A completion queue as its poller uses it: polls its queue pairs in turn.
//!
//! This process's own posting threads write completions of send requests to a local ring under a lock. Peers
//! write completions of receives, each to the ring of its queue pair, so that a peer which dies half-way has
//! published nothing and blocks nobody. A poll reads both.

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

/// Number of queue pairs that a poll checks one by one; if there are more, peers mark those with completions.
const FEW: usize = 8;

/// The poller's state, under the poll lock.
#[derive(Default)]
pub(crate) struct PollSide {
    /// Queue pairs whose send requests complete here, by slot.
    senders: Vec<Option<Arc<QpInner>>>,
    /// Free slots.
    free: Vec<usize>,
    /// Queue pairs whose receives complete here, sorted by index.
    receivers: Vec<Arc<QpInner>>,
    /// Where the next poll begins, so that each queue pair gets its turn.
    turn: usize,
    /// Only with many queue pairs: the same ones, each at its index.
    places: Vec<Option<Arc<QpInner>>>,
    /// Only with many queue pairs: each index that was marked and may have more completions, once. Indices,
    /// not references: counting references would miss a cache line for each, one after the other.
    due: VecDeque<usize>,
    /// Only with many queue pairs: the last one with a completion. It is polled even before it is marked
    /// again: it is likely to have another completion soon, and reading its mark costs two more cache lines
    /// from the peer's core.
    recent: Option<usize>,
    /// Only with many queue pairs: number of receive completions that were counted when marked, and not
    /// polled.
    arrived: usize,
}

impl PollSide {
    /// Handles the mark of a queue pair, one among many.
    fn report(&mut self, index: usize) {
        let Some(qp) = self.places.get(index).and_then(Option::as_ref) else { return };
        let new = qp.receiving.count_arrivals();
        self.arrived += new;
        if new == 0 && !qp.connection.is_failing() {
            // Polled before it was marked.
            return;
        }
        let is_due = &qp.receiving.is_due;
        if !is_due.load(Ordering::Relaxed) {
            is_due.store(true, Ordering::Relaxed);
            self.due.push_back(index);
        }
    }

    /// Adds a queue pair once peers mark those with completions.
    fn grow(&mut self, qp: &Arc<QpInner>) {
        if self.places.len() <= qp.index() {
            self.places.resize(qp.index() + 1, None);
        }
        self.places[qp.index()] = Some(qp.clone());
        self.report(qp.index());
    }

    /// Polls completions of receives, from each queue pair in turn.
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
                // It may have more: the next poll begins with it.
                self.turn = if step < first.len() { turn + step } else { step - first.len() };
                return got;
            }
        }
        self.turn = if first.len() > 1 { turn + 1 } else { 0 };
        got
    }

    /// Polls completions of receives, from queue pairs that were marked.
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
                // It has more, or receives to flush; others get their turn first. Later completions are
                // marked.
                due.push_back(index);
            } else {
                qp.receiving.is_due.store(false, Ordering::Relaxed);
            }
        }
        got
    }
}

/// A completion queue with the queue pairs that it polls.
pub(crate) struct Polling {
    pub(crate) completions: Arc<Completions>,
    side: Workplace<PollSide>,
    /// There are too many queue pairs to poll each: peers mark those with completions. Never reset.
    has_many: AtomicBool,
}

impl Polling {
    pub(crate) fn new(completions: Completions) -> Self {
        let completions = Arc::new(completions);
        Self { completions, side: Workplace::default(), has_many: AtomicBool::new(false) }
    }

    /// Adds a queue pair's sending half, which gets a slot here; returns whether this makes an overrun
    /// possible that was not possible before.
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

    /// Adds a queue pair's receiving half; returns whether this makes an overrun possible that was not
    /// possible before.
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
            // Peers publish first and read `many` afterwards; this finds completions of peers that read it
            // too early.
            nic_util::sync::fence::heavy();
            let all = side.receivers.clone();
            all.iter().for_each(|qp| side.grow(qp));
        }
        can_overrun
    }

    /// Removes a queue pair's sending half and its completions.
    pub(crate) fn detach_sender(&self, qp: &QpInner) {
        self.completions.unwant(qp.sending.depth());
        let mut side = self.side.lock();
        if let Some(seat) = qp.sending.seat() {
            side.senders[seat] = None;
            side.free.push(seat);
            self.completions.forget(seat);
        }
    }

    /// Removes a queue pair's receiving half and its completions.
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

    /// Polls completions: of send requests first, then of receives; returns both numbers. Fails if the queue
    /// has overrun.
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

    /// With many queue pairs: reads the marks.
    #[inline]
    fn hear_reports(&self, side: &mut PollSide) {
        let ready = &self.completions.words.ready;
        if self.has_many.load(Ordering::Relaxed) && ready.any() {
            ready.take(|index| side.report(index));
        }
    }

    /// Whether more completions are queued than the queue has entries.
    #[inline]
    fn is_overrun(&self, side: &PollSide) -> bool {
        self.completions.may_overrun() && self.has_too_many(side)
    }

    fn has_too_many(&self, side: &PollSide) -> bool {
        self.completions.is_overrun_with(self.received(side))
    }

    /// Number of queued receive completions.
    fn received(&self, side: &PollSide) -> usize {
        // Among many, those with completions were marked; few are checked one by one.
        let few = if self.has_many.load(Ordering::Relaxed) { &[][..] } else { &side.receivers };
        side.arrived + few.iter().map(|qp| qp.receiving.waiting()).sum::<usize>()
    }

    /// Resizes the queue unless it holds more completions than that; returns whether this makes an overrun
    /// possible.
    pub(crate) fn resize(&self, cqe: u32) -> Option<bool> {
        let side = self.side.lock();
        let receives = side.receivers.iter().map(|qp| qp.receiving.due(&qp.connection)).sum();
        self.completions.resize(cqe, receives)
    }

    /// Checks for an overrun that no poll has found.
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
            // Without the lock, which reporting a failure takes.
            sender.iter().for_each(|qp| qp.progress(By::Poller));
            if sender.is_some_and(|qp| qp.sending.is_stalled()) {
                self.completions.stalls(seat);
            }
        }
    }

    /// Waits until the thread that polls now has finished.
    pub(crate) fn pass(&self) {
        self.side.pass();
    }

    /// See [`nic_util::sync::reader_registry::ReaderMark::erase`].
    pub(crate) fn erase(&self) {
        self.side.erase();
    }
}
