//! Disconnecting and destroying identifiers, and moving them to another channel.

use ffi::lock;
use rdma_abi::numbers as n;

use crate::answer::Answer;
use crate::cm::event::{CmEvent, rdma_ack_cm_event};
use crate::cm::{channel, reserve, shared};
use crate::errno::errno;
use crate::objects::{CmId, CmIdState, CmPhase, EventChannel, LocalEnd};
use crate::qp::settings::set_visible_state;
use crate::slab::{Handle, Held};

/// Disconnects, unless the connection has ended already.
///
/// # Errors
/// [`Errno::INVAL`](crate::errno::Errno::INVAL) if there is no connection.
pub(crate) fn disconnect(state: &mut CmIdState) -> Answer {
    match state.phase {
        CmPhase::Closed => return Ok(()),
        CmPhase::Connected => {}
        phase => return Err(errno!(INVAL, "the id {}, so there is nothing to disconnect", phase.text())),
    }
    let engine = state.engine()?;
    match &state.end {
        LocalEnd::Qp(qp) => {
            let qp = qp.lookup()?;
            engine.cm.disconnect(qp.verbs())?;
            set_visible_state(qp, n::IBV_QPS_ERR);
        }
        LocalEnd::Bare(bare) => engine.cm.disconnect_id(bare)?,
        LocalEnd::None => return Err(errno!(INVAL, "the id has no connection; it was never established")),
    }
    state.is_leaving = true;
    Ok(())
}

/// Ends an attempt to connect that has not finished: nothing else would, as the queue pair stays. A card has only to forget it.
fn give_up_attempt(state: &CmIdState) {
    if let (CmPhase::Connecting, LocalEnd::Qp(qp)) = (state.phase, &state.end)
        && let Ok(qp) = qp.lookup()
    {
        qp.verbs().to_error();
    }
}

pub(crate) fn rdma_destroy_id(id: Handle<CmId>) -> Answer {
    let held = id.lookup()?;
    for context in shared::contexts() {
        let mut objects = lock(&context.engine.objects);
        objects.ids.retain(|_, known| *known != id);
        lock(&context.engine.delayed_tasks).retain(|(_, known, _)| *known != id);
    }
    let ports = reserve::release(held);
    // From here on no events reach the identifier.
    let (channel, is_sync, ended) = {
        let mut state = lock(&held.state);
        let _ = disconnect(&mut state);
        give_up_attempt(&state);
        let end = std::mem::replace(&mut state.end, LocalEnd::None);
        (state.channel, state.is_sync, (state.request.take(), end))
    };
    drop((ended, ports));
    drop(channel::remove_events(channel, id));
    acknowledge(held);
    held.events.await_all(held, "rdma_ack_cm_event");
    drop(held.remove()?);
    if is_sync { channel::rdma_destroy_event_channel(channel) } else { Ok(()) }
}

/// Acknowledges the event of the last synchronous call.
pub(crate) fn acknowledge(id: Held<CmId>) {
    let event = Handle::<CmEvent>::from_ptr(id.c_part().event);
    id.update_c(|seen| seen.event = std::ptr::null_mut());
    // The program may have acknowledged it already.
    let _ = rdma_ack_cm_event(event);
}

/// Moves an identifier with its pending events to another channel, or to a channel of its own.
pub(crate) fn rdma_migrate_id(id: Handle<CmId>, channel: Handle<EventChannel>) -> Answer {
    let held = id.lookup()?;
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::of_one_id()? } else { channel.lookup()?.handle() };
    let (before, was_sync) = {
        let mut state = lock(&held.state);
        let before = (state.channel, state.is_sync);
        (state.channel, state.is_sync) = (channel, is_sync);
        channel::remove_events(before.0, id)
            .into_iter()
            .for_each(|pending| channel::queue_event(channel, pending));
        before
    };
    held.update_c(|seen| seen.channel = channel.cast());
    if was_sync {
        acknowledge(held);
        channel::rdma_destroy_event_channel(before)?;
    }
    Ok(())
}
