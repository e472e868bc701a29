//! [`Shared`]: the state that all objects of a device use.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use host::Host;
use nic_util::sync::unpoisoned;
use verbs::DeviceAttr;
use verbs::provider::DeviceOps;

use crate::api::qp::CheckQp;
use crate::cards::Card;
use crate::destinations::Destinations;
use crate::regions::Regions;

pub(crate) struct Shared {
    pub(crate) below: Arc<dyn DeviceOps>,
    pub(crate) attr: DeviceAttr,
    pub(crate) name: String,
    pub(crate) host: Host,
    /// Whether possible errors are findings, too.
    pub(crate) is_strict: bool,
    /// The card whose limits apply.
    pub(crate) card: Option<&'static Card>,
    pub(crate) regions: Regions,
    pub(crate) destinations: Mutex<Destinations>,
    /// Whether any request was posted that the NIC gets later.
    pub(crate) has_prepared: AtomicBool,
    /// Queue pairs by their numbers in completions. One that is connected to itself has two.
    qps: Mutex<BTreeMap<u32, Vec<Weak<CheckQp>>>>,
}

impl Shared {
    pub(crate) fn new(below: Arc<dyn DeviceOps>, is_strict: bool, card: Option<&'static Card>) -> Self {
        let (host, mut attr) = (below.host().clone(), below.attr().clone());
        attr.notes.push("its use is checked".to_owned());
        let name = format!("check({})", below.name());
        let (regions, destinations, qps) = (Regions::default(), Mutex::default(), Mutex::default());
        let has_prepared = AtomicBool::new(false);
        Self { below, attr, name, host, is_strict, card, regions, destinations, has_prepared, qps }
    }

    /// Whether this process may use the device; in a child of fork(2), a thread that is not there may hold a lock.
    pub(crate) fn is_usable(&self) -> bool {
        self.below.check().is_ok()
    }

    pub(crate) fn add_qp(&self, number: u32, qp: Weak<CheckQp>) {
        unpoisoned(&self.qps).entry(number).or_default().push(qp);
    }

    /// Forgets queue pairs of this number that are gone.
    pub(crate) fn forget_qp(&self, number: u32) {
        let mut qps = unpoisoned(&self.qps);
        if let Some(of_number) = qps.get_mut(&number) {
            of_number.retain(|qp| qp.strong_count() != 0);
            if of_number.is_empty() {
                qps.remove(&number);
            }
        }
    }

    /// The queue pairs of this number.
    pub(crate) fn qps(&self, number: u32) -> impl Iterator<Item = Arc<CheckQp>> {
        let found: Vec<_> = match unpoisoned(&self.qps).get(&number) {
            Some(qps) => qps.iter().filter_map(Weak::upgrade).collect(),
            None => Vec::new(),
        };
        found.into_iter()
    }

    /// All queue pairs.
    pub(crate) fn all_qps(&self) -> Vec<Arc<CheckQp>> {
        unpoisoned(&self.qps).values().flatten().filter_map(Weak::upgrade).collect()
    }
}
