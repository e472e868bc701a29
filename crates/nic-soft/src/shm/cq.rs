//! Data path: completion. Completion queues: from the engines (here and in peers) to whoever polls.
//!
//! Completions of send requests come from this process's own posting threads, through a ring under a lock.
//! Completions of receives are written by peers, each into the ring of its queue pair, so that a peer which
//! dies in the middle has published nothing and hinders nobody. Polling looks at both.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use host::Wake;
use verbs::provider::{CompChannelOps, CqOps};
use verbs::{AsyncEvent, Error, Result, Wc};

use super::device::Inner;
use super::doorbell::{Doorbell, Rung, ring};
use super::layout::{CHANNEL_MAX, CQ_MAX, ChannelShared, CqShared, channel_at, cq_at};
use super::qp::QpInner;
use super::segment::Ref;
use crate::sync::Spin;
use crate::sync::ready::Ready;
use crate::sync::roll::Workplace;
use crate::tide::queue;

/// Queue pairs that a poll looks at one by one; beyond that peers mark the ones that have something.
const FEW: usize = 8;

const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// The completion of a send request, with where it was posted.
pub(super) struct SendDone {
    pub(super) wc: Wc,
    /// The queue pair's place among those attached here.
    pub(super) seat: usize,
    /// How many requests of its queue are done with it.
    pub(super) upto: u64,
}

/// What polling works on.
#[derive(Default)]
pub(super) struct PollSide {
    /// Queue pairs whose send requests complete here, by seat.
    senders: Vec<Option<Arc<QpInner>>>,
    /// Seats that nobody has.
    free: Vec<usize>,
    /// Queue pairs whose receives complete here, by their index.
    receivers: Vec<Arc<QpInner>>,
    /// Where the next look begins, so that none is starved.
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
        let new = qp.count_arrivals();
        self.arrived += new;
        if new == 0 && qp.failure.load(Ordering::Relaxed) == 0 {
            // Taken before it was said.
            return;
        }
        if !qp.is_due.load(Ordering::Relaxed) {
            qp.is_due.store(true, Ordering::Relaxed);
            self.due.push_back(index);
        }
    }

    /// From now on peers say which queue pairs have something; one of them has come now.
    fn grow(&mut self, qp: &Arc<QpInner>) {
        if self.places.len() <= qp.index {
            self.places.resize(qp.index + 1, None);
        }
        self.places[qp.index] = Some(qp.clone());
        self.report(qp.index);
    }
}

/// A completion queue.
pub(super) struct CqInner {
    pub(super) device: Arc<Inner>,
    pub(super) index: usize,
    cqe: u32,
    pub(super) shared: Ref<CqShared>,
    pub(super) channel: Option<Arc<ChannelInner>>,
    local: Spin<VecDeque<SendDone>>,
    local_len: AtomicUsize,
    pub(super) poll: Workplace<PollSide>,
    /// Events that the program has asked for and not got: however many a peer announces, there are no more.
    owed: AtomicU64,
    /// Sum of what may be outstanding; more than `cqe` means that overrunning is possible.
    demand: AtomicU32,
    dead: AtomicBool,
    /// There are too many queue pairs to look at each: peers say which ones have something. Once so, always so.
    has_many: AtomicBool,
    /// Queue pairs with send requests that wait, by seat; they are driven by whoever polls.
    pub(super) stalled: Ready,
}

impl CqInner {
    pub(super) fn create(
        device: &Arc<Inner>,
        cqe: u32,
        channel: Option<Arc<ChannelInner>>,
    ) -> Result<Arc<Self>> {
        let index = device.indices.lock().cq.take("completion queues", CQ_MAX)?;
        let shared: Ref<CqShared> = Ref::new(&device.segment.map, cq_at(index))?;
        shared.armed.store(0, Ordering::Relaxed);
        shared.events.store(0, Ordering::Relaxed);
        shared.many.store(0, Ordering::Relaxed);
        shared.knock.reset();
        shared.channel.store(channel.as_ref().map_or(0, |c| c.index as u32 + 1), Ordering::Relaxed);
        let cq = Arc::new(Self {
            device: device.clone(),
            index,
            cqe,
            shared,
            channel,
            local: Spin::new(VecDeque::new()),
            local_len: AtomicUsize::new(0),
            poll: Workplace::default(),
            owed: AtomicU64::new(0),
            demand: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            has_many: AtomicBool::new(false),
            stalled: Ready::new(),
        });
        // Its entries are counted with the queue pairs that make room for them.
        device.tide.rise(queue(0));
        device.register_cq(&cq);
        Ok(cq)
    }

