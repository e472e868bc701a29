//! A device's queue pairs and completion queues by number, including queue pairs that were destroyed during
//! an access by their peer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::memory::atomic_lock;
use crate::polled_cq::PolledCq;
use crate::qp::QpInner;
use crate::shared::DeviceShared;
use nic_util::sync::unpoisoned;

/// A device's objects.
#[derive(Default)]
pub(crate) struct Objects {
    qps: RwLock<BTreeMap<usize, Arc<QpInner>>>,
    pub(crate) cqs: RwLock<BTreeMap<usize, Weak<PolledCq>>>,
    /// A stopped peer may continue its access later: rings and number stay allocated until the peer has left
    /// or died.
    pub(crate) lingering: Mutex<Vec<Arc<QpInner>>>,
}

impl Objects {
    pub(crate) fn add_qp(&self, qp: &Arc<QpInner>) {
        self.qps.write().unwrap_or_else(PoisonError::into_inner).insert(qp.index(), qp.clone());
    }

    /// A queue pair by its number.
    pub(crate) fn qp(&self, index: usize) -> Option<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }

    pub(crate) fn live_qps(&self) -> Vec<Arc<QpInner>> {
        self.qps.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Removes a destroyed queue pair; if its peer still accesses memory (`is_out` is false), it is kept
    /// until the peer has left.
    pub(crate) fn remove_qp(&self, device: &DeviceShared, qp: &Arc<QpInner>, is_out: bool) {
        if is_out {
            atomic_lock::release_if_held_by(&device.table.map, qp.index());
        } else {
            unpoisoned(&self.lingering).push(qp.clone());
        }
        self.qps.write().unwrap_or_else(PoisonError::into_inner).remove(&qp.index());
        if is_out {
            device.free_qp(qp.index());
            qp.rings.lock().clear();
        } else {
            device.reactor.wake();
        }
    }

    /// The queue pair with a number, also if it was destroyed during an access by its peer.
    pub(crate) fn qp_or_lingering(&self, index: usize) -> Option<Arc<QpInner>> {
        self.qp(index).or_else(|| unpoisoned(&self.lingering).iter().find(|qp| qp.index() == index).cloned())
    }

    /// Whether a live peer accesses memory by queue pair `index`, which may have been destroyed.
    pub(crate) fn is_inside_by(&self, index: usize) -> bool {
        self.qp_or_lingering(index).is_some_and(|qp| qp.peer_is_inside())
    }

    /// Frees destroyed queue pairs whose peer was inside, once it has left or died. Returns whether there are
    /// more.
    pub(crate) fn free_lingering(&self, device: &DeviceShared) -> bool {
        let mut lingering = unpoisoned(&self.lingering);
        let gone: Vec<_> = lingering.extract_if(.., |qp| !qp.peer_is_inside()).collect();
        let more = !lingering.is_empty();
        drop(lingering);
        for qp in gone {
            atomic_lock::release_if_held_by(&device.table.map, qp.index());
            qp.rings.lock().clear();
            device.free_qp(qp.index());
        }
        more
    }

    pub(crate) fn add_cq(&self, cq: &Arc<PolledCq>) {
        let index = cq.completions.index;
        self.cqs.write().unwrap_or_else(PoisonError::into_inner).insert(index, Arc::downgrade(cq));
    }

    /// A completion queue by its number.
    pub(crate) fn cq(&self, index: usize) -> Option<Arc<PolledCq>> {
        self.cqs.read().unwrap_or_else(PoisonError::into_inner).get(&index)?.upgrade()
    }

    pub(crate) fn live_cqs(&self) -> Vec<Arc<PolledCq>> {
        self.cqs.read().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect()
    }

    /// Removes a destroyed completion queue, so that no weak handle keeps its memory.
    pub(crate) fn remove_cq(&self, index: usize) {
        self.cqs.write().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }
}
