//! Where completions of queue pairs go: to whoever polls, or into a ring; and what the program is told of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{Bell, Source as _};
use verbs::{AsyncEvent, CompChannel, Cq, Device, Error, Result, Wc};

use crate::completion::announced::Announced;
use crate::context::QpContext;
use crate::lock::unpoisoned;
use crate::shared::Shared;

/// Completions that are given back their slots at a time.
const BATCH: usize = 16;

/// A completion, with the slots of its queue pair that polling it gives back.
#[derive(Clone, Copy)]
struct Item {
    wc: Wc,
    /// The queue pair's own number.
    of: u32,
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
    /// Lanes that have something to complete: where there are none, looks are rare.
    expected: AtomicU32,
}

/// A completion queue as queue pairs know it.
pub(crate) struct Completions {
    shared: Arc<Shared>,
    pub(crate) id: u32,
    pub(crate) cqe: u32,
    of_rails: Vec<OfRail>,
    /// A connection that completes here has ended: its program may look here until there is nothing, and never again.
    saw_an_end: AtomicBool,
    ring: Mutex<Ring>,
    /// Completions go through the ring, whoever polls: some are in it, or the program has asked to be told of them, or there may
    /// be more than the queue has room for.
    by_ring: AtomicBool,
    pub(crate) bell: Bell,
    /// The rails' queues are armed for somebody who sleeps on the bell.
    watched: AtomicBool,
    /// Requests that wait for completions found the queues armed, perhaps by a report that was not handled yet.
    watch_requested: AtomicBool,
    /// Where the program is told that something has completed.
    reports: Option<Arc<Announced<u32>>>,
}

impl Completions {
    pub(crate) fn new(shared: &Arc<Shared>, cqe: u32, reports: Option<Arc<Announced<u32>>>) -> Result<Self> {
        let of_rail = |(rail, channel): (&Device, &Option<CompChannel>)| {
            // Each request of a rail completes here, signalled or not, and some are the device's own.
            let room = cqe.saturating_mul(2).max(1 << 15).min(rail.attr().max_cqe);
            let cq = match channel {
                Some(channel) => rail.create_cq_with(room, channel),
                None => rail.create_cq(room),
            };
            cq.map(|cq| OfRail { cq, expected: AtomicU32::new(0) })
        };
        let of_rails = shared.rails.iter().zip(&shared.channels).map(of_rail).collect::<Result<_>>()?;
        let items = VecDeque::with_capacity(cqe.min(4096) as usize);
        Ok(Self {
            shared: shared.clone(),
            id: shared.fresh(),
            cqe,
            of_rails,
            saw_an_end: AtomicBool::new(false),
            ring: Mutex::new(Ring { items, pushed: 0, overrun: false, armed: None, demand: 0 }),
            by_ring: AtomicBool::new(false),
            bell: Bell::new(),
            watched: AtomicBool::new(false),
            watch_requested: AtomicBool::new(false),
            reports,
        })
    }

    /// The queue on a rail.
    pub(crate) fn on(&self, rail: usize) -> &Cq {
        &self.of_rails[rail].cq
    }

    pub(crate) fn lane_ids(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
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

    /// Whether completions go through the ring.
    #[inline]
    pub(crate) fn are_by_ring(&self) -> bool {
        self.by_ring.load(Ordering::Acquire)
    }

    /// Whether nothing is in the ring.
    pub(crate) fn is_empty(&self) -> bool {
        unpoisoned(&self.ring).items.is_empty()
    }

    /// A queue pair may have so many completions at a time.
    pub(crate) fn want(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_add(depth));
    }