    /// So many more may be outstanding.
    fn want(self: &Arc<Self>, depth: u32) {
        let before = self.demand.fetch_add(depth, Ordering::Relaxed);
        if before <= self.cqe && before + depth > self.cqe {
            self.device.watch_for_overrun(self);
        }
    }

    /// Takes a queue pair's send side in: its seat.
    pub(super) fn attach_sender(self: &Arc<Self>, qp: &Arc<QpInner>, depth: u32) -> usize {
        self.want(depth);
        let mut side = self.poll.lock();
        // Room for everything that may complete, so that completing never allocates; more than the entries is an overrun.
        let wanted = self.demand.load(Ordering::Relaxed).min(self.cqe) as usize;
        let mut local = self.local.lock();
        let more = wanted.saturating_sub(local.len());
        local.reserve(more);
        drop(local);
        let seat = side.free.pop().unwrap_or_else(|| {
            side.senders.push(None);
            side.senders.len() - 1
        });
        side.senders[seat] = Some(qp.clone());
        seat
    }

    /// Takes a queue pair's receive side in.
    pub(super) fn attach_receiver(self: &Arc<Self>, qp: &Arc<QpInner>, depth: u32) {
        self.want(depth);
        let mut side = self.poll.lock();
        let at = side.receivers.partition_point(|other| other.index < qp.index);
        side.receivers.insert(at, qp.clone());
        if self.has_many.load(Ordering::Relaxed) {
            side.grow(qp);
        } else if side.receivers.len() > FEW {
            self.has_many.store(true, Ordering::Relaxed);
            self.shared.many.store(1, Ordering::SeqCst);
            // Peers publish first and look at `many` afterwards; whoever looked too early is found by this.
            crate::sync::fence::heavy();
            let all = side.receivers.clone();
            all.iter().for_each(|qp| side.grow(qp));
        }
    }

    /// Forgets a queue pair and its completions.
    pub(super) fn detach(&self, qp: &Arc<QpInner>, seat: Option<usize>, depth: u32) {
        self.demand.fetch_sub(depth, Ordering::Relaxed);
        let mut side = self.poll.lock();
        match seat {
            Some(seat) => {
                side.senders[seat] = None;
                side.free.push(seat);
                let mut local = self.local.lock();
                local.retain(|done| done.seat != seat);
                self.local_len.store(local.len(), Ordering::Release);
            }
            None => {
                if let Ok(at) = side.receivers.binary_search_by_key(&qp.index, |other| other.index) {
                    side.receivers.remove(at);
                }
                if let Some(place) = side.places.get_mut(qp.index) {
                    *place = None;
                }
                if qp.is_due.swap(false, Ordering::Relaxed) {
                    side.due.retain(|other| *other != qp.index);
                }
                side.arrived -= qp.counted_arrivals();
            }
        }
    }

    /// The completion of a send request of this process.
    #[inline]
    pub(super) fn push(&self, done: SendDone, solicited: bool) {
        let mut local = self.local.lock();
        if local.len() >= self.cqe as usize {
            drop(local);
            self.overrun();
            return;
        }
        local.push_back(done);
        self.local_len.store(local.len(), Ordering::Release);
        drop(local);
        self.notify(solicited);
    }

