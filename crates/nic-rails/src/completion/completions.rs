//! Delivers completions of queue pairs to the poller or into a ring, and reports them to the program's channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{EventCount, Source as _};
use verbs::{AsyncEvent, CompChannel, Cq, Device, Error, Result, Wc};

use crate::completion::announced::EventQueue;
use crate::context::QpContext;
use crate::lock::unpoisoned;
use crate::shared::Shared;

/// Number of ring entries taken at a time, after which their slots are given back.
const BATCH: usize = 16;

/// A completion, with the queue pair slots that polling it frees.
#[derive(Clone, Copy)]
struct Item {
    wc: Wc,
    /// The queue pair's own number.
    of: u32,
    sends: u32,
    receives: u32,
}

/// The program's request to be notified.
#[derive(Clone, Copy)]
struct Armed {
    solicited_only: bool,
    /// The number of completions pushed before the request.
    at: u64,
}

/// Completions that were not delivered to a poller directly.
struct Ring {
    items: VecDeque<Item>,
    pushed: u64,
    overrun: bool,
    armed: Option<Armed>,
    /// How many completions can be pending at a time, by the depths of the queue pairs.
    demand: u32,
}

/// The completion queue on a rail.
struct OfRail {
    cq: Cq,
    /// Number of lanes with outstanding requests; a rail without any is polled rarely.
    expected: AtomicU32,
}

/// A completion queue as queue pairs use it.
pub(crate) struct Completions {
    shared: Arc<Shared>,
    pub(crate) id: u32,
    pub(crate) cqe: u32,
    of_rails: Vec<OfRail>,
    /// A connection that completes here has ended. Its program may poll this queue until it is empty, and never again.
    seen_end: AtomicBool,
    ring: Mutex<Ring>,
    /// Whether all completions go through the ring, even with an active poller: the ring is not empty, the program has
    /// asked to be notified, or there may be more completions than the queue has room for.
    by_ring: AtomicBool,
    pub(crate) wakeup: EventCount,
    /// The rails' queues are armed for a waiter that sleeps on the event count.
    watched: AtomicBool,
    /// Requests that wait for completions found the queues armed, perhaps by a report that was not handled yet.
    watch_requested: AtomicBool,
    /// Where completions are reported to the program.
    reports: Option<Arc<EventQueue<u32>>>,
}

