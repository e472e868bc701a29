//! Connection events of a device, and the events of librdmacm that result from them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::MutexGuard;

use ffi::lock;
use rdma_abi::numbers as n;
use verbs::host::{Span, Time};
use verbs::{CmFailure, ConnInfo, ConnectRequest};

use crate::cm::channel;
use crate::cm::id::tell;
use crate::cm::service::{self, Service};
use crate::cm::shared::context_of;
use crate::cm::show::show;
use crate::discovery::device::{self, Kind};
use crate::objects::{Asked, CmId, End, Engine, Later, News, Phase, Request, State};
use crate::qp::settings::show as show_state;
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
    let (Ok(listener), Some(context)) = (id.look(), context_of(engine)) else { return };
    let mut state = lock(&listener.state);
    let (private_data, service) = match (service::asked(&request.private_data), state.is_datagram) {
        (Some(asked), true) => (asked.to_vec(), Some(Service::default())),
        (None, false) => (request.private_data.clone(), None),
        _ => return,
    };
    let Some(place) = state.backlog.place() else { return };
    let info = Some(request.info);
    let asked = Asked { request, _place: place };
    let news = News {
        private_data,
        info,
        service,
        request: Some(Request { asked, context }),
        ..News::new(*id, n::RDMA_CM_EVENT_CONNECT_REQUEST, 0)
    };
    match &mut state.early {
        Some(early) => early.push(news),
        None => channel::tell(state.channel, news),
    }
}

/// The connection is established.
pub(crate) fn established(id: Held<CmId>, private_data: Vec<u8>, info: &ConnInfo) {
    let mut state = lock(&id.state);
    if state.is_datagram {
        // The listener there accepts connections and is not a datagram service.
        state.end = End::None;
        drop(state);
        return failed(id, &CmFailure::PeerGone);
    }
    // On this event, a program with a queue pair of its own moves it to RTS and then calls rdma_establish. iWARP has no such step.
    let is_response = state.phase == Phase::Connecting && state.qp.is_null() && device::kind() == Kind::Hca;
    (state.phase, state.rnr_retry) = (Phase::Connected, state.rnr_retry.or(info.rnr_retry));
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        qp.established();
        if state.qp == qp.handle() {
            show_state(qp, n::IBV_QPS_RTS);
        }
    }
    if state.local.is_none_or(|local| local.port() == 0) {
        let ip = state.local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip());
        let ip = if ip.is_unspecified() { info.local.ip() } else { ip };
        state.local = Some(SocketAddr::new(ip, info.local.port()));
        show(id, &state);
    }
    let kind = if is_response { n::RDMA_CM_EVENT_CONNECT_RESPONSE } else { n::RDMA_CM_EVENT_ESTABLISHED };
    let news = News { private_data, info: Some(*info), ..News::new(id.handle(), kind, 0) };
    channel::tell(state.channel, news);
}

/// The peer's program has rejected the request (consumer reject in InfiniBand's terms).
const REJECTED_BY_CONSUMER: c_int = 28;
/// No listener (invalid service ID in InfiniBand's terms).
const NO_SERVICE: c_int = 8;

/// Status of a datagram service that does not exist, and of a service whose program rejects (IBA 13.8.2).
const UNSUPPORTED: c_int = 1;
const REFUSED: c_int = 2;

/// The peer has rejected the request, or has answered with a datagram service.
pub(crate) fn rejected(id: Held<CmId>, private_data: Vec<u8>) {
    let state = give_up(&id);
    if let Some((service, said)) = Service::decode(&private_data).filter(|_| state.is_datagram) {
        let news = News::new(id.handle(), n::RDMA_CM_EVENT_ESTABLISHED, 0);
        let news = News { private_data: said.to_vec(), service: Some(service), ..news };
        return channel::tell(state.channel, news);
    }
    let news = match state.is_datagram {
        true => News {
            service: Some(Service::default()),
            ..News::new(id.handle(), n::RDMA_CM_EVENT_UNREACHABLE, REFUSED)
        },
        false => News::new(id.handle(), n::RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER),
    };
    channel::tell(state.channel, News { private_data, ..news });
}

/// The connection has failed.
pub(crate) fn failed(id: Held<CmId>, why: &CmFailure) {
    let state = give_up(&id);
    let (kind, status) = match why {
        CmFailure::Refused(_) if state.is_datagram => (n::RDMA_CM_EVENT_UNREACHABLE, UNSUPPORTED),
        _ if state.is_datagram => (n::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        CmFailure::Refused(_) => (n::RDMA_CM_EVENT_REJECTED, NO_SERVICE),
        CmFailure::TimedOut | CmFailure::Unreachable(..) => (n::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        _ => (n::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET),
    };
    tell(id, &state, kind, status);
}

/// Ends the connection attempt; current and later requests are flushed.
fn give_up(id: &Held<CmId>) -> MutexGuard<'_, State> {
    let mut state = lock(&id.state);
    state.phase = Phase::Over;
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        qp.failed();
        show_state(qp, n::IBV_QPS_ERR);
    }
    state
}

/// The connection has ended. If the peer ended it, the event waits, at most until `until`, for the program to poll all successful
/// completions of sends and receives. A card reports the end a while after its last completion; programs destroy the queue pair on this
/// event and would lose completions that they have not polled.
pub(crate) fn ended(engine: &Engine, id: Held<CmId>, until: Time) {
    let state = lock(&id.state);
    let qp = match &state.end {
        End::Qp(qp) if state.phase == Phase::Connected && !state.is_leaving => qp.look().ok(),
        _ => None,
    };
    drop(state);
    let now = engine.device.host().now();
    if now < until && qp.is_some_and(|qp| qp.verbs().has_completed()) {
        engine.do_later(now + LOOK, id.handle(), Later::End(until));
    } else {
        disconnected(engine, id);
    }
}

/// Reports the end of a connection.
fn disconnected(engine: &Engine, id: Held<CmId>) {
    let mut state = lock(&id.state);
    if state.phase == Phase::Over {
        return;
    }
    state.phase = Phase::Over;
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        show_state(qp, n::IBV_QPS_ERR);
    }
    tell(id, &state, n::RDMA_CM_EVENT_DISCONNECTED, 0);
    // iWARP has no time-wait state.
    if device::kind() == Kind::Hca {
        engine.do_later(engine.device.host().now() + TIME_WAIT, id.handle(), Later::TimeWait);
    }
}

/// Reports the end of time-wait: the queue pair may be reused.
pub(crate) fn time_wait_is_over(id: Held<CmId>) {
    tell(id, &lock(&id.state), n::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

/// The program destroys or resets a connected queue pair. The device reports no further events for it.
pub(crate) fn abandoned(engine: &Engine, id: Handle<CmId>) {
    let Ok(id) = id.look() else { return };
    let phase = lock(&id.state).phase;
    match phase {
        Phase::Connected => disconnected(engine, id),
        Phase::Connecting | Phase::Accepting => failed(id, &CmFailure::PeerGone),
        _ => {}
    }
}
