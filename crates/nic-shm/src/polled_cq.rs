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
use crate::send::send_half::ProgressCaller;
use crate::shared::DeviceShared;
use nic_util::sync::reader_registry::ReaderLock;

/// Number of queue pairs that a poll checks one by one; if there are more, peers mark those with completions.
const FEW: usize = 8;

/// The poller's state, under the poll lock.
#[derive(Default)]
pub(crate) struct PollState {
    /// Queue pairs whose send requests complete here, by slot.
    senders: Vec<Option<Arc<QpInner>>>,
    /// Free slots.
    free: Vec<usize>,
    /// Queue pairs whose receives complete here, sorted by index.
    receivers: Vec<Arc<QpInner>>,
    /// Where the next poll begins, so that each queue pair gets its turn.
    next_index: usize,
    /// Only with many queue pairs: the same ones, each at its index.
    by_index: Vec<Option<Arc<QpInner>>>,
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

impl PollState {
    /// Handles the mark of a queue pair, one among many.
    fn handle_marked(&mut self, index: usize) {
        let Some(qp) = self.by_index.get(index).and_then(Option::as_ref) else { return };
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
    fn add_marked(&mut self, qp: &Arc<QpInner>) {
        if self.by_index.len() <= qp.index() {
            self.by_index.resize(qp.index() + 1, None);
        }
        self.by_index[qp.index()] = Some(qp.clone());
        self.handle_marked(qp.index());
    }

    /// Polls completions of receives, from each queue pair in turn.
    #[inline]
    fn poll_few(&mut self, wcs: &mut [Wc]) -> usize {
        match &self.receivers[..] {
            [] => 0,
            [only] => only.poll_receives(wcs),
            _ => self.poll_several(wcs),
        }
    }

    #[inline(never)]
    fn poll_several(&mut self, wcs: &mut [Wc]) -> usize {
        let (next_index, mut got) = (self.next_index.min(self.receivers.len()), 0);
        let (later, first) = self.receivers.split_at(next_index);
        for (step, qp) in first.iter().chain(later).enumerate() {
            got += qp.poll_receives(&mut wcs[got..]);
            if got == wcs.len() {
                // It may have more: the next poll begins with it.
                self.next_index = if step < first.len() { next_index + step } else { step - first.len() };
                return got;
            }
        }
        self.next_index = if first.len() > 1 { next_index + 1 } else { 0 };
        got
    }

    /// Polls completions of receives, from queue pairs that were marked.
    fn poll_marked(&mut self, wcs: &mut [Wc]) -> usize {
        let Self { due, by_index, arrived, recent, .. } = self;
        let mut got = 0;
        if due.is_empty() && !wcs.is_empty() {
            due.extend(*recent);
        }
        while got < wcs.len()
            && let Some(index) = due.pop_front()
        {
            let Some(qp) = by_index.get(index).and_then(Option::as_ref) else { continue };
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
pub(crate) struct PolledCq {
    pub(crate) completions: Arc<Completions>,
    state: ReaderLock<PollState>,
    /// There are too many queue pairs to poll each: peers mark those with completions. Never reset.
    has_many: AtomicBool,
}

impl PolledCq {
    pub(crate) fn new(completions: Completions) -> Self {
        let completions = Arc::new(completions);
        Self { completions, state: ReaderLock::default(), has_many: AtomicBool::new(false) }
    }

    /// Adds a queue pair's sending half, which gets a slot here; returns whether this makes an overrun
    /// possible that was not possible before.
    pub(crate) fn attach_sender(&self, qp: &Arc<QpInner>) -> bool {
        let can_overrun = self.completions.add_depth(qp.sending.depth());
        let mut state = self.state.lock();
        self.completions.reserve_capacity();
        let cq_slot = state.free.pop().unwrap_or_else(|| {
            state.senders.push(None);
            state.senders.len() - 1
        });
        state.senders[cq_slot] = Some(qp.clone());
        qp.sending.set_cq_slot(cq_slot);
        can_overrun
    }

    /// Adds a queue pair's receiving half; returns whether this makes an overrun possible that was not
    /// possible before.
    pub(crate) fn attach_receiver(&self, qp: &Arc<QpInner>) -> bool {
        let can_overrun = self.completions.add_depth(qp.receiving.depth());
        let mut state = self.state.lock();
        let at = state.receivers.partition_point(|other| other.index() < qp.index());
        state.receivers.insert(at, qp.clone());
        if self.has_many.load(Ordering::Relaxed) {
            state.add_marked(qp);
        } else if state.receivers.len() > FEW {
            self.has_many.store(true, Ordering::Relaxed);
            self.completions.require_slow_path();
            let words = &self.completions.words;
            words.many.store(1, Ordering::SeqCst);
            words.adaptive_fence.register_waiter();
            // Peers publish first and read `many` afterwards; this finds completions of peers that read it
            // too early.
            nic_util::sync::fence::heavy();
            let all = state.receivers.clone();
            all.iter().for_each(|qp| state.add_marked(qp));
        }
        can_overrun
    }

    /// Removes a queue pair's sending half and its completions.
    pub(crate) fn detach_sender(&self, qp: &QpInner) {
        self.completions.remove_depth(qp.sending.depth());
        let mut state = self.state.lock();
        if let Some(cq_slot) = qp.sending.cq_slot() {
            state.senders[cq_slot] = None;
            state.free.push(cq_slot);
            self.completions.discard_of_qp(cq_slot);
        }
    }

    /// Removes a queue pair's receiving half and its completions.
    pub(crate) fn detach_receiver(&self, qp: &QpInner) {
        self.completions.remove_depth(qp.receiving.depth());
        let mut state = self.state.lock();
        if let Ok(at) = state.receivers.binary_search_by_key(&qp.index(), |other| other.index()) {
            state.receivers.remove(at);
        }
        if let Some(place) = state.by_index.get_mut(qp.index()) {
            *place = None;
        }
        if qp.receiving.is_due.swap(false, Ordering::Relaxed) {
            state.due.retain(|other| *other != qp.index());
        }
        state.arrived -= qp.receiving.counted_arrivals();
    }

    /// Polls completions: of send requests first, then of receives; returns both numbers. Fails if the queue
    /// has overrun.
    #[inline]
    pub(crate) fn poll(&self, device: &DeviceShared, wcs: &mut [Wc]) -> Result<(usize, usize)> {
        if self.completions.needs_slow_path() {
            return self.poll_any(device, wcs);
        }
        let mut state = self.enter(device);
        let sends = self.poll_sends(&state, wcs);
        let receives = if sends < wcs.len() { state.poll_few(&mut wcs[sends..]) } else { 0 };
        Ok((sends, receives))
    }

    #[inline]
    fn enter(&self, device: &DeviceShared) -> BiasedGuard<'_, PollState> {
        self.state.enter(|| device.pollers.add(self.completions.index))
    }

    #[inline]
    fn poll_sends(&self, state: &PollState, wcs: &mut [Wc]) -> usize {
        self.completions.poll_sends(wcs, |done| {
            if let Some(qp) = state.senders.get(done.cq_slot as usize).and_then(Option::as_ref) {
                qp.sending.reclaim(done.posted_count);
            }
        })
    }

    #[inline(never)]
    fn poll_any(&self, device: &DeviceShared, wcs: &mut [Wc]) -> Result<(usize, usize)> {
        let completions = &*self.completions;
        let overrun = || Error::CqOverrun { cqe: completions.cqe() };
        if completions.has_overrun() {
            return Err(overrun());
        }
        if completions.stalled.any() {
            self.retry_stalled();
        }
        let mut state = self.enter(device);
        self.collect_marked(&mut state);
        if self.is_overrun(&state) {
            drop(state);
            completions.overrun();
            return Err(overrun());
        }
        let sends = self.poll_sends(&state, wcs);
        let wcs = &mut wcs[sends..];
        let has_many = self.has_many.load(Ordering::Relaxed);
        let receives = if has_many { state.poll_marked(wcs) } else { state.poll_few(wcs) };
        completions.leave_slow_path(has_many);
        Ok((sends, receives))
    }

    /// With many queue pairs: reads the marks.
    #[inline]
    fn collect_marked(&self, state: &mut PollState) {
        let ready = &self.completions.words.ready;
        if self.has_many.load(Ordering::Relaxed) && ready.any() {
            ready.drain_each(|index| state.handle_marked(index));
        }
    }

    /// Whether more completions are queued than the queue has entries.
    #[inline]
    fn is_overrun(&self, state: &PollState) -> bool {
        self.completions.may_overrun() && self.has_taken_too_many(state)
    }

    fn has_taken_too_many(&self, state: &PollState) -> bool {
        self.completions.is_overrun_with(self.received(state))
    }

    /// Number of queued receive completions.
    fn received(&self, state: &PollState) -> usize {
        // Among many, those with completions were marked; few are checked one by one.
        let few = if self.has_many.load(Ordering::Relaxed) { &[][..] } else { &state.receivers };
        state.arrived + few.iter().map(|qp| qp.receiving.pollable()).sum::<usize>()
    }

    /// Resizes the queue unless it holds more completions than that; returns whether this makes an overrun
    /// possible.
    pub(crate) fn resize(&self, cqe: u32) -> Option<bool> {
        let state = self.state.lock();
        let receives =
            state.receivers.iter().map(|qp| qp.receiving.pollable_or_flushable(&qp.connection)).sum();
        self.completions.resize(cqe, receives)
    }

    /// Checks for an overrun that no poll has found.
    pub(crate) fn check_overrun(&self) {
        let mut state = self.state.lock();
        self.collect_marked(&mut state);
        let is_overrun = self.is_overrun(&state);
        drop(state);
        if is_overrun {
            self.completions.overrun();
        }
    }

    #[cold]
    fn retry_stalled(&self) {
        let stalled = &self.completions.stalled;
        for cq_slot in stalled.drain() {
            let sender = self.state.lock().senders.get(cq_slot).cloned().flatten();
            // Without the lock, which reporting a failure takes.
            sender.iter().for_each(|qp| qp.progress(ProgressCaller::Poller));
            if sender.is_some_and(|qp| qp.sending.is_stalled()) {
                self.completions.mark_stalled(cq_slot);
            }
        }
    }

    /// Waits until the thread that polls now has finished.
    pub(crate) fn wait_for_reader(&self) {
        self.state.wait_for_reader();
    }

    /// See [`nic_util::sync::reader_registry::ReaderMark::clear`].
    pub(crate) fn reset_mark(&self) {
        self.state.reset_mark();
    }
}
