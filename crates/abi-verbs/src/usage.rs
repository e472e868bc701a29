//! Counters that prevent destroying an object: objects that use it, and unacknowledged events.

use std::sync::atomic::{AtomicU32, Ordering};

use host::EventCount;

use crate::answer::Answer;
use crate::errno::errno;
use crate::slab::{Held, Object};

/// Counts the objects that use this one, which cannot be destroyed before them.
#[derive(Default)]
pub(crate) struct UseCount(AtomicU32);

impl UseCount {
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Checks that no object uses it. `users` names the kinds of objects that may.
    ///
    /// # Errors
    /// [`crate::errno::Errno::BUSY`] otherwise.
    pub(crate) fn check_none(&self, users: &str) -> Answer {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => Err(errno!(BUSY, "{count} of its {users} still exist; destroy them first")),
        }
    }
}

/// Counts events that a program has taken and not acknowledged. Destroying an object waits for their acknowledgement.
#[derive(Default)]
pub(crate) struct EventAcks {
    open: AtomicU32,
    changed: EventCount,
}

impl EventAcks {
    pub(crate) fn deliver(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn acknowledge(&self, count: u32) {
        let fewer = |open: u32| Some(open.saturating_sub(count));
        // Extra acknowledgements are ignored.
        let _ = self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
        host::real::host().notify(&self.changed);
    }

    /// Waits until all events of an object are acknowledged by `call`, as the manual pages of `ibv_destroy_*` require.
    pub(crate) fn await_all<T: Object>(&self, object: Held<T>, call: &str) {
        let look = || (self.open.load(Ordering::Acquire) == 0).then_some(());
        if look().is_none() {
            if fabric::is_checked() {
                let open = self.open.load(Ordering::Relaxed);
                fabric::unacknowledged(T::NAME, object.handle().addr(), open, call);
            }
            host::real::host().wait("acknowledgements", &self.changed, None, look);
        }
    }
}
