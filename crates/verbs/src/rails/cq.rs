//! Completion queues: what the rails' queues hold, sorted into the order of each queue pair's requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use host::{Bell, Lock, Wake};

use super::channel::ChannelInner;
use super::device::Inner;
use super::known::Known;
use super::lock::unpoisoned;
use super::qp::QpInner;
use super::wants::Wants;
use crate::provider::CqOps;
use crate::{AsyncEvent, Cq, Error, Result, Wc, WcOpcode};

/// Completions that one look takes from a rail.
const BATCH: usize = 16;

/// A rail on which nothing is to complete is looked at once in so many times.
const IDLE_TURNS: u32 = 64;

/// A completion, with the slots of its queue pair that polling it gives back.
#[derive(Clone, Copy)]
struct Item {
    wc: Wc,
    sends: u32,
    receives: u32,
}

/// What the program asked to be told.
#[derive(Clone, Copy)]
struct Armed {
    solicited_only: bool,
    /// How many completions there had been.
    at: u64,
}

/// Completions that nobody has been given at once.
struct Ring {
    items: VecDeque<Item>,
    pushed: u64,
    overrun: bool,
    armed: Option<Armed>,
    /// How many completions there may be at a time, as queue pairs are deep.
    demand: u32,
}

/// The queue on a rail.
struct OfRail {
    cq: Cq,
    /// Who takes completions from it has this: one at a time, so that order is kept.
    known: Lock<Known<QpInner>>,
    /// Lanes that have something to complete: where there are none, looks are rare.
    expected: AtomicU32,
}

pub(super) struct CqInner {
    device: Arc<Inner>,
    pub(super) id: u32,
    cqe: u32,
    of_rails: Vec<OfRail>,
    turn: AtomicU32,
    /// The rail that is looked at first.
    first: AtomicUsize,
    /// Somebody looks at what has been reported; the next completion is to be told of.
    telling: AtomicBool,
    owes: AtomicBool,
    /// Somebody else wanted to, and in virtual time may sleep until there is news.
    missed: AtomicBool,
    /// A connection that completes here has ended: its program may look here until there is nothing, and never again.
    saw_an_end: AtomicBool,
    /// A rail has reported, and nobody has looked yet whether that is the program's business.
    reported: AtomicBool,
    ring: Mutex<Ring>,
    /// Completions go through the ring, whoever polls: some are in it, or the program has asked to be told of them, or there may
    /// be more than the queue has room for.
    by_ring: AtomicBool,
    bell: Bell,
    /// The rails' queues are armed for somebody who sleeps on the bell.
    watched: AtomicBool,
    channel: Option<Arc<ChannelInner>>,
}

impl CqInner {
    pub(super) fn create(
        device: &Arc<Inner>,
        cqe: u32,
        channel: Option<Arc<ChannelInner>>,
    ) -> Result<Arc<Self>> {
        let of_rail = |(rail, channel): (&crate::Device, &Option<crate::CompChannel>)| {
            // Each request of a rail completes here, signalled or not, and some are the device's own.
            let room = cqe.saturating_mul(2).max(1 << 15).min(rail.attr().max_cqe);
            let cq = match channel {
                Some(channel) => rail.create_cq_with(room, channel),
                None => rail.create_cq(room),
            };
            cq.map(|cq| OfRail { cq, known: Lock::new(Known::new()), expected: AtomicU32::new(0) })
        };
        let of_rails = device.rails.iter().zip(&device.channels).map(of_rail).collect::<Result<_>>()?;
        let items = VecDeque::with_capacity(cqe.min(4096) as usize);
        let cq = Arc::new(Self {
            device: device.clone(),
            id: device.fresh(),
            cqe,
            of_rails,
            turn: AtomicU32::new(0),
            first: AtomicUsize::new(0),
            telling: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            saw_an_end: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            ring: Mutex::new(Ring { items, pushed: 0, overrun: false, armed: None, demand: 0 }),
            by_ring: AtomicBool::new(false),
            bell: Bell::new(),
            watched: AtomicBool::new(false),
            channel,
        });
        device.add_cq(&cq);
        Ok(cq)
    }

    /// The queue on a rail.
    pub(super) fn on(&self, rail: usize) -> &Cq {
        &self.of_rails[rail].cq
    }

    pub(super) fn lane_ids(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.of_rails.iter().enumerate().map(|(rail, of_rail)| (rail, of_rail.cq.id()))
    }

