//! The device's queue pair behind a program's: making it, and registering it with the engine while it is in use.

use verbs::QpInit;

use crate::answer::Answer;
use crate::cm::outcome;
use crate::objects::{Engine, Objects, Qp};
use crate::qp::gate::Gate;
use crate::qp::life::Life;
use crate::qp::parting::Parting;
use crate::slab::Handle;

impl Life {
    /// Makes a queue pair of the device, and the other end of one of type UD, which is not connected yet.
    ///
    /// # Errors
    /// When the device has no more queue pairs.
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
        objects.ids.remove(&number).into_iter().for_each(|id| outcome::abandoned(engine, id));
        if let (Some(bridge), Ok(datagrams)) = (&self.bridge, engine.datagrams()) {
            datagrams.remove(bridge, &engine.pairing);
        }
    }
}