    /// Tells sleepers and the channel that something was published here by this process.
    #[inline]
    pub(super) fn notify(&self, solicited: bool) {
        // Pairs with the fences of the bell's sleeper and of `req_notify`: the looks at both must not move before what was
        // published.
        fence(Ordering::SeqCst);
        let channel = self.channel.as_ref().map(|c| (&*c.shared, c.doorbell.button()));
        announce(&self.shared, &self.device.header.reporting, self.index, channel, solicited);
    }

    /// Wakes everybody: something changed that is no single completion.
    pub(super) fn alarm(&self, qp_index: usize) {
        self.shared.ready.add(qp_index);
        self.notify(true);
    }

    /// An event, armed or not: an arming may have died with a peer.
    pub(super) fn force_event(&self) {
        if let Some(channel) = &self.channel {
            self.owed.fetch_add(1, Ordering::AcqRel);
            self.shared.events.fetch_add(1, Ordering::AcqRel);
            self.device.header.reporting.add(self.index);
            raise(&channel.shared, channel.doorbell.button());
        }
    }

    /// Whether there is an event to fetch.
    fn has_event(&self) -> bool {
        self.shared.events.load(Ordering::Acquire) > 0 && self.owed.load(Ordering::Acquire) > 0
    }

    /// Fetches an event; false if there is none.
    fn take_event(&self) -> bool {
        let one_less = |n: u32| n.checked_sub(1);
        self.shared.events.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
            && self.owed.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    #[inline]
    fn poll_sends(&self, side: &PollSide, wcs: &mut [Wc]) -> usize {
        if self.local_len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut local = self.local.lock();
        let count = wcs.len().min(local.len());
        for (wc, done) in wcs.iter_mut().zip(local.drain(..count)) {
            if let Some(qp) = side.senders.get(done.seat).and_then(Option::as_ref) {
                qp.reclaim(done.upto);
            }
            *wc = done.wc;
        }
        self.local_len.store(local.len(), Ordering::Release);
        count
    }

    #[inline]
    fn poll_receives(&self, side: &mut PollSide, wcs: &mut [Wc]) -> usize {
        if self.has_many.load(Ordering::Relaxed) {
            return Self::poll_due(side, wcs);
        }
        let count = side.receivers.len();
        let mut got = 0;
        for step in 0..count {
            let i = (side.turn + step) % count;
            got += side.receivers[i].poll_receives(&mut wcs[got..]);
            if got == wcs.len() {
                side.turn = i;
                return got;
            }
        }
        side.turn = if count > 0 { (side.turn + 1) % count } else { 0 };
        got
    }

    fn poll_due(side: &mut PollSide, wcs: &mut [Wc]) -> usize {
        let PollSide { due, places, arrived, recent, .. } = side;
        let mut got = 0;
        if due.is_empty() && !wcs.is_empty() {
            due.extend(*recent);
        }
        while got < wcs.len()
            && let Some(index) = due.pop_front()
        {
            let Some(qp) = places.get(index).and_then(Option::as_ref) else { continue };
            let counted = qp.counted_arrivals();
            let n = qp.poll_receives(&mut wcs[got..]);
            let left = qp.counted_arrivals();
            *arrived -= counted - left;
            got += n;
            if n > 0 {
                *recent = Some(index);
            }
            if n > 0 && (left > 0 || qp.failure.load(Ordering::Relaxed) != 0) {
                // It has more, or something to flush; others get their turn first. What comes later is reported.
                due.push_back(index);
            } else {
                qp.is_due.store(false, Ordering::Relaxed);
            }
        }
        got
    }

    /// Among many: hears who has reported something.
    #[inline]
    fn hear_reports(&self, side: &mut PollSide) {
        if self.has_many.load(Ordering::Relaxed) && self.shared.ready.any() {
            self.shared.ready.take(|index| side.report(index));
        }
    }

    /// Overrun: more completions wait than the queue has entries (IBA 11.6.3.1).
    fn check_overrun(&self, side: &PollSide) -> bool {
        if self.demand.load(Ordering::Relaxed) <= self.cqe {
            return false;
        }
        // Among many, those that have something have said so; otherwise they are looked at.
        let few = if self.has_many.load(Ordering::Relaxed) { &[][..] } else { &side.receivers };
        let received = side.arrived + few.iter().map(|qp| qp.waiting_receives()).sum::<usize>();
        self.local_len.load(Ordering::Acquire) + received > self.cqe as usize
    }

    /// Finds an overrun that nobody has polled for.
    pub(super) fn look_for_overrun(&self) {
        let mut side = self.poll.lock();
        self.hear_reports(&mut side);
        let overran = self.check_overrun(&side);
        drop(side);
        if overran {
            self.overrun();
        }
    }

    #[cold]
    fn overrun(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            self.device.async_event(AsyncEvent::CqError { cq: self.index as u32 });
            self.device.condemn_users_of(self.index);
            self.notify(true);
        }
    }