impl Completions {
    pub(crate) fn new(shared: &Arc<Shared>, cqe: u32, reports: Option<Arc<EventQueue<u32>>>) -> Result<Self> {
        let of_rail = |(rail, channel): (&Device, &Option<CompChannel>)| {
            // Each request of a rail completes here, signaled or not, and some are the device's own.
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
            seen_end: AtomicBool::new(false),
            ring: Mutex::new(Ring { items, pushed: 0, overrun: false, armed: None, demand: 0 }),
            by_ring: AtomicBool::new(false),
            wakeup: EventCount::new(),
            watched: AtomicBool::new(false),
            watch_requested: AtomicBool::new(false),
            reports,
        })
    }

    /// The completion queue on a rail.
    pub(crate) fn on(&self, rail: usize) -> &Cq {
        &self.of_rails[rail].cq
    }

    pub(crate) fn lane_ids(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.of_rails.iter().enumerate().map(|(rail, of_rail)| (rail, of_rail.cq.id()))
    }

    /// Modifies the ring, and then updates `by_ring`.
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
    pub(crate) fn use_ring(&self) -> bool {
        self.by_ring.load(Ordering::Acquire)
    }

    /// Whether the ring is empty.
    pub(crate) fn is_empty(&self) -> bool {
        unpoisoned(&self.ring).items.is_empty()
    }

    /// Adds the depth of a new queue pair to the possible number of pending completions.
    pub(crate) fn reserve(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_add(depth));
    }

    /// Subtracts the depth of a dropped queue pair.
    pub(crate) fn release(&self, depth: u32) {
        self.with_ring(|ring| ring.demand = ring.demand.saturating_sub(depth));
    }

    /// Takes completions from the ring. `give_back` is called with what these free: a queue pair's number, and its
    /// slots for sends and receives.
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

    /// Removes the completions of a dropped queue pair.
    pub(crate) fn forget(&self, of: u32) {
        self.with_ring(|ring| ring.items.retain(|item| item.of != of));
    }

    /// Records that a connection that completes here has ended.
    pub(crate) fn set_seen_end(&self) {
        self.seen_end.store(true, Ordering::Release);
    }

    pub(crate) fn has_seen_end(&self) -> bool {
        self.seen_end.load(Ordering::Acquire)
    }

    /// Records that another lane has outstanding requests on a rail.
    pub(crate) fn expect(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that all requests of a lane have completed, and their completions are in the ring or taken; or that they
    /// will never complete.
    pub(crate) fn expect_no_more(&self, rail: usize) {
        self.of_rails[rail].expected.fetch_sub(1, Ordering::Release);
    }

    /// Whether a rail has outstanding requests. A caller that gets false also sees every completion that was put into
    /// the ring.
    #[inline]
    pub(crate) fn is_expecting(&self, rail: usize) -> bool {
        self.of_rails[rail].expected.load(Ordering::Acquire) > 0
    }

    /// Pushes a completion for the program, which frees slots when it is polled.
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
            return self.report_overrun();
        }
        if failed {
            self.report();
        }
        self.shared.host.notify(&self.wakeup);
    }

    /// Whether the completion queue has a channel.
    pub(crate) fn can_report(&self) -> bool {
        self.reports.is_some()
    }

    /// Reports a completion on the program's channel.
    fn report(&self) {
        if let Some(reports) = &self.reports {
            reports.push(self.id);
        }
    }

    /// Handles a rail's report that its queue overran.
    pub(crate) fn overrun(&self) {
        if !self.with_ring(|ring| std::mem::replace(&mut ring.overrun, true)) {
            self.report_overrun();
        }
    }

    fn report_overrun(&self) {
        self.shared.async_event(AsyncEvent::CqError { cq: self.id });
        self.shared.host.notify(&self.wakeup);
        self.shared.service.wake();
    }

    pub(crate) fn has_overrun(&self) -> bool {
        unpoisoned(&self.ring).overrun
    }

    /// Requests a notification of the next completion. Returns whether only solicited ones count, considering earlier
    /// requests.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        self.with_ring(|ring| {
            // A request for any completion overrides one for solicited completions (IBA 11.4.2.2).
            let solicited_only = solicited_only && ring.armed.is_none_or(|armed| armed.solicited_only);
            ring.armed = Some(Armed { solicited_only, at: ring.pushed });
            solicited_only
        })
    }

    /// Notifies the program if a rail's report satisfies its request. False if the request is still open.
    pub(crate) fn notify_if_due(&self) -> bool {
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

    /// Notifies the program of completions that arrived without a rail's report.
    pub(crate) fn announce(&self) {
        let due = self.with_ring(|ring| {
            let due = |armed: &mut Armed| !armed.solicited_only && ring.pushed != armed.at;
            ring.armed.take_if(due).is_some()
        });
        if due {
            self.report();
        }
    }

    /// Makes the rails report the next completion of their queues.
    pub(crate) fn arm_rails(&self, solicited_only: bool) {
        for (of_rail, channel) in self.of_rails.iter().zip(&self.shared.channels) {
            if channel.is_some() {
                // Arming needs only a channel, which the queue has.
                let _ = of_rail.cq.req_notify(solicited_only);
            }
        }
    }

    /// Changes when polling makes progress on a rail.
    pub(crate) fn progress_count(&self) -> u64 {
        self.of_rails.iter().fold(0, |sum, of_rail| sum.wrapping_add(of_rail.cq.progress_count()))
    }

    /// Arms the rails' queues, so that the service polls them when they report, for a thread that is about to sleep on the event count.
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

    /// A rail has reported: its queues must be armed again before the service handles them.
    pub(crate) fn is_reported(&self) {
        self.watched.store(false, Ordering::SeqCst);
    }

    /// Whether requests asked to be watched since the last call; to be called after [`Completions::is_reported`].
    pub(crate) fn take_watch_request(&self) -> bool {
        self.watch_requested.swap(false, Ordering::SeqCst)
    }
}

/// Where completions are delivered: to the poller, as long as the ring is unused, otherwise into the ring.
pub(crate) struct Sink<'a> {
    completions: &'a Completions,
    wcs: &'a mut [Wc],
    given: usize,
}

impl<'a> Sink<'a> {
    /// Delivers everything into the ring.
    pub(crate) fn ring(completions: &'a Completions) -> Self {
        Self::new(completions, &mut [])
    }

    /// Delivers to a poller with this much room.
    pub(crate) fn new(completions: &'a Completions, wcs: &'a mut [Wc]) -> Self {
        Self { completions, wcs, given: 0 }
    }

    /// The number of completions to take from a rail: as many as the poller has room for, so that few go through the
    /// ring.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.wcs.is_empty() { usize::MAX } else { self.wcs.len() - self.given }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// The number of completions delivered to the poller.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// Delivers a completion to the program, with its queue pair and the numbers of send and receive slots that polling
    /// frees. Returns whether the poller got it directly. The caller holds the lock of the queue pair's half, and only
    /// afterwards records that nothing is outstanding.
    #[inline]
    pub(crate) fn give(&mut self, wc: Wc, own: &QpContext, back: (u32, u32)) -> bool {
        if self.given < self.wcs.len() && !self.completions.use_ring() {
            self.wcs[self.given] = wc;
            self.given += 1;
            return true;
        }
        self.completions.push(wc, own, back);
        false
    }
}