    /// Works on the ring, and sees afterwards whether completions are to go through it.
    fn with_ring<R>(&self, work: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = unpoisoned(&self.ring);
        let result = work(&mut ring);
        let by_ring =
            !ring.items.is_empty() || ring.armed.is_some() || ring.overrun || ring.demand > self.cqe;
        self.by_ring.store(by_ring, Ordering::Release);
        result
    }

    /// A queue pair may have so many completions at a time.
    pub(super) fn want(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_add(depth));
    }

    /// A queue pair that could has gone.
    pub(super) fn want_no_more(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_sub(depth));
    }

    /// Takes what the rails have into the ring. If somebody else does, that is as good: who takes looks at reports afterwards.
    /// Whether it was only this side that took: otherwise others may hold completions that are not in the ring yet.
    pub(super) fn progress(&self) -> bool {
        self.progress_into(&mut Sink::ring(self))
    }

    fn progress_into(&self, sink: &mut Sink<'_>) -> bool {
        let alone = self.take_from_rails(sink);
        self.tell_of_reports();
        alone
    }

    /// There is nothing in the ring, and somebody else takes from a rail: waits for what that brings, so that whoever is told
    /// that there is nothing can rely on it. Others hold no more than a batch at a time, and wait for nobody who polls.
    #[cold]
    fn wait_for_others(&self) {
        let look = || (self.progress() || !unpoisoned(&self.ring).items.is_empty()).then_some(());
        // None is the end of the world.
        let _ = self.device.host.poll("completions that another thread takes", None, look);
    }

    /// Takes what is in the ring.
    fn poll_ring(&self, wcs: &mut [Wc]) -> Result<usize> {
        let mut given_back = [(0, 0, 0); BATCH];
        let mut taken = 0;
        while taken < wcs.len() {
            let some = self.with_ring(|ring| {
                if ring.overrun {
                    return Err(Error::CqOverrun { cqe: self.cqe });
                }
                let some = (wcs.len() - taken).min(BATCH).min(ring.items.len());
                let places = given_back.iter_mut().zip(&mut wcs[taken..]);
                for ((place, wc), item) in places.zip(ring.items.drain(..some)) {
                    *wc = item.wc;
                    *place = (item.wc.qp_num, item.sends, item.receives);
                }
                Ok(some)
            })?;
            for &(num, sends, receives) in &given_back[..some] {
                if let Some(qp) = self.device.qp(num) {
                    qp.give_back(sends, receives);
                }
            }
            taken += some;
            if some == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// A connection that completes here has ended.
    pub(super) fn sees_an_end(&self) {
        self.saw_an_end.store(true, Ordering::Release);
    }

    /// Passes on what rails have reported, if that is the program's business.
    pub(super) fn tell_of_reports(&self) {
        while self.reported.load(Ordering::SeqCst) && !self.telling.swap(true, Ordering::SeqCst) {
            if self.reported.swap(false, Ordering::SeqCst) && !self.tell() {
                // It was a stripe, or a request of the device's own: the program's completion is still to come, or came
                // before the queues were armed again.
                // Or somebody else has it in hand, and looks here afterwards.
                self.arm_rails(false);
                self.owes.store(true, Ordering::SeqCst);
                // Whoever holds completions of a rail lets go of them, and looks whether something is owed.
                fence(Ordering::SeqCst);
                self.take_from_rails(&mut Sink::ring(self));
                if self.tell() {
                    self.owes.store(false, Ordering::SeqCst);
                }
            }
            self.telling.store(false, Ordering::SeqCst);
        }
    }

    /// Whether nobody else was taking from one of them.
    fn take_from_rails(&self, sink: &mut Sink<'_>) -> bool {
        // In real time, who polls helps: a thread that is awake need not have a core. In virtual time, only who must.
        let polled_by_threads = !self.device.workers.is_empty()
            && self.device.host.node().is_some()
            && !self.saw_an_end.load(Ordering::Acquire);
        let mut alone = true;
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        let (first, count) = (self.first.load(Ordering::Relaxed), self.of_rails.len());
        for rail in (first..count).chain(0..first) {
            let expected = self.of_rails[rail].expected.load(Ordering::Acquire);
            // Whoever sees that nothing is expected sees all that was in the ring.
            let idle = expected == 0 && !turn.is_multiple_of(IDLE_TURNS);
            if !idle && !polled_by_threads {
                alone &= self.take_from_rail(rail, sink).is_some();
            }
            if sink.is_full() {
                // The others come first the next time.
                self.first.store((rail + 1) % count, Ordering::Relaxed);
                break;
            }
        }
        alone
    }

    /// A lane more has something to complete on a rail.
    pub(super) fn expect(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_add(1, Ordering::Relaxed);
    }

    /// All that a lane had has completed, and is in the ring or taken; or it will not complete.
    pub(super) fn expect_no_more(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_sub(1, Ordering::Release);
    }

    /// Takes what a rail has; whether that was anything. `None` if somebody else takes from it.
    pub(super) fn take_from_rail(&self, rail: usize, sink: &mut Sink<'_>) -> Option<bool> {
        let mut any = false;
        // Once more if somebody has been waiting for this side to look: what came last may not have been seen.
        for _ in 0..2 {
            let Some(mut known) = self.of_rails[rail].known.try_lock(&self.device.host) else {
                self.missed.store(true, Ordering::Relaxed);
                return None;
            };
            let mut asked = Vec::new();
            any |= match sink.room() {
                1 => self.take_all::<1>(rail, &mut known, sink, &mut asked),
                _ => self.take_all::<BATCH>(rail, &mut known, sink, &mut asked),
            };
            drop(known);
            asked.into_iter().for_each(|(qp, wants): (Arc<QpInner>, Wants)| qp.grant(rail, wants));
            if any || self.channel.is_none() {
                break;
            }
            // Either this side sees that something is owed, or who owes it has found the rail free.
            fence(Ordering::SeqCst);
            if !self.owes.load(Ordering::SeqCst) {
                break;
            }
        }
        if any && self.owes.load(Ordering::SeqCst) && self.owes.swap(false, Ordering::SeqCst) {
            self.reported.store(true, Ordering::SeqCst);
        }
        // It matters in virtual time only, where one thing happens at a time.
        let missed = self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed);
        if missed || (any && !self.device.workers.is_empty()) {
            self.device.host.signal();
        }
        Some(any)
    }

    /// Takes until there is nothing, or no room for more, at most `N` at a time. What queue pairs ask for is for when the rail is
    /// free again.
    fn take_all<const N: usize>(
        &self,
        rail: usize,
        known: &mut Known<QpInner>,
        sink: &mut Sink<'_>,
        asked: &mut Vec<(Arc<QpInner>, Wants)>,
    ) -> bool {
        let (mut wcs, mut any) = ([Wc::default(); N], false);
        while !sink.is_full() {
            let most = sink.room().min(N);
            // A rail's queue that overran has failed its queue pairs, which is noticed by their state.
            let count = self.of_rails[rail].cq.poll(&mut wcs[..most]).unwrap_or(0);
            any |= count > 0;
            for wc in &wcs[..count] {
                let (num, changes) = (wc.qp_num, self.device.lanes_forgotten());
                // A queue pair that has gone completes nothing, and took what it expected along.
                let Some(qp) = known.find(num, changes, || self.device.qp_of_lane(rail, num)) else {
                    continue;
                };
                let wants = match wc.opcode {
                    WcOpcode::Recv | WcOpcode::RecvWriteImm => qp.on_received(rail, wc, sink),
                    _ => qp.on_sent(rail, wc, sink),
                };
                if wants != Wants::default() {
                    asked.push((qp, wants));
                }
            }
            if count < most {
                break;
            }
        }
        any
    }

    /// A completion for the program, which gives back slots when it is polled.
    fn push(&self, wc: Wc, sends: u32, receives: u32) {
        let (overruns, failed) = self.with_ring(|ring| {
            let overruns = !ring.overrun && ring.items.len() as u32 >= self.cqe;
            ring.overrun |= overruns;
            if ring.overrun {
                return (overruns, false);
            }
            ring.items.push_back(Item { wc, sends, receives });
            ring.pushed += 1;
            // Successes are announced by the rail's own report; failures may come without one.
            (false, !wc.is_ok() && ring.armed.take().is_some())
        });
        if overruns {
            return self.tell_of_overrun();
        }
        if failed {
            self.report();
        }
        self.device.host.ring(&self.bell);
    }

    /// Tells the program that something has completed.
    fn report(&self) {
        if let Some(channel) = &self.channel {
            channel.report(self.id);
        }
    }

    /// A rail says that this queue overran there.
    pub(super) fn overrun(&self) {
        if !self.with_ring(|ring| std::mem::replace(&mut ring.overrun, true)) {
            self.tell_of_overrun();
        }
    }

    fn tell_of_overrun(&self) {
        self.device.async_event(AsyncEvent::CqError { cq: self.id });
        self.device.host.ring(&self.bell);
        self.device.service.wake();
    }

    pub(super) fn has_overrun(&self) -> bool {
        unpoisoned(&self.ring).overrun
    }

    /// A rail's queue has reported a completion.
    pub(super) fn on_report(&self) {
        self.watched.store(false, Ordering::Relaxed);
        self.reported.store(true, Ordering::SeqCst);
        self.progress();
        if self.bell.is_awaited() {
            // What it was about may not have been what the sleeper waits for.
            self.watch();
        }
    }

    /// Tells the program, if a rail's report was what it asked for. False when it waits for more.
    fn tell(&self) -> bool {
        let (is_armed, due) = self.with_ring(|ring| {
            let is_armed = ring.armed.is_some();
            let due = |armed: &mut Armed| armed.solicited_only || ring.pushed != armed.at;
            (is_armed, ring.armed.take_if(due).is_some())
        });
        if due {
            self.report();
        }
        due || !is_armed
    }

    /// Completions came about without a rail's report.
    pub(super) fn announce(&self) {
        let due = self.with_ring(|ring| {
            let due = |armed: &mut Armed| !armed.solicited_only && ring.pushed != armed.at;
            ring.armed.take_if(due).is_some()
        });
        if due {
            self.report();
        }
    }

    fn arm_rails(&self, solicited_only: bool) {
        for (of_rail, channel) in self.of_rails.iter().zip(&self.device.channels) {
            if channel.is_some() {
                // It has a channel, which is all that arming needs.
                let _ = of_rail.cq.req_notify(solicited_only);
            }
        }
    }

    /// Has the service look after the rails' queues, for somebody who is about to sleep, or for requests that wait for
    /// completions of others.
    pub(super) fn watch(&self) {
        if !self.watched.swap(true, Ordering::Relaxed) {
            self.arm_rails(false);
            // What came before the arming is not reported.
            self.progress();
        }
    }
}