    /// The queue pairs attached here; for failing them all.
    pub(super) fn users(&self) -> Vec<Arc<QpInner>> {
        let side = self.poll.lock();
        side.senders.iter().flatten().chain(&side.receivers).cloned().collect()
    }

    #[cold]
    fn drive_stalled(&self) {
        for seat in self.stalled.taken() {
            let sender = self.poll.lock().senders.get(seat).cloned().flatten();
            // It reports failures, which takes the lock.
            sender.iter().for_each(|qp| qp.progress());
            if sender.is_some_and(|qp| qp.is_stalled()) {
                self.stalled.add(seat);
            }
        }
    }
}

impl CqOps for CqInner {
    fn id(&self) -> u32 {
        self.index as u32
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.device.birth.check()?;
        if self.dead.load(Ordering::Relaxed) {
            return Err(Error::CqOverrun { cqe: self.cqe });
        }
        if self.stalled.any() {
            self.drive_stalled();
        }
        let mut side = self.poll.enter(|| self.device.visits.pollers.add(self.index));
        self.hear_reports(&mut side);
        if self.check_overrun(&side) {
            drop(side);
            self.overrun();
            return Err(Error::CqOverrun { cqe: self.cqe });
        }
        let sends = self.poll_sends(&side, wcs);
        let receives = self.poll_receives(&mut side, &mut wcs[sends..]);
        drop(side);
        if self.device.has_failures() {
            self.device.settle_failures();
        }
        Ok(sends + receives)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.device.birth.check()?;
        if self.channel.is_none() {
            return Err(Error::Invalid("the completion queue has no channel to report to".into()));
        }
        self.owed.fetch_add(1, Ordering::AcqRel);
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.shared.armed.fetch_max(kind, Ordering::SeqCst);
        // Pairs with the fences of `notify` and of a peer's publication: the next poll must not move before the arming.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        let wake = Wake::by(&self.shared.bell);
        self.shared.knock.settle();
        wake
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.forget_cq(self.index);
        self.device.fall(queue(0));
    }
}

/// After publishing and a full fence: wakes who sleeps on a completion queue, raises an event if it is armed.
#[inline]
pub(super) fn announce(
    cq: &CqShared,
    reporting: &Ready,
    index: usize,
    channel: Option<(&ChannelShared, BorrowedFd<'_>)>,
    solicited: bool,
) {
    cq.bell.ring_after_fence();
    let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
    let armed = cq.armed.load(Ordering::Relaxed);
    if armed >= wanted
        && cq.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && let Some((shared, fd)) = channel
    {
        cq.events.fetch_add(1, Ordering::AcqRel);
        reporting.add(index);
        raise(shared, fd);
    }
}

fn raise(channel: &ChannelShared, fd: BorrowedFd<'_>) {
    ring(fd);
    channel.bell.ring();
}

/// A completion channel: a doorbell, which peers hold the button of.
pub(super) struct ChannelInner {
    device: Arc<Inner>,
    pub(super) index: usize,
    pub(super) doorbell: Doorbell,
    pub(super) shared: Ref<ChannelShared>,
}

impl ChannelInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        let doorbell = Doorbell::new()?;
        let index = device.indices.lock().channel.take("completion channels", CHANNEL_MAX)?;
        let shared = Ref::new(&device.segment.map, channel_at(index))?;
        Ok(Arc::new(Self { device: device.clone(), index, doorbell, shared }))
    }

    /// Fetches an event of one of these queues; whoever else has one is named, and this channel rung, again.
    fn take_event_of(&self, cqs: impl Iterator<Item = Arc<CqInner>>) -> Option<u32> {
        let mut found = None;
        for cq in cqs {
            let is_mine = cq.channel.as_ref().is_some_and(|c| c.index == self.index);
            if is_mine && found.is_none() && cq.take_event() {
                found = Some(cq.index as u32);
            }
            if cq.has_event() {
                self.device.header.reporting.add(cq.index);
                if is_mine {
                    // All rings were taken back, of one event of maybe several.
                    ring(self.doorbell.button());
                }
            }
        }
        found
    }
}

