//! Data path: completion. A completion queue as its queue pairs use it: completions of send requests, and
//! notifying waiters. Polling is in [`crate::polled_cq`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::{BiasedLock, Wake};
use verbs::{AsyncEvent, Result, Wc, WcOpcode, WcStatus};

use crate::memory::layout::{CQ_MAX, CqShared, cq_offset};
use crate::memory::segment::SharedRef;
use crate::peer::notify::{ARMED_ANY, ARMED_SOLICITED, notify_cq};
use crate::queues::channel::Channel;
use crate::shared::DeviceShared;
use nic_util::heap_trim::queue_size;
use nic_util::sync::ready::ReadySet;

/// The completion of a send request, with its queue position.
#[derive(Clone, Copy)]
pub(crate) struct SendCompletion {
    pub(crate) wr_id: u64,
    /// Number of requests of the send queue up to and including this one.
    pub(crate) posted_count: u64,
    /// The slot of the queue pair in this completion queue, and its public number.
    pub(crate) cq_slot: u32,
    pub(crate) qp_num: u32,
    /// Number of bytes fetched.
    pub(crate) byte_len: u32,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
}

impl SendCompletion {
    /// The completion as the program gets it.
    #[inline]
    pub(crate) fn wc(&self) -> Wc {
        let &Self { wr_id, qp_num, byte_len, status, opcode, .. } = self;
        Wc { wr_id, status, opcode, byte_len, qp_num, imm: None, invalidated: None }
    }
}

/// A completion queue.
pub(crate) struct Completions {
    device: Arc<DeviceShared>,
    pub(crate) index: usize,
    /// Size in entries, which the program may change.
    cqe: AtomicU32,
    pub(crate) words: SharedRef<CqShared>,
    pub(crate) channel: Option<Arc<Channel>>,
    local: BiasedLock<VecDeque<SendCompletion>>,
    local_len: AtomicUsize,
    /// Number of events that the program has requested and not received: a peer cannot announce more.
    requested_events: AtomicU64,
    /// Maximum number of outstanding completions; if it exceeds `cqe`, an overrun is possible.
    max_outstanding: AtomicU32,
    overrun_seen: AtomicBool,
    /// It is dead, may overrun, has many queue pairs, or some with waiting requests: polls take the slow
    /// path.
    slow_path: AtomicBool,
    /// Queue pairs with waiting send requests, by slot; pollers retry these requests.
    pub(crate) stalled: ReadySet,
}

impl Completions {
    pub(crate) fn new(device: &Arc<DeviceShared>, cqe: u32, channel: Option<Arc<Channel>>) -> Result<Self> {
        let index = device.indices.lock().cq.alloc("completion queues", CQ_MAX)?;
        let words: SharedRef<CqShared> = SharedRef::new(&device.table.map, cq_offset(index))?;
        words.armed.store(0, Ordering::Relaxed);
        words.events.store(0, Ordering::Relaxed);
        words.many.store(0, Ordering::Relaxed);
        words.adaptive_fence.reset();
        words.asymmetric_notify.reset();
        words.channel.store(channel.as_ref().map_or(0, |c| c.index as u32 + 1), Ordering::Relaxed);
        // Its entries are counted by the queue pairs that use them.
        device.heap_trim.count_allocated(queue_size(0));
        Ok(Self {
            device: device.clone(),
            index,
            cqe: AtomicU32::new(cqe),
            words,
            channel,
            local: BiasedLock::new(VecDeque::new()),
            local_len: AtomicUsize::new(0),
            requested_events: AtomicU64::new(0),
            max_outstanding: AtomicU32::new(0),
            overrun_seen: AtomicBool::new(false),
            slow_path: AtomicBool::new(false),
            stalled: ReadySet::new(),
        })
    }

