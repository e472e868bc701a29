//! What wakes the service (`service`), and ends it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::Result;

use crate::completion::announced::counter;

pub(crate) struct WakeUp {
    /// A descriptor that the thread sleeps on; none in virtual time.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    pub(crate) is_over: Arc<AtomicBool>,
}

impl WakeUp {
    pub(crate) fn new(is_virtual: bool) -> Result<Self> {
        Ok(Self { fd: counter(is_virtual)?.map(Arc::new), is_over: Arc::default() })
    }

    /// There is something new to sleep on.
    pub(crate) fn wake(&self) {
        if let Some(fd) = &self.fd {
            // A full counter wakes as well.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    /// The device goes, and its service with it.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake();
    }
}