impl CompChannelOps for ChannelInner {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.ear())
    }

    fn poll_event(&self) -> Option<u32> {
        self.device.birth.check().ok()?;
        if self.doorbell.take() == Rung::No {
            return None;
        }
        // One at a time: what is not this channel's is out of the set for a moment.
        let _hearing = self.device.hearing.lock();
        let reporting = &self.device.header.reporting;
        let mut found = self.take_event_of(reporting.taken().filter_map(|index| self.device.cq(index)));
        if found.is_none() {
            // Whoever rang is wrong about its name, or another has taken that back.
            found = self.take_event_of(self.device.live_cqs().into_iter());
        }
        found
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.shared.bell)
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.indices.lock().channel.give(self.index);
    }
}

#[cfg(test)]
mod tests {
    use verbs::provider::own;

    use super::*;

    /// Goal: fetching an event costs the queues that have one, however many there are; no event is lost if a name is. Method:
    /// queues that have events in secret are found when nobody has said a name, and not before.
    #[test]
    fn a_channel_asks_those_who_have_reported() {
        let device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let channel = device.create_comp_channel().expect("a channel");
        let other = device.create_comp_channel().expect("another");
        let cqs: Vec<_> = (0..100)
            .map(|i| device.create_cq_with(4, if i == 50 { &other } else { &channel }).expect("a queue"))
            .collect();
        let inner = |i: usize| -> Arc<CqInner> { own(cqs[i].ops().clone(), "the queue").expect("ours") };
        let event = |i: usize| {
            inner(i).owed.fetch_add(1, Ordering::Relaxed);
            inner(i).shared.events.fetch_add(1, Ordering::Relaxed);
        };
        [3, 4].into_iter().for_each(event);
        [7, 50, 70, 70].into_iter().for_each(|i| inner(i).force_event());
        let next = || channel.poll_event().map(|id| id as usize);
        let id = |i: usize| inner(i).index;
        assert_eq!([next(), next(), next()], [Some(id(7)), Some(id(70)), Some(id(70))]);
        assert_eq!(other.poll_event().map(|id| id as usize), Some(id(50)));
        assert_eq!(next(), None, "nobody has rung");
        ring(inner(3).channel.as_ref().expect("one").doorbell.button());
        assert_eq!([next(), next(), next()], [Some(id(3)), Some(id(4)), None]);
    }

    /// Goal: nothing stays of a queue that has been dropped: a weak handle keeps the memory. Method: the device's list is as long
    /// as before.
    #[test]
    fn a_dropped_queue_leaves_nothing_behind() {
        let device = super::super::open(&host::real::host(), &Default::default()).expect("a device");
        let one = device.create_cq(64).expect("a queue");
        let inner: Arc<CqInner> = own(one.ops().clone(), "the queue").expect("ours");
        let listed = || inner.device.cqs.read().expect("unpoisoned").len();
        let before = listed();
        let more: Vec<_> = (0..100).map(|_| device.create_cq(16).expect("a queue")).collect();
        assert_eq!(listed(), before + 100);
        drop(more);
        assert_eq!(listed(), before);
    }
}
