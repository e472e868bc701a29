//! The device: its objects and connections, and operations across several objects.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::Span;

use crate::connect::registry::Registry;
use crate::grace_periods::GracePeriodSet;
use crate::memory::atomic_lock;
use crate::objects::Objects;
use crate::polled_cq::PolledCq;
use crate::queues::receives::SharedReceives;
use crate::shared::DeviceShared;
use nic_util::sync::{Spin, unpoisoned};
use nic_util::thread::Thread;

/// Objects that peers change without notification; polling for asynchronous events checks them.
#[derive(Default)]
struct WatchedObjects {
    /// Completion queues that may overrun, as more requests may be outstanding than they hold; kept until the
    /// program destroys them.
    cqs: SortedVecMap<Arc<PolledCq>>,
    /// Shared receive queues with a limit.
    srqs: SortedVecMap<Weak<SharedReceives>>,
}

/// Objects by index, sorted: few, as each poll for an event checks every object.
struct SortedVecMap<H>(Vec<(usize, H)>);

impl<H> Default for SortedVecMap<H> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<H> SortedVecMap<H> {
    fn find(&self, index: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&index, |(index, _)| *index)
    }

    /// Adds an object; it replaces an earlier one with this index.
    fn add(&mut self, index: usize, one: H) {
        match self.find(index) {
            Ok(at) => self.0[at] = (index, one),
            Err(at) => self.0.insert(at, (index, one)),
        }
    }

    /// Removes an object, if present.
    fn remove(&mut self, index: usize) -> Option<H> {
        self.find(index).ok().map(|at| self.0.remove(at).1)
    }
}

/// An open device.
pub(crate) struct DeviceInner {
    pub(crate) shared: Arc<DeviceShared>,
    pub(crate) objects: Objects,
    pub(crate) registry: Registry,
    grace_periods: GracePeriodSet,
    watched: Mutex<WatchedObjects>,
    /// Held while peers that wait for shared receives are notified.
    rnr_lock: Spin<()>,
    /// Held while the device checks which completion queues report events.
    pub(crate) event_lock: Spin<()>,
    /// The holder of the lock for atomics at the last check.
    atomic_holder_seen: AtomicU64,
    pds: AtomicU32,
    pub(crate) thread: Thread,
}

impl DeviceInner {
    pub(crate) fn new(shared: DeviceShared) -> Self {
        Self {
            shared: Arc::new(shared),
            objects: Objects::default(),
            registry: Registry::default(),
            grace_periods: GracePeriodSet::default(),
            watched: Mutex::default(),
            rnr_lock: Spin::default(),
            event_lock: Spin::default(),
            atomic_holder_seen: AtomicU64::new(0),
            pds: AtomicU32::new(1),
            thread: Thread::default(),
        }
    }

    /// Allocates the number of a protection domain.
    pub(crate) fn alloc_pd_id(&self) -> u32 {
        self.pds.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts checking a completion queue for overrun.
    pub(crate) fn watch_for_overrun(&self, cq: &Arc<PolledCq>) {
        unpoisoned(&self.watched).cqs.add(cq.completions.index, cq.clone());
    }

    /// Removes a destroyed completion queue: no overrun is reported any more.
    pub(crate) fn forget_cq(&self, index: usize) {
        // Dropped after the lock is released.
        let _watched = unpoisoned(&self.watched).cqs.remove(index);
        self.objects.remove_cq(index);
    }

    /// Starts checking the limit of a shared receive queue.
    pub(crate) fn watch_limit(&self, srq: &Arc<SharedReceives>) {
        unpoisoned(&self.watched).srqs.add(srq.index, Arc::downgrade(srq));
    }

    /// Checks the objects that peers may have changed.
    pub(crate) fn check_watched(&self) {
        let mut watched = unpoisoned(&self.watched);
        watched.cqs.0.iter().for_each(|(_, cq)| cq.check_overrun());
        watched.srqs.0.retain(|(_, srq)| {
            let limited = srq.upgrade().filter(|srq| srq.limit() != 0);
            limited.inspect(|srq| srq.check_limit()).is_some()
        });
    }

    /// Fails all objects that were marked for it; the caller holds no lock.
    pub(crate) fn handle_requested_failures(&self) {
        let (cqs, qps) = self.shared.take_requested_failures();
        if !cqs.is_empty() {
            let hit =
                |completions: &crate::queues::completions::Completions| cqs.contains(&completions.index);
            for qp in self.objects.live_qps() {
                if hit(&qp.sending.completions) || hit(&qp.receiving.completions) {
                    // Its completions are lost, so the peer must be disconnected.
                    self.registry.disconnect(&self.shared, &qp, true);
                    qp.fail();
                }
            }
        }
        for qp in qps.into_iter().filter_map(|index| self.objects.qp(index)) {
            if qp.connection.is_failure_requested() {
                qp.fail();
            }
        }
    }

    /// Notifies peers that have announced that they wait for a receive of a shared receive queue.
    #[cold]
    pub(crate) fn notify_rnr_waiter(&self, srq: &SharedReceives) {
        // One thread at a time: queue pairs that wait for another queue are removed from the set for a
        // moment.
        let _rnr_lock = self.rnr_lock.lock();
        if !srq.take_rnr() {
            return;
        }
        let waiting = &self.shared.header.rnr;
        for index in waiting.drain() {
            let Some(qp) = self.objects.qp(index) else { continue };
            match &qp.receiving.srq {
                Some(its) if its.index != srq.index => waiting.add(index),
                _ => qp.connection.notify_rnr_waiter(),
            }
        }
    }

    /// Waits until no thread and no peer is in the middle of an operation that began before the call. The
    /// error is the number of the queue pair whose operation does not end.
    pub(crate) fn quiesce(&self, call: &'static str, patience: Span) -> Result<(), u32> {
        self.grace_periods.quiesce(&self.shared, &self.objects, call, patience)
    }

    /// Waits, after a key was invalidated, until peers that saw it valid have finished their accesses.
    pub(crate) fn wait_for_peers_to_leave(&self) {
        self.grace_periods.wait_for_peers_to_leave(&self.shared, &self.objects);
    }

    /// Takes the lock for atomics away from a holder that cannot release it. Returns whether to check again
    /// soon.
    pub(crate) fn check_atomic_lock(&self) -> bool {
        let is_inside = |index| self.objects.is_inside_by(index);
        atomic_lock::release_if_dead(&self.shared.table.map, &self.atomic_holder_seen, is_inside)
    }

    /// Ends the thread and waits for its end, unless the thread itself is the caller.
    pub(crate) fn stop(&self) {
        self.thread.stop(&self.shared.reactor.epoll);
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if !self.shared.fork_guard.is_forked() {
            self.stop();
        }
    }
}
