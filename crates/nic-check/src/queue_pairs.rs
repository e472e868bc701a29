//! [`Opened`]: an opened device with its queue pairs, and what completions and regions need of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};

use host::Lock;
use nic_util::sync::unpoisoned;
use verbs::Wc;

use crate::requests::{Request, Requests};
use crate::shared::Shared;

/// A queue pair, as completion queues and regions use it.
pub(crate) trait QueuePair: Send + Sync {
    /// Ends the send request of a completion, and those in front of it.
    fn end_sends(&self, wc: &Wc) -> Option<Request>;

    /// Ends the receive of a completion.
    fn end_receive(&self, wc: &Wc) -> Option<Request>;

    /// Reports what the status of a completion shows.
    fn explain(&self, wc: &Wc, request: &Request);

    /// Takes the first request that the NIC gets later, if it has this number.
    fn take_prepared(&self, wr_id: u64) -> Option<Request>;

    /// Whether it is in the error state.
    fn has_failed(&self) -> bool;

    /// Its outstanding sends, those that the NIC gets later, and its receives.
    fn all_requests(&self) -> [&Lock<Requests>; 3];
}

/// An opened device.
pub(crate) struct Opened {
    shared: Shared,
    /// Queue pairs by their numbers in completions. One that is connected to itself has two.
    qps: Mutex<BTreeMap<u32, Vec<Weak<dyn QueuePair>>>>,
}

impl Deref for Opened {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Opened {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, qps: Mutex::default() }
    }

    pub(crate) fn add_qp(&self, number: u32, qp: Weak<dyn QueuePair>) {
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
    pub(crate) fn qps(&self, number: u32) -> impl Iterator<Item = Arc<dyn QueuePair>> {
        let found: Vec<_> = match unpoisoned(&self.qps).get(&number) {
            Some(qps) => qps.iter().filter_map(Weak::upgrade).collect(),
            None => Vec::new(),
        };
        found.into_iter()
    }

    /// All queue pairs.
    pub(crate) fn all_qps(&self) -> Vec<Arc<dyn QueuePair>> {
        unpoisoned(&self.qps).values().flatten().filter_map(Weak::upgrade).collect()
    }
}
