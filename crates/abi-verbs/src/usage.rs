//! What keeps an object from being destroyed: objects that use it, and events that are not acknowledged.

use std::sync::atomic::{AtomicU32, Ordering};

use host::Bell;

use crate::answer::Answer;
use crate::errno::Errno;

/// How many objects need this one: it does not go away before them.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says whether it may go away.
    ///
    /// # Errors
    /// [`Errno::BUSY`] while there are any.
    pub(crate) fn check_none(&self) -> Answer {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Errno::BUSY) }
    }
}

/// Events that a program was given and has not acknowledged: an object goes away after that.
#[derive(Default)]
pub(crate) struct Acks {
    open: AtomicU32,
    changed: Bell,
}

impl Acks {
    pub(crate) fn deliver(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn acknowledge(&self, count: u32) {
        let fewer = |open: u32| Some(open.saturating_sub(count));
        // A program that acknowledges more than it was given owes nothing.
        let _ = self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
        host::real::host().ring(&self.changed);
    }

    /// Waits until all are acknowledged, as the manual pages of `ibv_destroy_*` have it.
    pub(crate) fn await_all(&self) {
        let look = || (self.open.load(Ordering::Acquire) == 0).then_some(());
        if look().is_none() {
            host::real::host().wait("acknowledgements", &self.changed, None, look);
        }
    }
}
