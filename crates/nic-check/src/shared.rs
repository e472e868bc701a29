//! [`Shared`]: the state that all objects of a device use, except its queue pairs.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use host::Host;
use verbs::DeviceAttr;
use verbs::provider::DeviceOps;

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
}

impl Shared {
    pub(crate) fn new(below: Arc<dyn DeviceOps>, is_strict: bool, card: Option<&'static Card>) -> Self {
        let (host, mut attr) = (below.host().clone(), below.attr().clone());
        attr.notes.push("its use is checked".to_owned());
        let name = format!("check({})", below.name());
        let (regions, destinations) = (Regions::default(), Mutex::default());
        let has_prepared = AtomicBool::new(false);
        Self { below, attr, name, host, is_strict, card, regions, destinations, has_prepared }
    }

    /// Whether this process may use the device; in a child of fork(2), a thread that is not there may hold a lock.
    pub(crate) fn is_usable(&self) -> bool {
        self.below.check().is_ok()
    }
}
