//! Asynchronous events of a context.

use std::ffi::c_int;
use std::os::fd::RawFd;

use ffi::{Out, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_async_element, ibv_async_event};

use crate::answer::Answer;
use crate::errno::missing;
use crate::objects::{AsyncQpEvent, Context, Cq, Engine, PendingAsyncEvent, Qp, Srq};
use crate::slab::Handle;

pub(crate) fn queue_cq_event(cq: Handle<Cq>) {
    if let Ok(held) = cq.lookup() {
        queue_event(held.context, PendingAsyncEvent::Cq(cq));
    }
}

pub(crate) fn queue_qp_event(qp: Handle<Qp>, kind: AsyncQpEvent) {
    if let Ok(held) = qp.lookup() {
        queue_event(held.context, PendingAsyncEvent::Qp(qp, kind));
    }
}

pub(crate) fn queue_srq_event(srq: Handle<Srq>) {
    if let Ok(held) = srq.lookup() {
        queue_event(held.context, PendingAsyncEvent::Srq(srq));
    }
}

/// Queues an event of a port or of the device for all contexts.
pub(crate) fn queue_context_event(engine: &Engine, event: impl Fn() -> PendingAsyncEvent) {
    lock(&engine.contexts).iter().for_each(|context| queue_event(*context, event()));
}

fn queue_event(context: Handle<Context>, event: PendingAsyncEvent) {
    if let Ok(context) = context.lookup() {
        context.events.push(event);
    }
}

/// Polls for an event; returns what to wait for if there is none.
pub(crate) fn ibv_get_async_event(
    context: Handle<Context>,
    place: Out<ibv_async_event>,
) -> Answer<Option<RawFd>> {
    let context = context.lookup()?;
    let place = place.required_or(|| missing("event"))?;
    while let Some(event) = context.events.pop() {
        if let Some(event) = deliver(&event) {
            place.set(event);
            return Ok(None);
        }
    }
    context.events.fd_to_wait_for()
}

/// Converts an event to C; `None` if its object was destroyed in the meantime.
fn deliver(event: &PendingAsyncEvent) -> Option<ibv_async_event> {
    let (element, kind) = match event {
        PendingAsyncEvent::Cq(cq) => {
            cq.lookup().ok()?.events.deliver();
            (ibv_async_element { cq: cq.cast() }, n::IBV_EVENT_CQ_ERR)
        }
        PendingAsyncEvent::Qp(qp, kind) => {
            qp.lookup().ok()?.events.deliver();
            let kind = match kind {
                AsyncQpEvent::QpAccessError => n::IBV_EVENT_QP_ACCESS_ERR,
                AsyncQpEvent::QpFatal => n::IBV_EVENT_QP_FATAL,
                AsyncQpEvent::LastWqeReached => n::IBV_EVENT_QP_LAST_WQE_REACHED,
            };
            (ibv_async_element { qp: qp.cast() }, kind)
        }
        PendingAsyncEvent::Port { kind, port } => (ibv_async_element { port_num: c_int::from(*port) }, *kind),
        PendingAsyncEvent::Device => (ibv_async_element { port_num: 0 }, n::IBV_EVENT_DEVICE_FATAL),
        PendingAsyncEvent::Srq(srq) => {
            srq.lookup().ok()?.events.deliver();
            (ibv_async_element { srq: srq.cast() }, n::IBV_EVENT_SRQ_LIMIT_REACHED)
        }
    };
    Some(ibv_async_event { element, event_type: kind as c_int })
}

pub(crate) fn ibv_ack_async_event(event: Out<ibv_async_event>) -> Answer {
    let event = event.get().ok_or_else(|| missing("event"))?;
    // SAFETY: called only for event types whose variant of the union is an address; all have the same representation. An event of a
    // port holds an `int`, so part of the address may be uninitialised there, and it is not read. The address is only compared with
    // known objects, not dereferenced. Test: `nonsense_is_answered` in tests/programs.rs.
    let address = || unsafe { event.element.cq };
    match event.event_type as u32 {
        n::IBV_EVENT_CQ_ERR => Handle::<Cq>::from_ptr(address()).lookup()?.events.acknowledge(1),
        n::IBV_EVENT_QP_ACCESS_ERR | n::IBV_EVENT_QP_FATAL | n::IBV_EVENT_QP_LAST_WQE_REACHED => {
            Handle::<Qp>::from_ptr(address()).lookup()?.events.acknowledge(1);
        }
        n::IBV_EVENT_SRQ_LIMIT_REACHED => Handle::<Srq>::from_ptr(address()).lookup()?.events.acknowledge(1),
        _ => {}
    }
    Ok(())
}
