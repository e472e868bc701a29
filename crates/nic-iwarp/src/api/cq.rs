//! Data path: polling. Completion queues of the API.
//!
//! A thread that polls an empty queue drives the connections whose completions go to this queue. With few connections
//! it drives each in turn, so a message costs only the system calls of its socket. With many, `ready` returns the
//! connections to drive.

use std::sync::Arc;

use host::Wake;
use verbs::provider::CqOps;
use verbs::{Error, Result, Wc};

use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::queues::completions::Completions;
use crate::queues::cq_events::CqEvents;
use crate::wake::ready::{Driver, ROUND_ROBIN_MAX};
use nic_util::heap_trim::queue_size;
use nic_util::sync::{Spin, unpoisoned};

/// A completion queue.
pub(crate) struct CqInner {
    device: Arc<DeviceInner>,
    ring: Arc<Completions>,
    /// Queue pairs whose completions go here; locked while a poll drives them.
    users: Spin<AttachedQps>,
}

#[derive(Default)]
struct AttachedQps {
    list: Vec<Arc<QpInner>>,
    turn: usize,
}

impl CqInner {
    pub(crate) fn create(
        device: &Arc<DeviceInner>,
        cqe: u32,
        cq_events: Option<Arc<CqEvents>>,
    ) -> Result<Self> {
        let ring = Completions::new(&device.shared, unpoisoned(&device.cq_ids).alloc()?, cqe, cq_events);
        // The entries are counted with the queue pairs that reserve them.
        device.shared.heap_trim.count_allocated(queue_size(0));
        Ok(Self { device: device.clone(), ring: Arc::new(ring), users: Spin::new(AttachedQps::default()) })
    }

    /// The ring that holds the completions.
    pub(crate) fn ring(&self) -> &Arc<Completions> {
        &self.ring
    }

    /// Attaches a queue pair, which may have at most `depth` completions outstanding here.
    pub(crate) fn attach(&self, qp: &Arc<QpInner>, depth: u32) {
        self.ring.reserve(depth);
        let mut users = self.users.lock();
        if !users.list.iter().any(|user| Arc::ptr_eq(user, qp)) {
            users.list.push(qp.clone());
        }
    }

    /// Detaches a queue pair and drops its completions.
    pub(crate) fn detach(&self, qp: &Arc<QpInner>, depth: u32) {
        self.users.lock().list.retain(|user| !Arc::ptr_eq(user, qp));
        self.ring.watched.lock().remove(&qp.num());
        self.ring.release(qp.queues.slots(), depth);
    }

    /// Makes the NIC thread responsible for all connections that it had left to pollers.
    fn hand_over_to_nic_thread(&self) {
        let watched = std::mem::take(&mut *self.ring.watched.lock());
        watched.into_iter().filter_map(|num| self.device.qp(num)).for_each(|qp| qp.hand_over_to_nic_thread());
    }

    /// Drives the connections whose completions go here. With `sleepy`, also makes sure that the NIC thread is
    /// notified of their events, because the caller is about to sleep.
    #[inline]
    pub(crate) fn poll_connections(&self, sleepy: bool) {
        // Another thread is polling already.
        let Some(mut users) = self.users.try_lock() else { return };
        let count = users.list.len();
        let turns = if count > ROUND_ROBIN_MAX && self.device.shared.has_many_connections() {
            self.device.poll_ready_connections();
            usize::from(self.device.shared.is_round_robin_turn())
        } else {
            count.min(ROUND_ROBIN_MAX)
        };
        for step in 0..turns {
            users.list[(users.turn + step) % count].poll(Driver::Poller);
        }
        users.turn = if count > ROUND_ROBIN_MAX { (users.turn + turns) % count } else { 0 };
        drop(users);
        if sleepy {
            self.hand_over_to_nic_thread();
        }
    }
}

impl CqOps for CqInner {
    fn id(&self) -> u32 {
        self.ring.id()
    }

    fn cqe(&self) -> u32 {
        self.ring.cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        // Received data that nobody has polled for yet counts, too.
        self.poll_connections(false);
        let too_many = || Error::Invalid(format!("more than {cqe} completions wait in the queue"));
        if self.ring.resize(cqe) { Ok(()) } else { Err(too_many()) }
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.device.shared.fork_guard.check()?;
        if self.ring.is_overrun() {
            return Err(Error::CqOverrun { cqe: self.ring.cqe() });
        }
        let got = self.ring.take(wcs);
        if got > 0 || wcs.is_empty() {
            return Ok(got);
        }
        self.poll_connections(self.ring.wakeup().has_waiters());
        Ok(self.ring.take(wcs))
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        if !self.ring.arm(solicited_only) {
            return Err(Error::Invalid("the completion queue has no channel to report to".into()));
        }
        // A program that arms the queue is about to sleep, perhaps on the descriptor, where we cannot see it.
        self.hand_over_to_nic_thread();
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        let wake = Wake::by(self.ring.wakeup());
        // From now on nobody may poll, so the NIC thread must be notified of events.
        self.hand_over_to_nic_thread();
        wake
    }

    fn progress_count(&self) -> u64 {
        self.ring.progress_count()
    }

    fn begin_polling(&self) {
        self.ring.begin_polling();
    }

    fn end_polling(&self) {
        self.ring.end_polling();
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.device.shared.fork_guard.is_forked() {
            return;
        }
        self.ring.forget_events();
        unpoisoned(&self.device.cq_ids).free(self.ring.id());
        self.device.shared.count_freed(queue_size(0));
    }
}
