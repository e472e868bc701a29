//! [`Life`]: what a queue pair is until it is moved to RESET, and [`Lives`], which has one at a time.
//!
//! A queue pair of the device connects once. So a program's queue pair that is reset continues with another one of the device, which is
//! known by the same number ([`verbs::QpInit::known_as`]). Nothing of the former connection can reach the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::qp::gate::Gate;
use crate::qp::parting::Parting;
use crate::ud::Bridge;

/// A queue pair of the device, and the state of its connection.
pub(crate) struct Life {
    pub(crate) qp: verbs::Qp,
    pub(crate) gate: Gate,
    /// Of type UD: its other end.
    pub(crate) bridge: Option<Arc<Bridge>>,
    pub(crate) parting: Parting,
}

/// The present life of a queue pair. A program does not reset a queue pair while another of its threads is inside a call with it, as the
/// manual pages say of destroying: readers are not counted. The engine's thread and pollers read it with the device's objects locked, and
/// `begin` is called with that lock held.
pub(crate) struct Lives(AtomicPtr<Life>);

impl Lives {
    pub(crate) fn new(first: Life) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(first))))
    }

    #[inline]
    pub(crate) fn present(&self) -> &Life {
        // SAFETY: it came from a box, and is freed after the next one began, when by the rule above nobody reads it. Test:
        // `queue_pairs_connect_again_after_reset` in tests/programs.rs.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Begins another one. The former one is returned, to be dropped after the objects are unlocked.
    pub(crate) fn begin(&self, next: Life) -> Box<Life> {
        let former = self.0.swap(Box::into_raw(Box::new(next)), Ordering::AcqRel);
        // SAFETY: it came from a box, and only the swap that removed it takes it back. Test: as above.
        unsafe { Box::from_raw(former) }
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        // SAFETY: as in `begin`; nobody reads it any more. Test: as above.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}
