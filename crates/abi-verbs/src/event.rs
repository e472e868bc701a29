//! Asynchronous events of a context, and how acknowledgements are counted.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use cface::Out;
use host::Bell;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_async_element, ibv_async_event};

use crate::answer::Answer;
use crate::context::Context;
use crate::cq::Cq;
use crate::errno::Errno;
use crate::qp::Qp;
use crate::slab::Handle;
use crate::srq::Srq;

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

/// What has happened to a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    QpAccessError,
    QpFatal,
    LastWqeReached,
}

/// Something that a program has not been told yet.
pub(crate) enum Event {
    Cq(Handle<Cq>),
    Qp(Handle<Qp>, Kind),
    Srq(Handle<Srq>),
}

pub(crate) fn of_cq(cq: Handle<Cq>) {
    if let Ok(held) = cq.look() {
        tell(held.context, Event::Cq(cq));
    }
}

pub(crate) fn of_qp(qp: Handle<Qp>, kind: Kind) {
    if let Ok(held) = qp.look() {
        tell(held.context, Event::Qp(qp, kind));
    }
}

pub(crate) fn of_srq(srq: Handle<Srq>) {
    if let Ok(held) = srq.look() {
        tell(held.context, Event::Srq(srq));
    }
}

fn tell(context: Handle<Context>, event: Event) {
    if let Ok(context) = context.look() {
        context.events.put(event);
    }
}

/// Looks for an event, and says what to wait for if there is none.
pub(crate) fn ibv_get_async_event(
    context: Handle<Context>,
    place: Out<ibv_async_event>,
) -> Answer<Option<RawFd>> {
    let context = context.look()?;
    let place = place.required(Errno::INVAL)?;
    while let Some(event) = context.events.take() {
        if let Some(event) = deliver(&event) {
            place.set(event);
            return Ok(None);
        }
    }
    context.events.until()
}

/// An event as C has it; nothing if its object has gone meanwhile.
fn deliver(event: &Event) -> Option<ibv_async_event> {
    let (element, kind) = match event {
        Event::Cq(cq) => {
            cq.look().ok()?.events.deliver();
            (ibv_async_element { cq: cq.cast() }, n::IBV_EVENT_CQ_ERR)
        }
        Event::Qp(qp, kind) => {
            qp.look().ok()?.events.deliver();
            let kind = match kind {
                Kind::QpAccessError => n::IBV_EVENT_QP_ACCESS_ERR,
                Kind::QpFatal => n::IBV_EVENT_QP_FATAL,
                Kind::LastWqeReached => n::IBV_EVENT_QP_LAST_WQE_REACHED,
            };
            (ibv_async_element { qp: qp.cast() }, kind)
        }
        Event::Srq(srq) => {
            srq.look().ok()?.events.deliver();
            (ibv_async_element { srq: srq.cast() }, n::IBV_EVENT_SRQ_LIMIT_REACHED)
        }
    };
    Some(ibv_async_event { element, event_type: kind as c_int })
}

pub(crate) fn ibv_ack_async_event(event: Out<ibv_async_event>) -> Answer {
    let event = event.get().ok_or(Errno::INVAL)?;
    // SAFETY: every field of the union is an address; which of them is meant is looked up, not followed. Test:
    // `nonsense_is_answered` in tests/programs.rs.
    let address = unsafe { event.element.cq };
    match event.event_type as u32 {
        n::IBV_EVENT_CQ_ERR => Handle::<Cq>::of(address).look()?.events.acknowledge(1),
        n::IBV_EVENT_QP_ACCESS_ERR | n::IBV_EVENT_QP_FATAL | n::IBV_EVENT_QP_LAST_WQE_REACHED => {
            Handle::<Qp>::of(address).look()?.events.acknowledge(1);
        }
        n::IBV_EVENT_SRQ_LIMIT_REACHED => Handle::<Srq>::of(address).look()?.events.acknowledge(1),
        _ => {}
    }
    Ok(())
}
