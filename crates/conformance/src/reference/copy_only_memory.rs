//! NIC memory that is accessed by copies only, as on cards without a window for load and store.

use std::sync::{Mutex, MutexGuard, PoisonError};

use verbs::provider::DmOps;

pub(super) struct CopyOnlyMemory(Mutex<Vec<u8>>);

impl CopyOnlyMemory {
    pub(super) fn new(len: usize) -> Self {
        Self(Mutex::new(vec![0; len]))
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DmOps for CopyOnlyMemory {
    fn write(&self, at: u64, bytes: &[u8]) {
        self.bytes()[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes()[at as usize..][..bytes.len()]);
    }
}
