//! The device: its queue pairs by number, and operations on several queue pairs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use host::ProgressHook;
use verbs::provider::Numbers;
use verbs::{DeviceAttr, Result};

use crate::connect::registry::{Registry, ThreadRequest};
use crate::memory::nic_memory::NicMemory;
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use crate::wake::ready::{Driver, ROUND_ROBIN_MAX};
use nic_util::sync::reader_registry::GracePeriods;
use nic_util::sync::{Spin, unpoisoned};
use nic_util::thread::Thread;

pub(crate) const QP_MAX: usize = 8192;
pub(crate) const CQ_MAX: usize = 8192;
pub(crate) const SRQ_MAX: usize = 4096;

#[derive(Default)]
struct ConnectedQps {
    list: Vec<Arc<QpInner>>,
    turn: usize,
}

/// An open device: the state that its queue pairs, queues and thread share.
pub(crate) struct DeviceInner {
    pub(crate) shared: Arc<DeviceShared>,
    pub(crate) attr: DeviceAttr,
    pub(crate) dm: NicMemory,
    pub(crate) registry: Registry,
    pub(crate) cq_ids: Mutex<Numbers>,
    pub(crate) srq_ids: Mutex<Numbers>,
    pub(crate) qp_nums: Mutex<Numbers>,
    pds: AtomicU32,
    qps: RwLock<BTreeMap<u32, Arc<QpInner>>>,
    /// Queue pairs with a connection, for programs that poll memory.
    connected: Spin<ConnectedQps>,
    grace_periods: GracePeriods,
    pub(crate) thread: Thread,
}

impl DeviceInner {
    pub(crate) fn new(shared: DeviceShared, attr: DeviceAttr) -> Self {
        Self {
            shared: Arc::new(shared),
            dm: NicMemory::new(attr.max_dm_size),
            attr,
            registry: Registry::default(),
            cq_ids: Mutex::new(Numbers::new("completion queues", CQ_MAX)),
            srq_ids: Mutex::new(Numbers::new("shared receive queues", SRQ_MAX)),
            qp_nums: Mutex::new(Numbers::new("queue pairs", QP_MAX)),
            pds: AtomicU32::new(1),
            qps: RwLock::default(),
            connected: Spin::new(ConnectedQps::default()),
            grace_periods: GracePeriods::default(),
            thread: Thread::default(),
        }
    }

    /// Allocates a number for a protection domain.
    pub(crate) fn take_pd(&self) -> u32 {
        self.pds.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn take_qp_num(&self) -> Result<u32> {
        unpoisoned(&self.qp_nums).alloc()
    }

    /// Frees a number that was not used for a queue pair.
    pub(crate) fn free_qp_num(&self, num: u32) {
        unpoisoned(&self.qp_nums).free(num);
    }

    pub(crate) fn register_qp(&self, qp: &Arc<QpInner>) {
        self.qps.write().unwrap_or_else(PoisonError::into_inner).insert(qp.num(), qp.clone());
    }

    pub(crate) fn forget_qp(&self, num: u32) {
        self.qps.write().unwrap_or_else(PoisonError::into_inner).remove(&num);
        self.remove_connected(&[num]);
        self.shared.reactor.cancel_timers(num);
        self.shared.visited.lock().remove(&num);
        unpoisoned(&self.qp_nums).free(num);
    }

    pub(crate) fn qp(&self, num: u32) -> Option<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(PoisonError::into_inner).get(&num).cloned()
    }

    pub(crate) fn live_qps(&self) -> Vec<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Adds a queue pair that now has a connection. [`DeviceShared::record_ended`] reports when the connection has
    /// ended.
    pub(crate) fn add_connected(&self, qp: &Arc<QpInner>) {
        let mut connected = self.connected.lock();
        connected.list.push(qp.clone());
        let is_first = connected.list.len() == 1;
        self.shared.set_connection_count(connected.list.len());
        drop(connected);
        if is_first {
            // The NIC thread had no connections to check for silence until now.
            self.shared.reactor.wake();
        }
    }

    /// Removes the connections that have ended.
    pub(crate) fn remove_ended(&self) {
        let ended = self.shared.take_ended();
        if !ended.is_empty() {
            self.remove_connected(&ended);
        }
    }

    fn remove_connected(&self, nums: &[u32]) {
        let mut connected = self.connected.lock();
        connected.list.retain(|other| !nums.contains(&other.num()));
        self.shared.set_connection_count(connected.list.len());
    }

    /// The queue pairs with a connection.
    pub(crate) fn connected(&self) -> Vec<Arc<QpInner>> {
        self.connected.lock().list.clone()
    }

    /// Waits until no thread is inside an operation that began before the call, on any connection used since the last
    /// call.
    pub(crate) fn wait_for_lock_holders(&self) {
        let taken = std::iter::from_fn(|| self.shared.visited.lock().pop_first().map(|num| num as usize));
        let clear = |num| self.qp(num as u32).map(|qp| qp.queues.mark.clear()).is_some();
        let round = self.grace_periods.begin(taken, clear);
        // No fence is needed: each queue pair has a lock. A holder before our turn has left; a later holder sees that
        // the mark is erased and the tag is invalid. In the end every lock can be taken; a queue pair that no longer
        // exists has no connection.
        let pass = |num| self.qp(num as u32).map(|qp| qp.with(|_| {})).is_none_or(|()| true);
        let _ = self.grace_periods.each(round, pass);
    }

    /// Wakes queue pairs that wait for a receive, because one was posted to a shared queue.
    pub(crate) fn wake_rnr(&self) {
        for qp in self.qps.read().unwrap_or_else(PoisonError::into_inner).values() {
            if qp.queues.is_rnr() {
                qp.process_posted();
            }
        }
    }

    /// Drives the connections that have events.
    pub(crate) fn poll_ready_connections(&self) {
        self.shared.ready_set.poll(|num, driver| {
            if self.qp(num).is_some_and(|qp| !qp.poll(driver)) {
                self.shared.ready_set.requeue(num, driver);
            }
        });
    }

    /// Queues a program's request and wakes the NIC thread.
    pub(crate) fn request_thread(&self, request: ThreadRequest) {
        self.registry.push_request(request);
        self.shared.reactor.wake();
    }
}

impl ProgressHook for DeviceInner {
    /// Drives the connections, because a program that polls memory waits for their data.
    fn progress(&self) {
        if self.shared.fork_guard.is_forked() {
            return;
        }
        let Some(mut connected) = self.connected.try_lock() else { return };
        let count = connected.list.len();
        if count <= 1 {
            let only = connected.list.first().cloned();
            drop(connected);
            return only.iter().for_each(|qp| {
                qp.poll(Driver::Poller);
            });
        }
        let turns =
            if count > ROUND_ROBIN_MAX { usize::from(self.shared.is_round_robin_turn()) } else { count };
        let mut some = [const { None }; ROUND_ROBIN_MAX];
        for (step, place) in some.iter_mut().take(turns).enumerate() {
            *place = Some(connected.list[(connected.turn + step) % count].clone());
        }
        connected.turn = if count > ROUND_ROBIN_MAX { (connected.turn + turns) % count } else { 0 };
        drop(connected);
        some.iter().flatten().for_each(|qp| {
            qp.poll(Driver::Poller);
        });
        if count > ROUND_ROBIN_MAX {
            self.poll_ready_connections();
        }
    }
}

impl Drop for DeviceInner {
    /// Stops the thread and waits for its end, unless the caller is the thread itself.
    fn drop(&mut self) {
        if !self.shared.fork_guard.is_forked() {
            self.thread.stop(&self.shared.reactor.epoll_set);
        }
    }
}
