//! Delivers completions of queue pairs to the poller or into a ring, and reports them to the program's channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use host::{EventCount, Source as _};
use verbs::{AsyncEvent, CompChannel, Cq, Device, Error, Result, Wc};

use crate::completion::event_queue::EventQueue;
use crate::context::QpContext;
use crate::lock::unpoisoned;
use crate::shared::DeviceShared;

/// Number of ring entries taken at a time, after which their slots are given back.
const BATCH: usize = 16;

/// A completion, with the queue pair slots that polling it frees.
#[derive(Clone, Copy)]
struct PendingCompletion {
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
    items: VecDeque<PendingCompletion>,
    pushed: u64,
    overrun: bool,
    armed: Option<Armed>,
    /// How many completions can be pending at a time, by the depths of the queue pairs.
    demand: u32,
}

/// The completion queue on a rail.
struct RailCq {
    cq: Cq,
    /// Number of lanes with outstanding requests; a rail without any is polled rarely.
    lanes_outstanding: AtomicU32,
}

/// A completion queue as queue pairs use it.
pub(crate) struct Completions {
    shared: Arc<DeviceShared>,
    pub(crate) id: u32,
    pub(crate) cqe: u32,
    rail_cqs: Vec<RailCq>,
    /// A connection that completes here has ended. Its program may poll this queue until it is empty, and never again.
    conn_ended: AtomicBool,
    ring: Mutex<Ring>,
    /// Whether all completions go through the ring, even with an active poller: the ring is not empty, the program has
    /// asked to be notified, or there may be more completions than the queue has room for.
    by_ring: AtomicBool,
    pub(crate) wakeup: EventCount,
    /// The rails' queues are armed for a waiter that sleeps on the event count.
    armed_for_service: AtomicBool,
    /// Requests that wait for completions found the queues armed, perhaps by a report that was not handled yet.
    arm_requested: AtomicBool,
    /// Where completions are reported to the program.
    reports: Option<Arc<EventQueue<u32>>>,
}

impl Completions {
    pub(crate) fn new(
        shared: &Arc<DeviceShared>,
        cqe: u32,
        reports: Option<Arc<EventQueue<u32>>>,
    ) -> Result<Self> {
        let rail_cq = |(rail, channel): (&Device, &Option<CompChannel>)| {
            // Each request of a rail completes here, signaled or not, and some are the device's own.
            let room = cqe.saturating_mul(2).max(1 << 15).min(rail.attr().max_cqe);
            let cq = match channel {
                Some(channel) => rail.create_cq_with(room, channel),
                None => rail.create_cq(room),
            };
            cq.map(|cq| RailCq { cq, lanes_outstanding: AtomicU32::new(0) })
        };
        let rail_cqs = shared.rails.iter().zip(&shared.channels).map(rail_cq).collect::<Result<_>>()?;
        let items = VecDeque::with_capacity(cqe.min(4096) as usize);
        Ok(Self {
            shared: shared.clone(),
            id: shared.new_id(),
            cqe,
            rail_cqs,
            conn_ended: AtomicBool::new(false),
            ring: Mutex::new(Ring { items, pushed: 0, overrun: false, armed: None, demand: 0 }),
            by_ring: AtomicBool::new(false),
            wakeup: EventCount::new(),
            armed_for_service: AtomicBool::new(false),
            arm_requested: AtomicBool::new(false),
            reports,
        })
    }

    /// The completion queue on a rail.
    pub(crate) fn rail_cq(&self, rail: usize) -> &Cq {
        &self.rail_cqs[rail].cq
    }

    pub(crate) fn rail_cq_ids(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.rail_cqs.iter().enumerate().map(|(rail, rail_cq)| (rail, rail_cq.cq.id()))
    }

