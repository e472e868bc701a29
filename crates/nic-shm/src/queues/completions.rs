//! Data path: completion. A completion queue as the queue pairs know it that complete there: the completions of send requests,
//! and telling whoever waits. Who polls it is [`crate::polling`]'s.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::{Biased, Wake};
use verbs::{AsyncEvent, Result, Wc, WcOpcode, WcStatus};

use crate::memory::layout::{CQ_MAX, CqShared, cq_at};
use crate::memory::segment::Ref;
use crate::peer::announce::{ARMED_ANY, ARMED_SOLICITED, announce};
use crate::queues::channel::Channel;
use crate::shared::Shared;
use nic_util::heap_trim::queue;
use nic_util::sync::ready::Ready;

/// The completion of a send request, with where it was posted.
#[derive(Clone, Copy)]
pub(crate) struct SendDone {
    pub(crate) wr_id: u64,
    /// How many requests of its queue are done with it.
    pub(crate) upto: u64,
    /// The queue pair's place among those attached to the queue, and the number by which programs know it.
    pub(crate) seat: u32,
    pub(crate) qp_num: u32,
    /// Bytes fetched.
    pub(crate) byte_len: u32,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
}

impl SendDone {
    /// What the program is told.
    #[inline]
    pub(crate) fn wc(&self) -> Wc {
        let &Self { wr_id, qp_num, byte_len, status, opcode, .. } = self;
        Wc { wr_id, status, opcode, byte_len, qp_num, imm: None, invalidated: None }
    }
}

/// A completion queue.
pub(crate) struct Completions {
    device: Arc<Shared>,
    pub(crate) index: usize,
    /// Its size, which the program may change.
    cqe: AtomicU32,
    pub(crate) words: Ref<CqShared>,
    pub(crate) channel: Option<Arc<Channel>>,
    local: Biased<VecDeque<SendDone>>,
    local_len: AtomicUsize,
    /// Events that the program has asked for and not got: however many a peer announces, there are no more.
    owed: AtomicU64,
    /// Sum of what may be outstanding; more than `cqe` means that overrunning is possible.
    demand: AtomicU32,
    dead: AtomicBool,
    /// It is dead, may overrun, or has queue pairs that wait or too many of them: looks take the long way.
    unusual: AtomicBool,
    /// Queue pairs with send requests that wait, by seat; they are driven by whoever polls.
    pub(crate) stalled: Ready,
}

impl Completions {
    pub(crate) fn new(device: &Arc<Shared>, cqe: u32, channel: Option<Arc<Channel>>) -> Result<Self> {
        let index = device.indices.lock().cq.take("completion queues", CQ_MAX)?;
        let words: Ref<CqShared> = Ref::new(&device.table.map, cq_at(index))?;
        words.armed.store(0, Ordering::Relaxed);
        words.events.store(0, Ordering::Relaxed);
        words.many.store(0, Ordering::Relaxed);
        words.heed.reset();
        words.knock.reset();
        words.channel.store(channel.as_ref().map_or(0, |c| c.index as u32 + 1), Ordering::Relaxed);
        // Its entries are counted with the queue pairs that make room for them.
        device.tide.rise(queue(0));
        Ok(Self {
            device: device.clone(),
            index,
            cqe: AtomicU32::new(cqe),
            words,
            channel,
            local: Biased::new(VecDeque::new()),
            local_len: AtomicUsize::new(0),
            owed: AtomicU64::new(0),
            demand: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            unusual: AtomicBool::new(false),
            stalled: Ready::new(),
        })
    }

    /// So many more may be outstanding; whether the queue can overrun by that, and could not before.
    pub(crate) fn want(&self, depth: u32) -> bool {
        let before = self.demand.fetch_add(depth, Ordering::Relaxed);
        self.becomes_unusual();
        before <= self.cqe() && before + depth > self.cqe()
    }

    /// Its size in entries.
    #[inline]
    pub(crate) fn cqe(&self) -> u32 {
        self.cqe.load(Ordering::Relaxed)
    }

    /// Gives it another size, if no more than that wait, with so many receives among them; whether the queue can overrun by that.
    pub(crate) fn resize(&self, cqe: u32, receives: usize) -> Option<bool> {
        // Who completes a request looks at the size under the lock, too.
        let local = self.local.lock();
        if local.len() + receives > cqe as usize {
            return None;
        }
        self.cqe.store(cqe, Ordering::Relaxed);
        drop(local);
        self.becomes_unusual();
        self.make_room();
        Some(self.may_overrun())
    }

    /// So many less may be outstanding.
    pub(crate) fn unwant(&self, depth: u32) {
        self.demand.fetch_sub(depth, Ordering::Relaxed);
    }

    /// Makes room for every send request's completion that may come, so that completing never allocates; more than the entries
    /// is an overrun.
    pub(crate) fn make_room(&self) {
        let wanted = self.demand.load(Ordering::Relaxed).min(self.cqe()) as usize;
        let mut local = self.local.lock();
        let more = wanted.saturating_sub(local.len());
        local.reserve(more);
    }