    /// A queue pair that could has gone.
    pub(crate) fn want_no_more(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_sub(depth));
    }

    /// Takes what is in the ring. `give_back` gets what that gives back: a queue pair's number, and its slots for sends and
    /// receives.
    pub(crate) fn take(&self, wcs: &mut [Wc], give_back: impl Fn(u32, u32, u32)) -> Result<usize> {
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
                    *place = (item.of, item.sends, item.receives);
                }
                Ok(some)
            })?;
            given_back[..some].iter().for_each(|&(num, sends, receives)| give_back(num, sends, receives));
            taken += some;
            if some == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// Removes the completions of a queue pair that has gone.
    pub(crate) fn forget(&self, of: u32) {
        self.with_ring(|ring| ring.items.retain(|item| item.of != of));
    }

    /// A connection that completes here has ended.
    pub(crate) fn sees_an_end(&self) {
        self.saw_an_end.store(true, Ordering::Release);
    }

    pub(crate) fn has_seen_an_end(&self) -> bool {
        self.saw_an_end.load(Ordering::Acquire)
    }

    /// A lane more has something to complete on a rail.
    pub(crate) fn expect(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_add(1, Ordering::Relaxed);
    }

    /// All that a lane had has completed, and is in the ring or taken; or it will not complete.
    pub(crate) fn expect_no_more(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_sub(1, Ordering::Release);
    }

    /// Whether something is to complete on a rail. Whoever sees that nothing is sees all that was in the ring.
    #[inline]
    pub(crate) fn is_expecting(&self, rail: usize) -> bool {
        self.of_rails[rail].expected.load(Ordering::Acquire) > 0
    }

    /// A completion for the program, which gives back slots when it is polled.
    #[cold]
    fn push(&self, wc: Wc, own: &QpContext, (sends, receives): (u32, u32)) {
        let (overruns, failed) = self.with_ring(|ring| {
            // The thread that drops the queue pair removes its completions after it has set this flag.
            if own.is_dropped() {
                return (false, false);
            }
            let overruns = !ring.overrun && ring.items.len() as u32 >= self.cqe;
            ring.overrun |= overruns;
            if ring.overrun {
                return (overruns, false);
            }
            ring.items.push_back(Item { wc, of: own.num, sends, receives });
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
        self.shared.host.ring(&self.bell);
    }

    /// Whether the program can be told.
    pub(crate) fn can_report(&self) -> bool {
        self.reports.is_some()
    }

    /// Tells the program that something has completed.
    fn report(&self) {
        if let Some(reports) = &self.reports {
            reports.push(self.id);
        }
    }

    /// A rail says that this queue overran there.
    pub(crate) fn overrun(&self) {
        if !self.with_ring(|ring| std::mem::replace(&mut ring.overrun, true)) {
            self.tell_of_overrun();
        }
    }

    fn tell_of_overrun(&self) {
        self.shared.async_event(AsyncEvent::CqError { cq: self.id });
        self.shared.host.ring(&self.bell);
        self.shared.service.wake();
    }

    pub(crate) fn has_overrun(&self) -> bool {
        unpoisoned(&self.ring).overrun
    }

    /// The program asks to be told of the next completion. Whether only of solicited ones, as it has asked before.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        self.with_ring(|ring| {
            // Arming for any overrides arming for solicited ones (IBA 11.4.2.2).
            let solicited_only = solicited_only && ring.armed.is_none_or(|armed| armed.solicited_only);
            ring.armed = Some(Armed { solicited_only, at: ring.pushed });
            solicited_only
        })
    }

    /// Tells the program, if a rail's report was what it asked for. False when it waits for more.
    pub(crate) fn tell(&self) -> bool {
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
    pub(crate) fn announce(&self) {
        let due = self.with_ring(|ring| {
            let due = |armed: &mut Armed| !armed.solicited_only && ring.pushed != armed.at;
            ring.armed.take_if(due).is_some()
        });
        if due {
            self.report();
        }
    }

    /// The rails report the next completion of their queues.
    pub(crate) fn arm_rails(&self, solicited_only: bool) {
        for (of_rail, channel) in self.of_rails.iter().zip(&self.shared.channels) {
            if channel.is_some() {
                // It has a channel, which is all that arming needs.
                let _ = of_rail.cq.req_notify(solicited_only);
            }
        }
    }

    /// Changes with whatever looks move on a rail.
    pub(crate) fn stirs(&self) -> u64 {
        self.of_rails.iter().fold(0, |sum, of_rail| sum.wrapping_add(of_rail.cq.stirs()))
    }

    /// Arms the rails' queues, so that the service polls them when they report, for a thread that is about to sleep on the bell.
    /// Returns whether they were not armed before: completions up to then are not reported, and the caller has to poll.
    pub(crate) fn watch(&self) -> bool {
        let begins = !self.watched.swap(true, Ordering::SeqCst);
        if begins {
            self.arm_rails(false);
        }
        begins
    }

    /// As [`Completions::watch`], for requests that wait for completions while nobody may poll. If a rail's report is being
    /// handled at this moment, `watched` may be a leftover: the service finds the request and arms the queues again.
    pub(crate) fn watch_for_requests(&self) -> bool {
        if self.watch() {
            return true;
        }
        self.watch_requested.store(true, Ordering::SeqCst);
        // The service may have cleared `watched`, and found no request, since the first test.
        self.watch()
    }

    /// A rail has reported: its queues are not armed any more.
    pub(crate) fn is_reported(&self) {
        self.watched.store(false, Ordering::SeqCst);
    }

    /// Whether requests asked to be watched since the last call; to be called after [`Completions::is_reported`].
    pub(crate) fn take_watch_request(&self) -> bool {
        self.watch_requested.swap(false, Ordering::SeqCst)
    }
}

/// Where completions go: to whoever polls, for as long as nothing stands before them, else into the ring.
pub(crate) struct Sink<'a> {
    completions: &'a Completions,
    wcs: &'a mut [Wc],
    given: usize,
}

impl<'a> Sink<'a> {
    /// All of them into the ring.
    pub(crate) fn ring(completions: &'a Completions) -> Self {
        Self::new(completions, &mut [])
    }

    /// To whoever polls with this room.
    pub(crate) fn new(completions: &'a Completions, wcs: &'a mut [Wc]) -> Self {
        Self { completions, wcs, given: 0 }
    }

    /// How many can be taken from a rail: as many as whoever polls has room for, so that few need the ring.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.wcs.is_empty() { usize::MAX } else { self.wcs.len() - self.given }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many whoever polls has been given.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// A completion for the program, with its queue pair and the numbers of send and receive slots that polling frees. Returns whether the
    /// program has it now.
    /// Called with the queue pair's half locked: who gave its last one into the ring has said so before that.
    #[inline]
    pub(crate) fn give(&mut self, wc: Wc, own: &QpContext, back: (u32, u32)) -> bool {
        if self.given < self.wcs.len() && !self.completions.are_by_ring() {
            self.wcs[self.given] = wc;
            self.given += 1;
            return true;
        }
        self.completions.push(wc, own, back);
        false
    }
}
