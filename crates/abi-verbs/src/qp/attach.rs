//! The device's queue pair behind a program's: creating it, and registering it with the engine while it is in use.

use std::sync::atomic::AtomicBool;

use verbs::QpInit;

use crate::answer::Answer;
use crate::cm::outcome;
use crate::objects::{Engine, Objects, Qp};
use crate::qp::device_qp::DeviceQp;
use crate::qp::disconnect_hold::DisconnectHold;
use crate::qp::gate::Gate;
use crate::slab::Handle;

impl DeviceQp {
    /// Creates a queue pair of the device and, for UD, the bridge at its other end, which is not connected yet.
    ///
    /// # Errors
    /// When the device has no more queue pairs.
    pub(crate) fn create(engine: &Engine, pd: &verbs::Pd, init: &QpInit, is_datagram: bool) -> Answer<Self> {
        let qp = pd.create_qp(init)?;
        let bridge = is_datagram.then(|| engine.datagrams()?.bridge(qp.reported_qp_num(), &engine.pairing));
        let bridge = bridge.transpose()?;
        let (gate, disconnect_hold) = (Gate::default(), DisconnectHold::default());
        Ok(Self { qp, gate, bridge, disconnect_hold, is_explained: AtomicBool::new(false) })
    }

    /// Routes the device's events to the program's queue pair, and connects a UD queue pair with its bridge.
    ///
    /// # Errors
    /// When the two cannot be connected.
    pub(crate) fn register(&self, engine: &Engine, objects: &mut Objects, qp: Handle<Qp>) -> Answer {
        objects.qps_by_device_number.insert(self.qp.num(), qp);
        let Some(bridge) = &self.bridge else { return Ok(()) };
        engine.datagrams()?.join(&self.qp, bridge, &engine.pairing)
    }

    /// Sends the datagrams that were posted, because the program may have seen their completions. It may block, so the caller must not
    /// hold the lock of the objects.
    pub(crate) fn drain(&self, engine: &Engine) {
        if let (Some(bridge), Ok(datagrams)) = (&self.bridge, engine.datagrams()) {
            datagrams.drain(std::slice::from_ref(bridge));
        }
    }

    /// Stops routing the device's events to the program's queue pair. The identifier that connected it reports the end of the
    /// connection.
    pub(crate) fn unregister(&self, engine: &Engine, objects: &mut Objects) {
        let number = self.qp.num();
        objects.qps_by_device_number.remove(&number);
        objects.ids.remove(&number).into_iter().for_each(|id| outcome::on_request_abandoned(engine, id));
        if let (Some(bridge), Ok(datagrams)) = (&self.bridge, engine.datagrams()) {
            datagrams.remove(bridge, &engine.pairing);
        }
    }
}