    /// The completion of a send request of this process.
    #[inline]
    pub(crate) fn push(&self, done: SendDone, solicited: bool) {
        let mut local = self.local.lock();
        if local.len() >= self.cqe() as usize {
            drop(local);
            self.overrun();
            return;
        }
        local.push_back(done);
        self.local_len.store(local.len(), Ordering::Release);
        drop(local);
        if self.words.has_listeners() {
            self.announce(solicited);
        }
    }

    /// Takes completions of send requests, in order; `on_each` learns of which they are.
    #[inline]
    pub(crate) fn take(&self, wcs: &mut [Wc], mut on_each: impl FnMut(&SendDone)) -> usize {
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

    /// Whether successful completions of one queue pair wait.
    pub(crate) fn has_completed(&self, seat: usize) -> bool {
        let is_meant = |done: &SendDone| done.seat as usize == seat && done.status == WcStatus::Success;
        self.local_len.load(Ordering::Acquire) > 0 && self.local.lock().iter().any(is_meant)
    }

    /// Forgets the completions of one queue pair.
    pub(crate) fn forget(&self, seat: usize) {
        let mut local = self.local.lock();
        local.retain(|done| done.seat as usize != seat);
        self.local_len.store(local.len(), Ordering::Release);
    }

    /// Tells sleepers and the channel that something was published here by this process.
    pub(crate) fn notify(&self, solicited: bool) {
        // Pairs with the fences of the bell's sleeper and of `arm`: the looks at both must not move before what was
        // published.
        fence(Ordering::SeqCst);
        self.announce(solicited);
    }

    #[cold]
    fn announce(&self, solicited: bool) {
        let channel = self.channel.as_ref().map(|channel| channel.sleepers());
        announce(&self.words, &self.device.header.reporting, self.index, channel, solicited);
    }

    /// Wakes everybody: something changed that is no single completion.
    pub(crate) fn alarm(&self, qp_index: usize) {
        self.words.ready.add(qp_index);
        self.notify(true);
    }

    /// An event is wanted for the next completion, or for the next solicited one.
    pub(crate) fn arm(&self, solicited_only: bool) {
        self.owed.fetch_add(1, Ordering::AcqRel);
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.words.armed.fetch_max(kind, Ordering::SeqCst);
        // Pairs with the fences of `notify` and of whoever completes: the next poll must not move before the arming.
        fence(Ordering::SeqCst);
        self.words.heed.demand();
    }

    /// An event, armed or not: an arming may have died with a peer.
    pub(crate) fn force_event(&self) {
        if let Some(channel) = &self.channel {
            self.owed.fetch_add(1, Ordering::AcqRel);
            self.words.events.fetch_add(1, Ordering::AcqRel);
            self.device.header.reporting.add(self.index);
            channel.raise();
        }
    }

    /// Whether there is an event to fetch.
    pub(crate) fn has_event(&self) -> bool {
        self.words.events.load(Ordering::Acquire) > 0 && self.owed.load(Ordering::Acquire) > 0
    }

    /// Fetches an event; false if there is none.
    pub(crate) fn take_event(&self) -> bool {
        let one_less = |n: u32| n.checked_sub(1);
        self.words.events.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
            && self.owed.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    pub(crate) fn prepare_wait(&self) -> Wake<'_> {
        let wake = Wake::by(&self.words.bell);
        self.words.heed.demand();
        self.words.knock.settle();
        wake
    }

    /// Whether more may be outstanding than there are entries.
    #[inline]
    pub(crate) fn may_overrun(&self) -> bool {
        self.demand.load(Ordering::Relaxed) > self.cqe()
    }

    /// Whether so many completions of receives are too many beside those of send requests (IBA 11.6.3.1).
    pub(crate) fn is_overrun_with(&self, receives: usize) -> bool {
        self.local_len.load(Ordering::Acquire) + receives > self.cqe() as usize
    }

    /// It has overrun: its users are to fail, and the program hears of it.
    #[cold]
    pub(crate) fn overrun(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            self.becomes_unusual();
            self.device.async_event(AsyncEvent::CqError { cq: self.index as u32 });
            self.device.condemn_users_of(self.index);
            self.notify(true);
        }
    }

    /// A queue pair's send requests wait: whoever polls takes it out when it finds that nothing waits.
    pub(crate) fn stalls(&self, seat: usize) {
        self.stalled.add(seat);
        self.becomes_unusual();
    }

    /// From now on looks take the long way, until one finds that they need not.
    pub(crate) fn becomes_unusual(&self) {
        self.unusual.store(true, Ordering::Release);
    }

    /// Whether looks are to take the long way.
    #[inline]
    pub(crate) fn is_unusual(&self) -> bool {
        self.unusual.load(Ordering::Acquire)
    }

    /// A look has taken the long way; the next one need not, if nothing is unusual but whether there are `many` queue pairs.
    pub(crate) fn settle_into_usual(&self, many: bool) {
        let unusual = || many || self.is_dead() || self.may_overrun() || self.stalled.any();
        // Taken back by an exchange, and then looked at again: whoever says so has made it so before.
        if !unusual() && self.unusual.swap(false, Ordering::AcqRel) && unusual() {
            self.becomes_unusual();
        }
    }

    /// Whether it has overrun.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.indices.lock().cq.give(self.index);
        self.device.fall(queue(0));
    }
}
