//! Connection attempts, which are retried for a while when nobody listens yet.

use ffi::lock;
use verbs::CmFailure;
use verbs::host::Span;

use crate::answer::Answer;
use crate::cm::outcome::failed;
use crate::objects::{
    CmId, CmIdState, CmPhase, ConnectAttempt, DelayedTask, Engine, LocalEnd, Objects, Qp, ReservedPort,
};
use crate::qp::settings::pause;
use crate::slab::{Handle, Held};

/// How long connecting is retried, and how often.
pub(crate) const GRACE: Span = Span::from_ms(500);
const PAUSE: Span = Span::from_ms(10);

/// Sets the RNR pause of a queue pair that librdmacm has created to the maximum, as the kernel's RDMA-CM does. For its own queue pairs
/// the program sets the pause.
pub(crate) fn set_pause(state: &CmIdState, qp: Held<Qp>) {
    if state.qp == qp.handle() {
        // Fails only on a device without RNR pauses.
        let _ = qp.verbs().set_rnr_pause(pause(0));
    }
}

impl ConnectAttempt {
    /// Starts to connect, with a queue pair or without, from the address that the identifier holds. Returns the queue pair number.
    pub(crate) fn start(
        &self,
        engine: &Engine,
        state: &CmIdState,
        qp: Option<Held<Qp>>,
    ) -> Answer<(LocalEnd, u32)> {
        let (cm, addr, param) = (&engine.cm, self.addr, &self.param);
        let port = state.ports.first().and_then(ReservedPort::port);
        let Some(qp) = qp else {
            let bare = match port {
                Some(port) => cm.connect_without_qp_from(port, addr, param)?,
                None => cm.connect_without_qp(addr, param)?,
            };
            let number = bare.num();
            return Ok((LocalEnd::Bare(Box::new(bare)), number));
        };
        set_pause(state, qp);
        match port {
            Some(port) => cm.connect_from(port, qp.verbs(), addr, param)?,
            None => cm.connect(qp.verbs(), addr, param)?,
        }
        Ok((LocalEnd::Qp(qp.handle()), qp.verbs().num()))
    }
}

/// Handles a failed connection attempt: retries it early on, and reports the failure later.
pub(crate) fn not_connected(engine: &Engine, id: Held<CmId>, why: &CmFailure) {
    let now = engine.device.host().now();
    let is_early = |state: &CmIdState| state.attempt.as_ref().is_some_and(|attempt| now < attempt.until);
    // A forwarder (a container's proxy, a guest's network) accepts a connection for which nobody listens, and then closes it.
    if matches!(why, CmFailure::Refused(_) | CmFailure::PeerGone) && is_early(&lock(&id.state)) {
        engine.schedule(now + PAUSE, id.handle(), DelayedTask::Connect);
    } else {
        failed(id, why);
    }
}

/// Retries the connection of an identifier.
pub(crate) fn retry(engine: &Engine, objects: &mut Objects, id: Handle<CmId>) {
    let Ok(held) = id.lookup() else { return };
    let mut state = lock(&held.state);
    let Some(attempt) = state.attempt.as_ref().filter(|_| state.phase == CmPhase::Connecting) else { return };
    let qp = match &state.end {
        LocalEnd::Qp(qp) => qp.lookup().ok(),
        _ => None,
    };
    if let Ok((end, number)) = attempt.start(engine, &state, qp) {
        objects.ids.retain(|_, known| *known != id);
        objects.ids.insert(number, id);
        state.end = end;
    } else {
        drop(state);
        failed(held, &CmFailure::PeerGone);
    }
}
