//! Connection events of a device, and the events of librdmacm that result from them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::MutexGuard;

use ffi::{lock, log};
use rdma_abi::numbers as n;
use verbs::host::{Span, Time};
use verbs::{CmFailure, ConnInfo, ConnectRequest};

use crate::cm::c_fields::write_id;
use crate::cm::channel;
use crate::cm::id::queue_id_event;
use crate::cm::service::{self, Service};
use crate::cm::shared::context_of;
use crate::discovery::device::{self, DeviceKind};
use crate::objects::{
    CmId, CmIdState, CmPhase, DelayedTask, Engine, LocalEnd, PendingCmEvent, Request, UnansweredRequest,
};
use crate::qp::settings::set_visible_state;
use crate::slab::{Handle, Held};

/// Time-wait: how long packets of an ended connection may still arrive. Cards wait half a second to some seconds before they reuse the
/// queue pair (IBA 12.9.8.4). Here nothing arrives late, but programs wait for the event.
const TIME_WAIT: Span = Span::from_ms(500);

/// How long the end of a connection waits for the program to poll earlier completions, and how often that is checked.
pub(crate) const UNPOLLED: Span = Span::from_ms(100);
const LOOK: Span = Span::from_ms(1);

/// A connect request has arrived.
pub(crate) fn requested(engine: &Engine, request: ConnectRequest) {
    let local = request.info.local;
    let is_at = |at: &SocketAddr| at.ip() == local.ip() || at.ip().is_unspecified();
    // The lock keeps the listener from being destroyed.
    let objects = lock(&engine.objects);
    let listener = objects.listeners.iter().find(|(at, _)| at.port() == local.port() && is_at(at));
    // Dropping a request rejects it.
    let Some((_, id)) = listener else { return };
    let (Ok(listener), Some(context)) = (id.lookup(), context_of(engine)) else { return };
    let mut state = lock(&listener.state);
    let (private_data, service) = match (service::decode_query(&request.private_data), state.is_datagram) {
        (Some(asked), true) => (asked.to_vec(), Some(Service::default())),
        (None, false) => (request.private_data.clone(), None),
        _ => return,
    };
    let Some(place) = state.backlog.place() else { return };
    let info = Some(request.info);
    let asked = UnansweredRequest { request, _place: place };
    let pending = PendingCmEvent {
        private_data,
        info,
        service,
        request: Some(Request { asked, context }),
        ..PendingCmEvent::new(*id, n::RDMA_CM_EVENT_CONNECT_REQUEST, 0)
    };
    match &mut state.early {
        Some(early) => early.push(pending),
        None => channel::queue_event(state.channel, pending),
    }
}

/// The connection is established.
pub(crate) fn on_established(id: Held<CmId>, private_data: Vec<u8>, info: &ConnInfo) {
    let mut state = lock(&id.state);
    if state.is_datagram {
        // The listener there accepts connections and is not a datagram service.
        state.end = LocalEnd::None;
        drop(state);
        return failed(id, &CmFailure::PeerGone);
    }
    // On this event, a program with a queue pair of its own moves it to RTS and then calls rdma_establish. iWARP has no such step.
    let is_response =
        state.phase == CmPhase::Connecting && state.qp.is_null() && device::device_kind() == DeviceKind::Hca;
    (state.phase, state.rnr_retry) = (CmPhase::Connected, state.rnr_retry.or(info.rnr_retry));
    if let LocalEnd::Qp(qp) = &state.end
        && let Ok(qp) = qp.lookup()
    {
        qp.established();
        // An RNIC's driver moves every queue pair of a connection.
        if state.qp == qp.handle() || device::device_kind() == DeviceKind::Rnic {
            set_visible_state(qp, n::IBV_QPS_RTS);
        }
    }
    if state.local.is_none_or(|local| local.port() == 0) {
        let ip = state.local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip());
        let ip = if ip.is_unspecified() { info.local.ip() } else { ip };
        state.local = Some(SocketAddr::new(ip, info.local.port()));
        write_id(id, &state);
    }
    let kind = if is_response { n::RDMA_CM_EVENT_CONNECT_RESPONSE } else { n::RDMA_CM_EVENT_ESTABLISHED };
    let pending =
        PendingCmEvent { private_data, info: Some(*info), ..PendingCmEvent::new(id.handle(), kind, 0) };
    channel::queue_event(state.channel, pending);
}

/// The peer's program has rejected the request (consumer reject in InfiniBand's terms).
const REJECTED_BY_CONSUMER: c_int = 28;
/// No listener (invalid service ID in InfiniBand's terms).
const NO_SERVICE: c_int = 8;

/// Status of a datagram service that does not exist, and of a service whose program rejects (IBA 13.8.2).
const UNSUPPORTED: c_int = 1;
const REFUSED: c_int = 2;

