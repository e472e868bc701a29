//! Connection manager events: how establishment and end of connections are reported to the program.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use host::Wake;
use verbs::{CmEvent, Result};

/// The events of one event channel; a connection request comes with the number of its listener.
pub(crate) struct CmEvents(nic_util::events::EventQueue<(Option<u64>, CmEvent)>);

impl CmEvents {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(nic_util::events::EventQueue::new()?))
    }

    /// Adds an event and wakes waiting threads.
    pub(crate) fn push(&self, event: CmEvent) {
        self.0.push((None, event));
    }

    /// Adds a connection request of a listener; drops it if the listener is no longer `open`.
    pub(crate) fn push_request(&self, listener: u64, open: &AtomicBool, event: CmEvent) {
        self.0.push_if((Some(listener), event), || open.load(Ordering::Acquire));
    }

    /// Takes the first event; `on_memory_freed` is called if a large queue has become empty and its memory was freed.
    pub(crate) fn take(&self, on_memory_freed: impl FnOnce()) -> Option<CmEvent> {
        self.0.pop(on_memory_freed).map(|(_, event)| event)
    }

    /// Rejects a listener's requests that the program has not taken, by dropping them.
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