    /// Modifies the ring, and then updates `by_ring`.
    fn with_ring<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = unpoisoned(&self.ring);
        let result = change(&mut ring);
        let by_ring =
            !ring.items.is_empty() || ring.armed.is_some() || ring.overrun || ring.demand > self.cqe;
        self.by_ring.store(by_ring, Ordering::Release);
        result
    }

    /// Whether completions go through the ring.
    #[inline]
    pub(crate) fn uses_ring(&self) -> bool {
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

    /// Takes completions from the ring. `free_slots` is called with what these free: a queue pair's number, and its
    /// slots for sends and receives.
    pub(crate) fn poll_ring(&self, wcs: &mut [Wc], free_slots: impl Fn(u32, u32, u32)) -> Result<usize> {
        let mut freed = [(0, 0, 0); BATCH];
        let mut taken = 0;
        while taken < wcs.len() {
            let some = self.with_ring(|ring| {
                if ring.overrun {
                    return Err(Error::CqOverrun { cqe: self.cqe });
                }
                let some = (wcs.len() - taken).min(BATCH).min(ring.items.len());
                let places = freed.iter_mut().zip(&mut wcs[taken..]);
                for ((place, wc), item) in places.zip(ring.items.drain(..some)) {
                    *wc = item.wc;
                    *place = (item.of, item.sends, item.receives);
                }
                Ok(some)
            })?;
            freed[..some].iter().for_each(|&(num, sends, receives)| free_slots(num, sends, receives));
            taken += some;
            if some == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// Removes the completions of a dropped queue pair.
    pub(crate) fn discard_of_qp(&self, of: u32) {
        self.with_ring(|ring| ring.items.retain(|item| item.of != of));
    }

    /// Records that a connection that completes here has ended.
    pub(crate) fn set_conn_ended(&self) {
        self.conn_ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_conn_ended(&self) -> bool {
        self.conn_ended.load(Ordering::Acquire)
    }

    /// Records that another lane has outstanding requests on a rail.
    pub(crate) fn add_outstanding_lane(&self, rail: usize) {
        self.rail_cqs[rail].lanes_outstanding.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that all requests of a lane have completed, and their completions are in the ring or taken; or that they
    /// will never complete.
    pub(crate) fn remove_outstanding_lane(&self, rail: usize) {
        self.rail_cqs[rail].lanes_outstanding.fetch_sub(1, Ordering::Release);
    }

    /// Whether a rail has outstanding requests. A caller that gets false also sees every completion that was put into
    /// the ring.
    #[inline]
    pub(crate) fn has_outstanding(&self, rail: usize) -> bool {
        self.rail_cqs[rail].lanes_outstanding.load(Ordering::Acquire) > 0
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
            ring.items.push_back(PendingCompletion { wc, of: own.num, sends, receives });
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
    pub(crate) fn notify_without_report(&self) {
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
        for (rail_cq, channel) in self.rail_cqs.iter().zip(&self.shared.channels) {
            if channel.is_some() {
                // Arming needs only a channel, which the queue has.
                let _ = rail_cq.cq.req_notify(solicited_only);
            }
        }
    }

    /// Changes when polling makes progress on a rail.
    pub(crate) fn progress_count(&self) -> u64 {
        self.rail_cqs.iter().fold(0, |sum, rail_cq| sum.wrapping_add(rail_cq.cq.progress_count()))
    }

    /// Arms the rails' queues, so that the service polls them when they report, for a thread that is about to sleep on the event count.
    /// Returns whether they were not armed before: completions up to then are not reported, and the caller has to poll.
    pub(crate) fn arm_for_service(&self) -> bool {
        let begins = !self.armed_for_service.swap(true, Ordering::SeqCst);
        if begins {
            self.arm_rails(false);
        }
        begins
    }

    /// As [`Completions::arm_for_service`], for requests that wait for completions while nobody may poll. If a rail's
    /// report is being handled at this moment, `armed_for_service` may be a leftover: the service finds the request and
    /// arms the queues again.
    pub(crate) fn arm_for_requests(&self) -> bool {
        if self.arm_for_service() {
            return true;
        }
        self.arm_requested.store(true, Ordering::SeqCst);
        // The service may have cleared `armed_for_service`, and found no request, since the first test.
        self.arm_for_service()
    }

    /// A rail has reported: its queues must be armed again before the service handles them.
    pub(crate) fn on_rail_report(&self) {
        self.armed_for_service.store(false, Ordering::SeqCst);
    }

    /// Whether requests asked for armed queues since the last call; to be called after [`Completions::on_rail_report`].
    pub(crate) fn take_arm_request(&self) -> bool {
        self.arm_requested.swap(false, Ordering::SeqCst)
    }
}

/// Where completions are delivered: to the poller, as long as the ring is unused, otherwise into the ring.
pub(crate) struct CompletionSink<'a> {
    completions: &'a Completions,
    wcs: &'a mut [Wc],
    delivered: usize,
}

impl<'a> CompletionSink<'a> {
    /// Delivers everything into the ring.
    pub(crate) fn ring(completions: &'a Completions) -> Self {
        Self::new(completions, &mut [])
    }

    /// Delivers to a poller with this much room.
    pub(crate) fn new(completions: &'a Completions, wcs: &'a mut [Wc]) -> Self {
        Self { completions, wcs, delivered: 0 }
    }

    /// The number of completions to take from a rail: as many as the poller has room for, so that few go through the
    /// ring.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.wcs.is_empty() { usize::MAX } else { self.wcs.len() - self.delivered }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// The number of completions delivered to the poller.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered
    }

    /// Delivers a completion of queue pair `own` to the program. Polling it frees this many slots for sends and for
    /// receives. Returns whether the poller got it directly. The caller holds the lock of the queue pair's half, and
    /// only afterwards records that nothing is outstanding.
    #[inline]
    pub(crate) fn deliver(&mut self, wc: Wc, own: &QpContext, freed_slots: (u32, u32)) -> bool {
        if self.delivered < self.wcs.len() && !self.completions.uses_ring() {
            self.wcs[self.delivered] = wc;
            self.delivered += 1;
            return true;
        }
        self.completions.push(wc, own, freed_slots);
        false
    }
}
