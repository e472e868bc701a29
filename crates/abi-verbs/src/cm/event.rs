//! [`CmEvent`]: an event that the program has taken from a channel and not yet acknowledged.

use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

use ffi::{CBuffer, Out, lock};
use rdma_abi::cma::*;
use verbs::{ConnInfo, RNR_RETRY_FOREVER};

use crate::answer::Answer;
use crate::cm::c_fields::{write_id, write_path};
use crate::cm::id;
use crate::cm::service::Service;
use crate::errno::missing;
use crate::objects::{CmId, EventChannel, PendingCmEvent, Request};
use crate::qp::settings::RETRY_COUNT;
use crate::slab::{Handle, Held, Object, Slab};

/// An event that the program holds.
pub(crate) struct CmEvent {
    /// The identifier for which the acknowledgement counts.
    owner: Handle<CmId>,
    /// The private data, freed with the event.
    _lent: CBuffer,
}

impl Object for CmEvent {
    type C = rdma_cm_event;
    const NAME: &'static str = "rdma_cm_event";
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<CmEvent> = Slab::new();
        &SLAB
    }
}

/// Polls for an event; returns what to wait for if there is none.
pub(crate) fn rdma_get_cm_event(
    channel: Handle<EventChannel>,
    place: Out<Handle<CmEvent>>,
) -> Answer<Option<RawFd>> {
    let channel = channel.lookup()?;
    let place = place.required_or(|| missing("event"))?;
    match next_event(channel) {
        Some(event) => place.set(event),
        None => return channel.events.fd_to_wait_for(),
    }
    Ok(None)
}

/// Takes the next event of a channel for the program.
pub(crate) fn next_event(channel: Held<EventChannel>) -> Option<Handle<CmEvent>> {
    // A request for which no identifier can be created is rejected and not reported.
    std::iter::from_fn(|| channel.events.pop()).find_map(|pending| hand_out(pending).ok())
}

fn hand_out(pending: PendingCmEvent) -> Answer<Handle<CmEvent>> {
    let (owner, lent, depths) =
        (pending.id, CBuffer::new(&pending.private_data), pending.info.and_then(|info| info.depths));
    let (id, listener) = match pending.request {
        None => (owner, Handle::NULL),
        Some(request) => (requester(owner, request)?, owner),
    };
    let private_data = if lent.is_empty() { std::ptr::null() } else { lent.as_ptr() };
    let private_data_len = lent.len().try_into().unwrap_or(u8::MAX);
    let conn = rdma_conn_param {
        private_data,
        private_data_len,
        // The peer's initiator depth is what this side must be able to serve.
        responder_resources: depths.map_or(0, |depths| depths.initiator_depth),
        initiator_depth: depths.map_or(0, |depths| depths.responder_resources),
        flow_control: 0,
        retry_count: RETRY_COUNT,
        rnr_retry_count: pending.info.and_then(|info| info.rnr_retry).unwrap_or(RNR_RETRY_FOREVER),
        srq: 0,
        qp_num: pending.info.and_then(|info| info.qp_num).unwrap_or(0),
    };
    let ud = |service: Service| rdma_ud_param {
        private_data,
        private_data_len,
        ah_attr: service.vector(),
        qp_num: service.qp_num,
        qkey: service.qkey,
    };
    let param =
        pending.service.map_or(rdma_event_param { conn }, |service| rdma_event_param { ud: ud(service) });
    let seen = rdma_cm_event {
        id: id.cast(),
        listen_id: listener.cast(),
        event: pending.kind as c_int,
        status: pending.status,
        param,
    };
    let event = CmEvent::slab().insert(seen, CmEvent { owner, _lent: lent })?;
    if let Ok(owner) = owner.lookup() {
        owner.events.deliver();
    }
    Ok(event)
}

/// Creates the identifier that a program gets with a request, on the listener's channel.
fn requester(listener: Handle<CmId>, request: Request) -> Answer<Handle<CmId>> {
    let held = listener.lookup()?;
    let (channel, at) = {
        let state = lock(&held.state);
        (if state.is_sync { Handle::NULL } else { state.channel }, state.local)
    };
    let seen = held.c_part();
    let id = id::create_id(channel, seen.context, seen.ps)?;
    let new = id.lookup()?;
    let mut state = lock(&new.state);
    let ConnInfo { local, peer, rnr_retry, .. } = request.asked.request.info;
    state.context = request.context;
    state.local = at.filter(|at| !at.ip().is_unspecified()).or(Some(local));
    (state.peer, state.rnr_retry, state.request) = (Some(peer), rnr_retry, Some(request.asked));
    write_id(new, &state);
    write_path(new, &mut state);
    Ok(id)
}

pub(crate) fn rdma_ack_cm_event(event: Handle<CmEvent>) -> Answer {
    let CmEvent { owner, .. } = event.lookup()?.remove()?;
    if let Ok(owner) = owner.lookup() {
        owner.events.acknowledge(1);
    }
    Ok(())
}

pub(crate) fn rdma_event_str(event: i32) -> Answer<*const c_char> {
    let names = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|event| names.get(event)).copied();
    Ok(name.unwrap_or(c"UNKNOWN EVENT").as_ptr())
}
