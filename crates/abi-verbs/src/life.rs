//! [`Life`]: what a queue pair is until it is moved to RESET, and [`Lives`], which has one at a time.
//!
//! A queue pair of the device connects once. So a program's queue pair that is reset continues with another one of the device, which is
//! known by the same number ([`verbs::QpInit::known_as`]). Nothing of the former connection can reach the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use verbs::QpInit;

use crate::answer::Answer;
use crate::cm::connect;
use crate::engine::{Engine, Objects};
use crate::gate::Gate;
use crate::parted::Parting;
use crate::qp::Qp;
use crate::slab::Handle;
use crate::ud::Bridge;

/// A queue pair of the device, and the state of its connection.
pub(crate) struct Life {
    pub(crate) qp: verbs::Qp,
    pub(crate) gate: Gate,
    /// Of type UD: its other end.
    pub(crate) bridge: Option<Arc<Bridge>>,
    pub(crate) parting: Parting,
}

impl Life {
    /// Makes a queue pair of the device, and the other end of one of type UD, which is not connected yet.
    ///
    /// # Errors
    /// When the device has no such room left.
    pub(crate) fn make(engine: &Engine, pd: &verbs::Pd, init: &QpInit, is_datagram: bool) -> Answer<Self> {
        let qp = pd.create_qp(init)?;
        let bridge = is_datagram.then(|| engine.datagrams()?.bridge(qp.known_as(), &engine.pairing));
        let bridge = bridge.transpose()?;
        Ok(Self { qp, gate: Gate::default(), bridge, parting: Parting::default() })
    }

    /// Has the device's events reach the program's queue pair, and connects one of type UD with its other end.
    ///
    /// # Errors
    /// When the two cannot be connected.
    pub(crate) fn enter(&self, engine: &Engine, objects: &mut Objects, qp: Handle<Qp>) -> Answer {
        objects.lives.insert(self.qp.num(), qp);
        let Some(bridge) = &self.bridge else { return Ok(()) };
        engine.datagrams()?.join(&self.qp, bridge, &engine.pairing)
    }

    /// Sends the datagrams that were posted, because the program may have seen their completions. It may wait: the objects are not locked.
    pub(crate) fn drain(&self, engine: &Engine) {
        if let (Some(bridge), Ok(datagrams)) = (&self.bridge, engine.datagrams()) {
            datagrams.drain(std::slice::from_ref(bridge));
        }
    }

    /// Keeps the device's events from the program's queue pair. The identifier that has connected it reports the end of the connection.
    pub(crate) fn leave(&self, engine: &Engine, objects: &mut Objects) {
        let number = self.qp.num();
        objects.lives.remove(&number);
        objects.ids.remove(&number).into_iter().for_each(|id| connect::abandoned(engine, id));
        if let (Some(bridge), Ok(datagrams)) = (&self.bridge, engine.datagrams()) {
            datagrams.remove(bridge, &engine.pairing);
        }
    }
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
