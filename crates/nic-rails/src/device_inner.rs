//! The device's objects by number, its lists of pending work, and the events of the rails.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use verbs::{AsyncEvent, Cm, Device, Listener, Result};

use crate::completion::completions::Completions;
use crate::completion::number_cache::NumberCache;
use crate::completion::polled_cq::PolledCq;
use crate::connect::cm_events::CmEvents;
use crate::connect::screening::JoinScreen;
use crate::connect::tokens::Tokens;
use crate::lock::unpoisoned;
use crate::qp::QpInner;
use crate::receive::srq::SrqInner;
use crate::shared::DeviceShared;

/// Queue pairs with pending work.
#[derive(Default)]
pub(crate) struct PendingQps(Mutex<Vec<Weak<QpInner>>>);

impl PendingQps {
    /// Adds a queue pair to the list, unless it is in it.
    pub(crate) fn add(&self, qp: &Arc<QpInner>) {
        let mut list = unpoisoned(&self.0);
        if !list.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(qp))) {
            list.push(Arc::downgrade(qp));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        unpoisoned(&self.0).is_empty()
    }

    /// Calls `is_pending` for each; those for which it returns true stay in the list.
    pub(crate) fn retain(&self, is_pending: impl Fn(&Arc<QpInner>) -> bool) {
        let all = std::mem::take(&mut *unpoisoned(&self.0));
        let still: Vec<_> =
            all.into_iter().filter(|qp| qp.upgrade().is_some_and(|qp| is_pending(&qp))).collect();
        unpoisoned(&self.0).extend(still);
    }
}

/// The join listeners, for further lanes of accepted queue pairs.
struct JoinListeners {
    cms: Vec<Cm>,
    /// A listener of each rail, for each address at which peers have connected. Rails without an address of their own
    /// listen at that address.
    listeners: Mutex<BTreeMap<IpAddr, Vec<Listener>>>,
}

/// An open device.
pub(crate) struct DeviceInner {
    pub(crate) shared: Arc<DeviceShared>,
    qps: RwLock<BTreeMap<u32, Weak<QpInner>>>,
    /// Queue pairs by rail and by their lane's number there.
    lanes: RwLock<BTreeMap<(usize, u32), Weak<QpInner>>>,
    /// How many lanes have been removed, whose numbers may have been reassigned.
    forgotten: AtomicU64,
    cqs: RwLock<BTreeMap<(usize, u32), Weak<PolledCq>>>,
    srqs: RwLock<BTreeMap<(usize, u32), Weak<SrqInner>>>,
    cms: RwLock<Vec<Weak<CmEvents>>>,
    join_listeners: OnceLock<JoinListeners>,
    pub(crate) tokens: Arc<Tokens>,
    /// Accepted queue pairs whose lanes are not all connected.
    pub(crate) expected: PendingQps,
    /// Queue pairs that have lost a lane and have not decided the results of its requests.
    pub(crate) failing_over: PendingQps,
    /// Queue pairs with a lane that is down.
    pub(crate) degraded: PendingQps,
}

/// The object of a map's entry, if it still exists.
fn get_live<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K) -> Option<Arc<T>> {
    map.read().unwrap_or_else(|e| e.into_inner()).get(&key)?.upgrade()
}

fn insert_weak<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K, value: &Arc<T>) {
    map.write().unwrap_or_else(|e| e.into_inner()).insert(key, Arc::downgrade(value));
}

fn remove<K: Ord, T>(map: &RwLock<BTreeMap<K, Weak<T>>>, key: K) {
    map.write().unwrap_or_else(|e| e.into_inner()).remove(&key);
}

impl DeviceInner {
    pub(crate) fn new(shared: DeviceShared) -> Self {
        Self {
            shared: Arc::new(shared),
            qps: RwLock::default(),
            lanes: RwLock::default(),
            forgotten: AtomicU64::new(0),
            cqs: RwLock::default(),
            srqs: RwLock::default(),
            cms: RwLock::default(),
            join_listeners: OnceLock::new(),
            tokens: Arc::default(),
            expected: PendingQps::default(),
            failing_over: PendingQps::default(),
            degraded: PendingQps::default(),
        }
    }

