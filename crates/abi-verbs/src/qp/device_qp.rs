//! [`DeviceQp`]: a queue pair of the device, used until the program's queue pair is reset. [`CurrentDeviceQp`] holds the current one.
//!
//! A queue pair of the device connects once. So a program's queue pair that is reset continues with another one of the device, which
//! has the same visible number ([`verbs::QpInit::reported_qp_num`]). Nothing of the former connection can reach the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::qp::disconnect_hold::DisconnectHold;
use crate::qp::gate::Gate;
use crate::ud::Bridge;

/// A queue pair of the device, and the state of its connection.
pub(crate) struct DeviceQp {
    pub(crate) qp: verbs::Qp,
    pub(crate) gate: Gate,
    /// For UD: the bridge at its other end.
    pub(crate) bridge: Option<Arc<Bridge>>,
    pub(crate) disconnect_hold: DisconnectHold,
    /// The log has the reason of its failure.
    pub(crate) is_explained: AtomicBool,
}

/// The current device queue pair of a queue pair. A program must not reset a queue pair while another of its threads uses it in a call, as the
/// manual pages require for destroying, so readers are not counted. The engine's thread and pollers read it with the device's objects
/// locked, and `begin` is called with that lock held.
pub(crate) struct CurrentDeviceQp(AtomicPtr<DeviceQp>);

impl CurrentDeviceQp {
    pub(crate) fn new(first: DeviceQp) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(first))))
    }

    #[inline]
    pub(crate) fn get(&self) -> &DeviceQp {
        // SAFETY: created from a box, and freed after the next one began, when by the rule above it has no readers. Test:
        // `queue_pairs_connect_again_after_reset` in tests/programs.rs.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Installs the next device queue pair. The caller drops the returned former one after unlocking the objects.
    pub(crate) fn begin(&self, next: DeviceQp) -> Box<DeviceQp> {
        let former = self.0.swap(Box::into_raw(Box::new(next)), Ordering::AcqRel);
        // SAFETY: created from a box, and only the swap that removed it takes it back. Test: as above.
        unsafe { Box::from_raw(former) }
    }
}

impl Drop for CurrentDeviceQp {
    fn drop(&mut self) {
        // SAFETY: as in `begin`; it has no readers any more. Test: as above.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}