    /// Adds `depth` outstanding completions; returns whether this makes an overrun possible that was not
    /// possible before.
    pub(crate) fn add_depth(&self, depth: u32) -> bool {
        let before = self.max_outstanding.fetch_add(depth, Ordering::Relaxed);
        self.require_slow_path();
        before <= self.cqe() && before + depth > self.cqe()
    }

    /// Size in entries.
    #[inline]
    pub(crate) fn cqe(&self) -> u32 {
        self.cqe.load(Ordering::Relaxed)
    }

    /// Resizes the queue unless it holds more completions, including `receives` of receives; returns whether
    /// an overrun is possible.
    pub(crate) fn resize(&self, cqe: u32, receives: usize) -> Option<bool> {
        // A thread that completes a request also reads the size under this lock.
        let local = self.local.lock();
        if local.len() + receives > cqe as usize {
            return None;
        }
        self.cqe.store(cqe, Ordering::Relaxed);
        drop(local);
        self.require_slow_path();
        self.reserve_capacity();
        Some(self.may_overrun())
    }

    /// Subtracts `depth` outstanding completions.
    pub(crate) fn remove_depth(&self, depth: u32) {
        self.max_outstanding.fetch_sub(depth, Ordering::Relaxed);
    }

    /// Reserves memory for the completions of all send requests, so that completing never allocates; more
    /// than the queue's entries is an overrun.
    pub(crate) fn reserve_capacity(&self) {
        let wanted = self.max_outstanding.load(Ordering::Relaxed).min(self.cqe()) as usize;
        let mut local = self.local.lock();
        let more = wanted.saturating_sub(local.len());
        local.reserve(more);
    }

    /// Adds the completion of a send request of this process.
    #[inline(always)]
    pub(crate) fn push(&self, done: SendCompletion, solicited: bool) {
        let mut local = self.local.lock();
        if local.len() >= self.cqe() as usize {
            drop(local);
            self.overrun();
            return;
        }
        local.push_back(done);
        self.local_len.store(local.len(), Ordering::Release);
        drop(local);
        if self.words.must_notify() {
            self.notify_after_fence(solicited);
        }
    }

    /// Polls completions of send requests, in order; calls `on_each` for each.
    #[inline]
    pub(crate) fn poll_sends(&self, wcs: &mut [Wc], mut on_each: impl FnMut(&SendCompletion)) -> usize {
        if self.local_len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let (mut local, mut count) = (self.local.lock(), 0);
        for wc in wcs {
            let Some(done) = local.pop_front() else { break };
            on_each(&done);
            *wc = done.wc();
            count += 1;
        }
        self.local_len.store(local.len(), Ordering::Release);
        count
    }

    /// Whether successful completions of one queue pair are queued.
    pub(crate) fn has_completed(&self, cq_slot: usize) -> bool {
        let matches_qp =
            |done: &SendCompletion| done.cq_slot as usize == cq_slot && done.status == WcStatus::Success;
        self.local_len.load(Ordering::Acquire) > 0 && self.local.lock().iter().any(matches_qp)
    }

    /// Removes the completions of one queue pair.
    pub(crate) fn discard_of_qp(&self, cq_slot: usize) {
        let mut local = self.local.lock();
        local.retain(|done| done.cq_slot as usize != cq_slot);
        self.local_len.store(local.len(), Ordering::Release);
    }

    /// Notifies waiters and the channel that this process has published something here.
    pub(crate) fn notify(&self, solicited: bool) {
        // Pairs with the fences of the event count's waiter and of `arm`: the checks of both must not move before
        // what was published.
        fence(Ordering::SeqCst);
        self.notify_after_fence(solicited);
    }

    #[cold]
    fn notify_after_fence(&self, solicited: bool) {
        let channel = self.channel.as_ref().map(|channel| channel.waiters());
        notify_cq(&self.words, &self.device.header.reporting, self.index, channel, solicited);
    }

    /// Wakes all waiters after a change that is not a single completion.
    pub(crate) fn wake_all(&self, qp_index: usize) {
        self.words.ready.add(qp_index);
        self.notify(true);
    }