    pub(crate) fn qp(&self, num: u32) -> Option<Arc<QpInner>> {
        get_live(&self.qps, num)
    }

    pub(crate) fn qp_of_lane(&self, rail: usize, num: u32) -> Option<Arc<QpInner>> {
        get_live(&self.lanes, (rail, num))
    }

    /// As [`DeviceInner::qp_of_lane`], for pollers with a cache of queue pairs, which hold them until the program drops
    /// them.
    #[inline]
    pub(crate) fn find<'k>(
        &self,
        known: &'k mut NumberCache<QpInner>,
        rail: usize,
        num: u32,
    ) -> Option<&'k Arc<QpInner>> {
        let changes = self.forgotten.load(Ordering::Acquire);
        known.find(num, changes, || self.qp_of_lane(rail, num).filter(|qp| !qp.is_dropped()))
    }

    pub(crate) fn add_qp(&self, qp: &Arc<QpInner>) {
        insert_weak(&self.qps, qp.num(), qp);
        for (rail, lane) in qp.lanes().iter().enumerate() {
            self.add_lane(rail, lane.num(), qp);
        }
    }

    /// Removes a queue pair that the program has dropped.
    pub(crate) fn forget_qp(&self, qp: &QpInner) {
        remove(&self.qps, qp.num());
        for (rail, lane) in qp.lanes().iter().enumerate() {
            self.forget_lane(rail, lane.num());
        }
        let link = qp.link();
        if !link.is_active {
            self.tokens.remove(link.token);
        }
    }

    pub(crate) fn add_lane(&self, rail: usize, num: u32, qp: &Arc<QpInner>) {
        insert_weak(&self.lanes, (rail, num), qp);
    }

    /// Removes a lane that is dropped now or soon: its number may be reassigned afterwards.
    pub(crate) fn forget_lane(&self, rail: usize, num: u32) {
        remove(&self.lanes, (rail, num));
        self.forgotten.fetch_add(1, Ordering::Release);
    }

    /// All queue pairs, one at a time: the caller holds at most one, so that the others are freed immediately when the
    /// program drops them.
    pub(crate) fn live_qps(&self) -> impl Iterator<Item = Arc<QpInner>> + use<> {
        let all: Vec<_> = self.qps.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect();
        all.into_iter().filter_map(|qp| qp.upgrade())
    }

    pub(crate) fn add_cq(&self, cq: &Arc<PolledCq>) {
        cq.completions.rail_cq_ids().for_each(|lane| insert_weak(&self.cqs, lane, cq));
    }

    pub(crate) fn forget_cq(&self, cq: &PolledCq) {
        cq.completions.rail_cq_ids().for_each(|lane| remove(&self.cqs, lane));
    }

    /// The completion queue behind a rail's queue.
    pub(crate) fn cq_of_rail(&self, rail: usize, id: u32) -> Option<Arc<PolledCq>> {
        get_live(&self.cqs, (rail, id))
    }

    /// The poller state of a completion queue that queue pairs use.
    pub(crate) fn polling(&self, completions: &Completions) -> Option<Arc<PolledCq>> {
        self.cq_of_rail(0, completions.rail_cq(0).id())
    }

    /// Appends the completion queues to `cqs`.
    pub(crate) fn cqs_into(&self, cqs: &mut Vec<Arc<PolledCq>>) {
        let all = self.cqs.read().unwrap_or_else(|e| e.into_inner());
        cqs.extend(all.range((0, 0)..(1, 0)).filter_map(|(_, cq)| cq.upgrade()));
    }

    pub(crate) fn add_srq(&self, rail: usize, id: u32, srq: &Arc<SrqInner>) {
        insert_weak(&self.srqs, (rail, id), srq);
    }

    pub(crate) fn forget_srq(&self, rail: usize, id: u32) {
        remove(&self.srqs, (rail, id));
    }

    /// Creates the join listeners when the first queue pair is accepted.
    fn join_listeners(&self) -> Result<&JoinListeners> {
        if let Some(joins) = self.join_listeners.get() {
            return Ok(joins);
        }
        let cms = self.shared.rails.iter().map(Device::create_cm).collect::<Result<_>>()?;
        let joins = self.join_listeners.get_or_init(|| JoinListeners { cms, listeners: Mutex::default() });
        self.shared.service.wake();
        Ok(joins)
    }

    /// The addresses of the join listeners, for a peer that reached this device at `local`.
    pub(crate) fn lane_addrs(&self, local: SocketAddr) -> Result<Vec<SocketAddr>> {
        let (joins, rails) = (self.join_listeners()?, &self.shared.rails);
        let open = |(at, (cm, rail)): (usize, (&Cm, &Device))| {
            let addr = rail.attr().port_addrs.first().copied().unwrap_or(local.ip());
            let screen = JoinScreen::new(&self.tokens, self.shared.width(), at);
            cm.listen_screened(SocketAddr::new(addr, 0), 256, Arc::new(screen))
        };
        let mut all = unpoisoned(&joins.listeners);
        let listeners = match all.entry(local.ip()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(room) => {
                room.insert(joins.cms.iter().zip(rails).enumerate().map(open).collect::<Result<_>>()?)
            }
        };
        Ok(listeners.iter().map(Listener::addr).collect())
    }

    /// The channels of the join listeners, if there are any.
    pub(crate) fn join_cms(&self) -> &[Cm] {
        self.join_listeners.get().map_or(&[], |joins| &joins.cms)
    }

    pub(crate) fn add_cm(&self, cm: &Arc<CmEvents>) {
        let mut cms = self.cms.write().unwrap_or_else(|e| e.into_inner());
        cms.retain(|cm| cm.strong_count() > 0);
        cms.push(Arc::downgrade(cm));
        drop(cms);
        self.shared.service.wake();
    }

    pub(crate) fn live_cms(&self) -> Vec<Arc<CmEvents>> {
        self.cms.read().unwrap_or_else(|e| e.into_inner()).iter().filter_map(Weak::upgrade).collect()
    }

    /// Handles asynchronous events of the rails.
    pub(crate) fn poll_rail_events(&self) {
        for (rail, device) in self.shared.rails.iter().enumerate() {
            while let Some(event) = device.poll_async_event() {
                match event {
                    AsyncEvent::QpAccessError { qp_num } => {
                        if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                            self.shared.async_event(AsyncEvent::QpAccessError { qp_num: qp.num() });
                            qp.on_lane_error();
                        }
                    }
                    AsyncEvent::QpFatal { qp_num, why } => {
                        if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                            self.shared.async_event(AsyncEvent::QpFatal { qp_num: qp.num(), why });
                            qp.on_lane_error();
                        }
                    }
                    AsyncEvent::SrqLimitReached { srq } => {
                        if let Some(srq) = get_live(&self.srqs, (rail, srq)) {
                            srq.on_limit_reached(rail);
                        }
                    }
                    AsyncEvent::CqError { cq } => {
                        if let Some(cq) = self.cq_of_rail(rail, cq) {
                            cq.completions.overrun();
                        }
                    }
                    AsyncEvent::LastWqeReached { qp_num } => {
                        if let Some(qp) = self.qp_of_lane(rail, qp_num) {
                            qp.on_lane_drained(rail);
                        }
                    }
                    // `RailDown` and `RailUp`: rails are not made of rails. NICs report nothing else.
                    _ => {}
                }
            }
        }
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.is_inherited() {
            return;
        }
        shared.service.stop();
        shared.workers.iter().for_each(|worker| worker.stop(&shared.host));
        shared.host.signal();
    }
}
