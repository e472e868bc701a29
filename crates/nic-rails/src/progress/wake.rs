//! Wakes the service (`service`), and stops it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::Result;

use crate::completion::event_queue::counter;

pub(crate) struct WakeUp {
    /// The eventfd that the thread sleeps on; none in virtual time.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    pub(crate) is_stopped: Arc<AtomicBool>,
}

impl WakeUp {
    pub(crate) fn new(is_virtual: bool) -> Result<Self> {
        Ok(Self { fd: counter(is_virtual)?.map(Arc::new), is_stopped: Arc::default() })
    }

    /// Wakes the service: there is something new to wait for.
    pub(crate) fn wake(&self) {
        if let Some(fd) = &self.fd {
            // A full counter wakes as well.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    /// Stops the service with its device.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }
}