/// Where completions go: to whoever polls, for as long as nothing stands before them, else into the ring.
pub(super) struct Sink<'a> {
    cq: &'a CqInner,
    wcs: &'a mut [Wc],
    given: usize,
}

impl<'a> Sink<'a> {
    /// All of them into the ring.
    pub(super) fn ring(cq: &'a CqInner) -> Self {
        Self { cq, wcs: &mut [], given: 0 }
    }

    /// How many can be taken from a rail: as many as whoever polls has room for, so that few need the ring.
    fn room(&self) -> usize {
        if self.wcs.is_empty() { usize::MAX } else { self.wcs.len() - self.given }
    }

    fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// A completion for the program, with so many slots of its queue pair that polling it gives back. Whether it has been polled.
    /// Called with the queue pair's half locked: who gave its last one into the ring has said so before that.
    #[inline]
    pub(super) fn give(&mut self, wc: Wc, sends: u32, receives: u32) -> bool {
        if self.given < self.wcs.len() && !self.cq.by_ring.load(Ordering::Acquire) {
            self.wcs[self.given] = wc;
            self.given += 1;
            return true;
        }
        self.cq.push(wc, sends, receives);
        false
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.device.forget_cq(self);
    }
}

impl CqOps for CqInner {
    fn id(&self) -> u32 {
        self.id
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.device.check()?;
        if self.bell.is_awaited() {
            self.watch();
        }
        let by_ring = self.by_ring.load(Ordering::Acquire);
        let room: &mut [Wc] = if by_ring { &mut [] } else { &mut *wcs };
        let mut sink = Sink { cq: self, wcs: room, given: 0 };
        let alone = self.progress_into(&mut sink);
        let mut taken = sink.given;
        if self.by_ring.load(Ordering::Acquire) {
            // What has been taken is given out before it is said that there is no more.
            taken += self.poll_ring(&mut wcs[taken..]).or_else(|e| if taken > 0 { Ok(0) } else { Err(e) })?;
        }
        if taken == 0 && !alone {
            self.wait_for_others();
            taken = self.poll_ring(wcs)?;
        }
        if taken > 0 {
            // There may be more, of which others that wait have been told before.
            self.device.host.signal();
        }
        Ok(taken)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        if self.channel.is_none() {
            return Err(Error::Invalid("the completion queue has no channel; create it with one".into()));
        }
        self.progress();
        let solicited_only = self.with_ring(|ring| {
            // Arming for any overrides arming for solicited ones (IBA 11.4.2.2).
            let solicited_only = solicited_only && ring.armed.is_none_or(|armed| armed.solicited_only);
            ring.armed = Some(Armed { solicited_only, at: ring.pushed });
            solicited_only
        });
        self.arm_rails(solicited_only);
        self.progress();
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
    }
}
