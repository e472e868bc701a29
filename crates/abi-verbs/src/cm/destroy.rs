//! Disconnecting and destroying identifiers, and moving them to another channel.

use ffi::lock;
use rdma_abi::numbers as n;

use crate::answer::Answer;
use crate::cm::event::{CmEvent, rdma_ack_cm_event};
use crate::cm::{channel, reserve, shared};
use crate::errno::Errno;
use crate::objects::{CmId, End, EventChannel, Phase, State};
use crate::qp::settings::show;
use crate::slab::{Handle, Held};

/// Disconnects, unless the connection has ended already.
///
/// # Errors
/// [`Errno::INVAL`] if there is no connection.
pub(crate) fn end(state: &mut State) -> Answer {
    match state.phase {
        Phase::Over => return Ok(()),
        Phase::Connected => {}
        _ => return Err(Errno::INVAL),
    }
    let engine = state.engine()?;
    match &state.end {
        End::Qp(qp) => {
            let qp = qp.look()?;
            engine.cm.disconnect(qp.verbs())?;
            show(qp, n::IBV_QPS_ERR);
        }
        End::Bare(bare) => engine.cm.disconnect_id(bare)?,
        End::None => return Err(Errno::INVAL),
    }
    state.is_leaving = true;
    Ok(())
}

pub(crate) fn rdma_destroy_id(id: Handle<CmId>) -> Answer {
    let held = id.look()?;
    for context in shared::contexts() {
        let mut objects = lock(&context.engine.objects);
        objects.ids.retain(|_, known| *known != id);
        lock(&context.engine.later).retain(|(_, known, _)| *known != id);
    }
    let ports = reserve::give_up(held);
    // From here on no events reach the identifier.
    let (channel, is_sync, ended) = {
        let mut state = lock(&held.state);
        let _ = end(&mut state);
        let end = std::mem::replace(&mut state.end, End::None);
        (state.channel, state.is_sync, (state.request.take(), end))
    };
    drop((ended, ports));
    drop(channel::withdraw(channel, id));
    acknowledge(held);
    held.events.await_all();
    drop(held.remove()?);
    if is_sync { channel::rdma_destroy_event_channel(channel) } else { Ok(()) }
}

/// Acknowledges the event of the last synchronous call.
pub(crate) fn acknowledge(id: Held<CmId>) {
    let event = Handle::<CmEvent>::of(id.seen().event);
    id.show(|seen| seen.event = std::ptr::null_mut());
    // The program may have acknowledged it already.
    let _ = rdma_ack_cm_event(event);
}

/// Moves an identifier with its pending events to another channel, or to a channel of its own.
pub(crate) fn rdma_migrate_id(id: Handle<CmId>, channel: Handle<EventChannel>) -> Answer {
    let held = id.look()?;
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::rdma_create_event_channel()? } else { channel.look()?.handle() };
    let (before, was_sync) = {
        let mut state = lock(&held.state);
        let before = (state.channel, state.is_sync);
        (state.channel, state.is_sync) = (channel, is_sync);
        channel::withdraw(before.0, id).into_iter().for_each(|news| channel::tell(channel, news));
        before
    };
    held.show(|seen| seen.channel = channel.cast());
    if was_sync {
        acknowledge(held);
        channel::rdma_destroy_event_channel(before)?;
    }
    Ok(())
}
