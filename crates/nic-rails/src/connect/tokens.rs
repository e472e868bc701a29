//! [`Tokens`]: accepted queue pairs by the token with which the further lanes of their connection are requested.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use crate::lock::unpoisoned;
use crate::qp::QpInner;

#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<u64, Weak<QpInner>>>);

impl Tokens {
    pub(crate) fn add(&self, token: u64, qp: &Arc<QpInner>) {
        unpoisoned(&self.0).insert(token, Arc::downgrade(qp));
    }

    pub(crate) fn remove(&self, token: u64) {
        unpoisoned(&self.0).remove(&token);
    }

    pub(crate) fn contains(&self, token: u64) -> bool {
        unpoisoned(&self.0).get(&token).is_some_and(|qp| qp.strong_count() > 0)
    }

    pub(crate) fn get(&self, token: u64) -> Option<Arc<QpInner>> {
        unpoisoned(&self.0).get(&token).and_then(Weak::upgrade)
    }
}
