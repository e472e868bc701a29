//! [`CmEvents`]: the events of one channel of the API.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::Wake;
use nic_util::events::EventQueue;
use verbs::{CmEvent, Result};

/// Events in order; a connect request comes with the number of its listener.
pub(crate) struct CmEvents(EventQueue<(Option<u64>, CmEvent)>);

impl CmEvents {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(EventQueue::new()?)))
    }

    pub(crate) fn push(&self, event: CmEvent) {
        self.0.push((None, event));
    }

    /// Adds a request of a listener; drops it, which rejects it, if the listener is no longer `open`.
    pub(crate) fn push_request(&self, listener: u64, open: &AtomicBool, event: CmEvent) {
        self.0.push_if((Some(listener), event), || open.load(Ordering::Acquire));
    }

    pub(crate) fn take(&self) -> Option<CmEvent> {
        self.0.pop(|| {}).map(|(_, event)| event)
    }

    /// Rejects the requests of a listener that the program has not taken, by dropping them.
    pub(crate) fn drop_requests_of(&self, listener: u64) {
        drop(self.0.extract_if(|(of, _)| *of == Some(listener)));
    }

    pub(crate) fn prepare_wait(&self) -> Wake<'_> {
        self.0.prepare_wait()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}
