//! Events of connections in the making, and of their ends: from whoever works on a connection to the program.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use host::Wake;
use verbs::{CmEvent, Result};

/// The events of a channel of the connection manager, with the listener that they came to.
pub(crate) struct Events(nic_util::events::Events<(Option<u64>, CmEvent)>);

impl Events {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(nic_util::events::Events::new()?))
    }

    /// Adds an event and wakes who waits for one.
    pub(crate) fn push(&self, event: CmEvent) {
        self.0.push((None, event));
    }

    /// A request came to a listener, which may not be `open` any more: then nobody gets it.
    pub(crate) fn push_request(&self, listener: u64, open: &AtomicBool, event: CmEvent) {
        self.0.push_if((Some(listener), event), || open.load(Ordering::Acquire));
    }

    /// Takes the first event; `on_ebb` is called if that has emptied the room of a crowd, which is given back.
    pub(crate) fn take(&self, on_ebb: impl FnOnce()) -> Option<CmEvent> {
        self.0.pop(on_ebb).map(|(_, event)| event)
    }

    /// Requests that came to a listener and that nobody has taken are answered: by dropping them, they are rejected.
    pub(crate) fn drop_requests_of(&self, listener: u64) {
        drop(self.0.take_out(|(of, _)| *of == Some(listener)));
    }

    pub(crate) fn prepare_wait(&self) -> Wake<'_> {
        self.0.prepare_wait()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}
