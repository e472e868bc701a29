//! Completion queues: what the rails' queues hold, sorted into the order of each queue pair's requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{Bell, Wake};

use super::RAILS_MAX;
use super::channel::ChannelInner;
use super::device::{Inner, unpoisoned};
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

struct Ring {
    items: VecDeque<Item>,
    pushed: u64,
    overrun: bool,
    armed: Option<Armed>,
}

pub(super) struct CqInner {
    device: Arc<Inner>,
    pub(super) id: u32,
    cqe: u32,
    /// One on each rail.
    of_rails: Vec<Cq>,
    /// Somebody takes completions from a rail: who must be one at a time on each, so that order is kept.
    taken: [AtomicBool; RAILS_MAX],
    /// Requests that have not completed, by rail: where there are none, looks are rare.
    expected: [AtomicU32; RAILS_MAX],
    turn: AtomicU32,
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
            match channel {
                Some(channel) => rail.create_cq_with(room, channel),
                None => rail.create_cq(room),
            }
        };
        let of_rails = device.rails.iter().zip(&device.channels).map(of_rail).collect::<Result<_>>()?;
        let items = VecDeque::with_capacity(cqe.min(4096) as usize);
        let cq = Arc::new(Self {
            device: device.clone(),
            id: device.fresh(),
            cqe,
            of_rails,
            taken: [const { AtomicBool::new(false) }; RAILS_MAX],
            expected: [const { AtomicU32::new(0) }; RAILS_MAX],
            turn: AtomicU32::new(0),
            telling: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            saw_an_end: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            ring: Mutex::new(Ring { items, pushed: 0, overrun: false, armed: None }),
            bell: Bell::new(),
            watched: AtomicBool::new(false),
            channel,
        });
        device.add_cq(&cq);
        Ok(cq)
    }

    /// The queue on a rail.
    pub(super) fn on(&self, rail: usize) -> &Cq {
        &self.of_rails[rail]
    }

    pub(super) fn lane_ids(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.of_rails.iter().enumerate().map(|(rail, cq)| (rail, cq.id()))
    }

    /// Takes what the rails have. If somebody else does, that is as good: who takes looks at reports afterwards. Whether it
    /// was only this side that took: otherwise others may hold completions that are not in the ring yet.
    pub(super) fn progress(&self) -> bool {
        let alone = self.take_from_rails();
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
                self.take_from_rails();
                if self.tell() {
                    self.owes.store(false, Ordering::SeqCst);
                }
            }
            self.telling.store(false, Ordering::SeqCst);
        }
    }

    /// Whether nobody else was taking from one of them.
    fn take_from_rails(&self) -> bool {
        // In real time, who polls helps: a thread that is awake need not have a core. In virtual time, only who must.
        let polled_by_threads = !self.device.workers.is_empty()
            && self.device.host.node().is_some()
            && !self.saw_an_end.load(Ordering::Acquire);
        let mut alone = true;
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        for rail in 0..self.of_rails.len() {
            // Whoever sees that nothing is expected sees all that was in the ring.
            let idle = self.expected[rail].load(Ordering::Acquire) == 0 && !turn.is_multiple_of(IDLE_TURNS);
            if !idle && !polled_by_threads {
                alone &= self.take_from_rail(rail).is_some();
            }
        }
        alone
    }

    /// So many requests more are to complete on a rail.
    pub(super) fn expect(&self, rail: usize, more: u32) {
        self.expected[rail].fetch_add(more, Ordering::Relaxed);
    }

    /// So many requests have completed and are in the ring, or will not complete.
    pub(super) fn expect_no_more(&self, rail: usize, fewer: u32) {
        // What is taken away may be seen before it is added: it wraps, and is not zero then.
        self.expected[rail].fetch_sub(fewer, Ordering::Release);
    }

    /// Takes what a rail has; whether that was anything. `None` if somebody else takes from it.
    pub(super) fn take_from_rail(&self, rail: usize) -> Option<bool> {
        let mut any = false;
        // Once more if somebody has been waiting for this side to look: what came last may not have been seen.
        for _ in 0..2 {
            if self.taken[rail].swap(true, Ordering::SeqCst) {
                self.missed.store(true, Ordering::Relaxed);
                return None;
            }
            any |= self.take_all(rail);
            self.taken[rail].store(false, Ordering::SeqCst);
            if any || !self.owes.load(Ordering::SeqCst) {
                break;
            }
        }
        if any && self.owes.swap(false, Ordering::SeqCst) {
            self.reported.store(true, Ordering::SeqCst);
        }
        // It matters in virtual time only, where one thing happens at a time.
        let missed = self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed);
        if missed || (any && !self.device.workers.is_empty()) {
            self.device.host.signal();
        }
        Some(any)
    }

    fn take_all(&self, rail: usize) -> bool {
        let (mut wcs, mut any) = ([Wc::default(); BATCH], false);
        loop {
            // A rail's queue that overran has failed its queue pairs, which is noticed by their state.
            let count = self.of_rails[rail].poll(&mut wcs).unwrap_or(0);
            any |= count > 0;
            wcs[..count].iter().for_each(|wc| self.sort(rail, wc));
            if count < BATCH {
                return any;
            }
        }
    }

    fn sort(&self, rail: usize, wc: &Wc) {
        // A queue pair that has gone completes nothing, and took what it expected along.
        let Some(qp) = self.device.qp_of_lane(rail, wc.qp_num) else { return };
        let is_counted = match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvWriteImm => {
                qp.on_received(rail, wc);
                // What is shared is expected for as long as the queue pair lives.
                qp.srq.is_none()
            }
            _ => {
                qp.on_sent(rail, wc);
                true
            }
        };
        if is_counted {
            self.expect_no_more(rail, 1);
        }
    }

    /// A completion for the program, which gives back slots when it is polled.
    pub(super) fn push(&self, wc: Wc, sends: u32, receives: u32) {
        let mut ring = unpoisoned(&self.ring);
        if ring.overrun {
            return;
        }
        if ring.items.len() as u32 >= self.cqe {
            ring.overrun = true;
            drop(ring);
            return self.tell_of_overrun();
        }
        ring.items.push_back(Item { wc, sends, receives });
        ring.pushed += 1;
        // Successes are announced by the rail's own report; failures may come without one.
        let failed = !wc.is_ok() && ring.armed.take().is_some();
        drop(ring);
        if let (true, Some(channel)) = (failed, &self.channel) {
            channel.report(self.id);
        }
        self.device.host.ring(&self.bell);
    }

    /// A rail says that this queue overran there.
    pub(super) fn overrun(&self) {
        let was = std::mem::replace(&mut unpoisoned(&self.ring).overrun, true);
        if !was {
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
        let mut ring = unpoisoned(&self.ring);
        let Some(armed) = ring.armed else { return true };
        if !armed.solicited_only && ring.pushed == armed.at {
            return false;
        }
        ring.armed = None;
        drop(ring);
        if let Some(channel) = &self.channel {
            channel.report(self.id);
        }
        true
    }

    /// Completions came about without a rail's report.
    pub(super) fn announce(&self) {
        let mut ring = unpoisoned(&self.ring);
        let due = ring.armed.is_some_and(|armed| !armed.solicited_only && ring.pushed != armed.at);
        if due {
            ring.armed = None;
        }
        drop(ring);
        if let (true, Some(channel)) = (due, &self.channel) {
            channel.report(self.id);
        }
    }

    fn arm_rails(&self, solicited_only: bool) {
        for (cq, channel) in self.of_rails.iter().zip(&self.device.channels) {
            if channel.is_some() {
                // It has a channel, which is all that arming needs.
                let _ = cq.req_notify(solicited_only);
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
        if !self.progress() && unpoisoned(&self.ring).items.is_empty() {
            self.wait_for_others();
        }
        let mut given_back = [(0, 0, 0); BATCH];
        let mut taken = 0;
        while taken < wcs.len() {
            let mut ring = unpoisoned(&self.ring);
            if ring.overrun {
                return Err(Error::CqOverrun { cqe: self.cqe });
            }
            let some = (wcs.len() - taken).min(BATCH).min(ring.items.len());
            for (place, wc) in given_back.iter_mut().zip(&mut wcs[taken..taken + some]) {
                let Some(item) = ring.items.pop_front() else { break };
                *wc = item.wc;
                *place = (item.wc.qp_num, item.sends, item.receives);
            }
            drop(ring);
            if some == 0 {
                break;
            }
            for &(num, sends, receives) in &given_back[..some] {
                if let Some(qp) = self.device.qp(num) {
                    qp.give_back(sends, receives);
                }
            }
            taken += some;
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
        let mut ring = unpoisoned(&self.ring);
        // Arming for any overrides arming for solicited ones (IBA 11.4.2.2).
        let solicited_only = solicited_only && ring.armed.is_none_or(|armed| armed.solicited_only);
        ring.armed = Some(Armed { solicited_only, at: ring.pushed });
        drop(ring);
        self.arm_rails(solicited_only);
        self.progress();
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
    }
}