    /// Requests an event for the next completion, or for the next solicited one.
    pub(crate) fn arm(&self, solicited_only: bool) {
        self.requested_events.fetch_add(1, Ordering::AcqRel);
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.words.armed.fetch_max(kind, Ordering::SeqCst);
        // Pairs with the fences of `notify` and of completing threads: the next poll must not move before the
        // arming.
        fence(Ordering::SeqCst);
        self.words.adaptive_fence.register_waiter();
    }

    /// Raises an event, armed or not: a peer may have died after it had reset the arming.
    pub(crate) fn force_event(&self) {
        if let Some(channel) = &self.channel {
            self.requested_events.fetch_add(1, Ordering::AcqRel);
            self.words.events.fetch_add(1, Ordering::AcqRel);
            self.device.header.reporting.add(self.index);
            channel.wake();
        }
    }

    /// Whether an event can be fetched.
    pub(crate) fn has_event(&self) -> bool {
        self.words.events.load(Ordering::Acquire) > 0 && self.requested_events.load(Ordering::Acquire) > 0
    }

    /// Fetches an event; false if there is none.
    pub(crate) fn take_event(&self) -> bool {
        let one_less = |n: u32| n.checked_sub(1);
        self.words.events.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
            && self
                .requested_events
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
    }

    pub(crate) fn prepare_wait(&self) -> Wake<'_> {
        let wake = Wake::by(&self.words.wakeup);
        self.words.adaptive_fence.register_waiter();
        self.words.asymmetric_notify.fence_before_wait();
        wake
    }

    /// Whether more completions may be outstanding than there are entries.
    #[inline]
    pub(crate) fn may_overrun(&self) -> bool {
        self.max_outstanding.load(Ordering::Relaxed) > self.cqe()
    }

    /// Whether this many receive completions, with the queued ones of send requests, exceed the size (IBA
    /// 11.6.3.1).
    pub(crate) fn is_overrun_with(&self, receives: usize) -> bool {
        self.local_len.load(Ordering::Acquire) + receives > self.cqe() as usize
    }

    /// Handles an overrun: marks the users of the queue to be failed, and raises an event.
    #[cold]
    pub(crate) fn overrun(&self) {
        if !self.overrun_seen.swap(true, Ordering::AcqRel) {
            self.require_slow_path();
            self.device.async_event(AsyncEvent::CqError { cq: self.index as u32 });
            self.device.request_failure_of_cq_users(self.index);
            self.notify(true);
        }
    }

    /// Records that a queue pair's send requests wait; a poller removes it when none waits any more.
    pub(crate) fn mark_stalled(&self, cq_slot: usize) {
        self.stalled.add(cq_slot);
        self.require_slow_path();
    }

    /// Makes polls take the slow path, until one finds that this is not needed.
    pub(crate) fn require_slow_path(&self) {
        self.slow_path.store(true, Ordering::Release);
    }

    /// Whether polls must take the slow path.
    #[inline]
    pub(crate) fn needs_slow_path(&self) -> bool {
        self.slow_path.load(Ordering::Acquire)
    }

    /// Called after the slow path: lets the next poll take the fast path, unless there are `many` queue pairs
    /// or another condition requires the slow path.
    pub(crate) fn leave_slow_path(&self, many: bool) {
        let is_needed = || many || self.has_overrun() || self.may_overrun() || self.stalled.any();
        // Reset by an exchange, then checked again: a thread sets it only after the condition itself.
        if !is_needed() && self.slow_path.swap(false, Ordering::AcqRel) && is_needed() {
            self.require_slow_path();
        }
    }

    /// Whether it has overrun.
    #[inline]
    pub(crate) fn has_overrun(&self) -> bool {
        self.overrun_seen.load(Ordering::Relaxed)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.device.fork_guard.is_forked() {
            return;
        }
        self.device.indices.lock().cq.free(self.index);
        self.device.count_freed(queue_size(0));
    }
}