/// The peer has rejected the request, or has answered with a datagram service.
pub(crate) fn on_rejected(id: Held<CmId>, private_data: Vec<u8>) {
    let state = give_up(&id);
    if let Some((service, said)) = Service::decode(&private_data).filter(|_| state.is_datagram) {
        let pending = PendingCmEvent::new(id.handle(), n::RDMA_CM_EVENT_ESTABLISHED, 0);
        let pending = PendingCmEvent { private_data: said.to_vec(), service: Some(service), ..pending };
        return channel::queue_event(state.channel, pending);
    }
    report(&state, "the peer's program has rejected the request; see its log, and what private_data says");
    let pending = match state.is_datagram {
        true => PendingCmEvent {
            service: Some(Service::default()),
            ..PendingCmEvent::new(id.handle(), n::RDMA_CM_EVENT_UNREACHABLE, REFUSED)
        },
        false => PendingCmEvent::new(id.handle(), n::RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER),
    };
    channel::queue_event(state.channel, PendingCmEvent { private_data, ..pending });
}

/// Reports a failed attempt to connect to the log of failed calls.
#[cold]
fn report(state: &CmIdState, why: &str) {
    if log::reports_errors() {
        let peer = state.peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string());
        log::failure("rdma_connect", &format!("the id cannot be connected to {peer}: {why}"));
    }
}

/// The connection has failed.
pub(crate) fn failed(id: Held<CmId>, why: &CmFailure) {
    let state = give_up(&id);
    report(&state, &why.to_string());
    let (kind, status) = match why {
        CmFailure::Refused(_) if state.is_datagram => (n::RDMA_CM_EVENT_UNREACHABLE, UNSUPPORTED),
        _ if state.is_datagram => (n::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        CmFailure::Refused(_) => (n::RDMA_CM_EVENT_REJECTED, NO_SERVICE),
        CmFailure::TimedOut | CmFailure::Unreachable(..) => (n::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        _ => (n::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET),
    };
    queue_id_event(id, &state, kind, status);
}

/// Ends the connection attempt. Current and later requests of the identifier's queue pair are flushed; a program that created one
/// itself moves it on itself.
fn give_up(id: &Held<CmId>) -> MutexGuard<'_, CmIdState> {
    let mut state = lock(&id.state);
    state.phase = CmPhase::Closed;
    if let LocalEnd::Qp(qp) = &state.end
        && state.qp == *qp
        && let Ok(qp) = qp.lookup()
    {
        qp.failed();
        set_visible_state(qp, n::IBV_QPS_ERR);
    }
    state
}

/// The connection has ended. If the peer ended it, the event waits, at most until `until`, for the program to poll all successful
/// completions of sends and receives. A card reports the end a while after its last completion; programs destroy the queue pair on this
/// event and would lose completions that they have not polled.
pub(crate) fn on_connection_end(engine: &Engine, id: Held<CmId>, until: Time) {
    let state = lock(&id.state);
    let qp = match &state.end {
        LocalEnd::Qp(qp) if state.phase == CmPhase::Connected && !state.is_leaving => qp.lookup().ok(),
        _ => None,
    };
    drop(state);
    let now = engine.device.host().now();
    if now < until && qp.is_some_and(|qp| qp.verbs().has_completed()) {
        engine.schedule(now + LOOK, id.handle(), DelayedTask::End(until));
    } else {
        on_disconnected(engine, id);
    }
}

/// Reports the end of a connection.
fn on_disconnected(engine: &Engine, id: Held<CmId>) {
    let mut state = lock(&id.state);
    if state.phase == CmPhase::Closed {
        return;
    }
    state.phase = CmPhase::Closed;
    if let LocalEnd::Qp(qp) = &state.end
        && let Ok(qp) = qp.lookup()
    {
        set_visible_state(qp, n::IBV_QPS_ERR);
    }
    queue_id_event(id, &state, n::RDMA_CM_EVENT_DISCONNECTED, 0);
    // iWARP has no time-wait state.
    if device::device_kind() == DeviceKind::Hca {
        engine.schedule(engine.device.host().now() + TIME_WAIT, id.handle(), DelayedTask::TimeWait);
    }
}

/// Reports the end of time-wait: the queue pair may be reused.
pub(crate) fn end_time_wait(id: Held<CmId>) {
    queue_id_event(id, &lock(&id.state), n::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

/// The program destroys or resets a connected queue pair. The device reports no further events for it.
pub(crate) fn on_request_abandoned(engine: &Engine, id: Handle<CmId>) {
    let Ok(id) = id.lookup() else { return };
    let phase = lock(&id.state).phase;
    match phase {
        CmPhase::Connected => on_disconnected(engine, id),
        CmPhase::Connecting | CmPhase::Accepting => failed(id, &CmFailure::PeerGone),
        _ => {}
    }
}
