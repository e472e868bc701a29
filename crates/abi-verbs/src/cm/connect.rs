//! Listening, connecting, accepting; and what the device says of it, which the engine's thread brings.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cface::{Bytes, Out};
use rdma_abi::cma::rdma_conn_param;
use rdma_abi::numbers as n;
use verbs::{CmFailure, ConnInfo, ConnParam, ConnectRequest};

use crate::answer::Answer;
use crate::cm::channel::{self, News};
use crate::cm::id::{self, CmId, device_for, shared_context, show, tell};
use crate::device;
use crate::engine::{Engine, lock};
use crate::errno::Errno;
use crate::modify;
use crate::slab::{Handle, Held};

/// Requests that wait for an answer, if the program does not say.
const BACKLOG: u32 = 1024;

pub(crate) fn rdma_listen(id: Handle<CmId>, backlog: i32) -> Answer {
    let held = id.look()?;
    let local = lock(&held.state).local.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let backlog = u32::try_from(backlog).ok().filter(|count| *count != 0).unwrap_or(BACKLOG);
    let devices = match local.ip().is_unspecified() {
        true => (0..device::all().len()).map(|index| (index, local)).collect(),
        false => vec![device_for(local)?],
    };
    let (mut port, mut listeners) = (local.port(), Vec::new());
    for (index, addr) in devices {
        let engine = shared_context(index)?.look()?.engine.clone();
        let listener = engine.cm.listen(SocketAddr::new(addr.ip(), port), backlog)?;
        port = listener.addr().port();
        lock(&engine.objects).listeners.insert(port, id);
        listeners.push(listener);
    }
    let mut state = lock(&held.state);
    state.listeners = listeners;
    state.local = Some(SocketAddr::new(local.ip(), port));
    show(held, &state);
    Ok(())
}

/// What a program says of a connection, as ours.
fn parameters(param: Out<rdma_conn_param>) -> Answer<ConnParam> {
    let Some(found) = param.get() else { return Ok(ConnParam::default()) };
    // SAFETY: a program passes NULL or as many bytes as it says. Test: `connections_are_made_by_addresses` in tests/programs.rs.
    let bytes = unsafe { Bytes::new(found.private_data) };
    Ok(ConnParam {
        private_data: bytes.get(found.private_data_len.into()).map_err(|_| Errno::INVAL)?,
        rnr_retry: found.rnr_retry_count.min(7),
        responder_resources: found.responder_resources,
        initiator_depth: found.initiator_depth,
        ..ConnParam::default()
    })
}

pub(crate) fn rdma_connect(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer {
    let held = id.look()?;
    let param = parameters(param)?;
    let (qp, peer, context) = {
        let state = lock(&held.state);
        (state.qp.look()?, state.peer.ok_or(Errno::INVAL)?, state.context.look()?)
    };
    let engine = context.engine.clone();
    let (_, addr) = device_for(peer)?;
    lock(&engine.objects).ids.insert(qp.verbs().num(), id);
    Ok(engine.cm.connect(qp.verbs(), addr, &param)?)
}

pub(crate) fn rdma_accept(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer {
    let held = id.look()?;
    let param = parameters(param)?;
    let (qp, request, context) = {
        let mut state = lock(&held.state);
        let (qp, context) = (state.qp.look()?, state.context.look()?);
        (qp, state.request.take().ok_or(Errno::INVAL)?, context)
    };
    let engine = context.engine.clone();
    lock(&engine.objects).ids.insert(qp.verbs().num(), id);
    engine.cm.accept(request, qp.verbs(), &param)?;
    // What it posts from now on waits until the other side confirms.
    modify::show(qp, n::IBV_QPS_RTS);
    Ok(())
}

pub(crate) fn rdma_reject(
    id: Handle<CmId>,
    private_data: *mut std::ffi::c_void,
    private_data_len: u8,
) -> Answer {
    let held = id.look()?;
    // SAFETY: as above.
    let bytes = unsafe { Bytes::new(private_data) }.get(private_data_len.into()).map_err(|_| Errno::INVAL)?;
    let request = lock(&held.state).request.take().ok_or(Errno::INVAL)?;
    Ok(request.reject(&bytes)?)
}

pub(crate) fn rdma_disconnect(id: Handle<CmId>) -> Answer {
    let held = id.look()?;
    let state = lock(&held.state);
    let (qp, engine) = (state.qp.look()?, state.context.look()?.engine.clone());
    modify::show(qp, n::IBV_QPS_ERR);
    Ok(engine.cm.disconnect(qp.verbs())?)
}

/// Both sides know of a connection as soon as it is accepted.
pub(crate) fn rdma_establish(id: Handle<CmId>) -> Answer {
    id.look().map(drop)
}

pub(crate) fn rdma_notify(id: Handle<CmId>, _event: i32) -> Answer {
    id.look().map(drop)
}

/// Somebody wants to connect to a listener of librdmacm: a new identifier, on the listener's channel.
pub(crate) fn requested(engine: &Engine, request: ConnectRequest) {
    let local = request.info.local;
    // Held for as long as the listener is used: it does not go away meanwhile.
    let objects = lock(&engine.objects);
    let Some(listener) = objects.listeners.get(&local.port()).copied() else { return };
    let make = || {
        let held = listener.look()?;
        let (channel, at) = {
            let state = lock(&held.state);
            (state.channel, state.local)
        };
        let seen = held.seen();
        let id = id::make(channel, seen.context, seen.ps)?;
        let new = id.look()?;
        let (private_data, depths) = (request.private_data.clone(), request.info.depths);
        {
            let mut state = lock(&new.state);
            state.context = context_of(engine)?;
            state.local = at.filter(|at| !at.ip().is_unspecified()).or(Some(local));
            state.peer = Some(request.info.peer);
            state.request = Some(request);
            show(new, &state);
        }
        let kind = n::RDMA_CM_EVENT_CONNECT_REQUEST;
        channel::tell(channel, News { id, listener, kind, status: 0, private_data, depths });
        Ok::<_, Errno>(())
    };
    // Without an identifier the request is dropped, which refuses it.
    let _ = make();
}

/// The context of librdmacm for an engine's device.
fn context_of(engine: &Engine) -> Answer<Handle<crate::context::Context>> {
    let is_same = |context: &Handle<crate::context::Context>| {
        context.look().is_ok_and(|context| std::ptr::eq(&raw const *context.engine, engine))
    };
    id::shared_contexts().into_iter().find(is_same).ok_or(Errno::NODEV)
}

/// The connection is there.
pub(crate) fn established(id: Held<CmId>, private_data: Vec<u8>, info: &ConnInfo) {
    let mut state = lock(&id.state);
    if let Ok(qp) = state.qp.look() {
        qp.established();
        modify::show(qp, n::IBV_QPS_RTS);
    }
    if state.local.is_none_or(|local| local.port() == 0) {
        let ip = state.local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip());
        let ip = if ip.is_unspecified() { info.local.ip() } else { ip };
        state.local = Some(SocketAddr::new(ip, info.local.port()));
        show(id, &state);
    }
    let news = News {
        id: id.handle(),
        listener: Handle::NULL,
        kind: n::RDMA_CM_EVENT_ESTABLISHED,
        status: 0,
        private_data,
        depths: info.depths,
    };
    channel::tell(state.channel, news);
}

/// Another program's refusal, as InfiniBand has it: the consumer's own.
const REJECTED_BY_CONSUMER: c_int = 28;
/// Nobody listens there, likewise: an invalid service.
const NO_SERVICE: c_int = 8;

/// The other side has said no.
pub(crate) fn rejected(id: Held<CmId>, private_data: Vec<u8>) {
    let channel = lock(&id.state).channel;
    let (kind, status) = (n::RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER);
    channel::tell(
        channel,
        News { id: id.handle(), listener: Handle::NULL, kind, status, private_data, depths: None },
    );
}

/// There will be no connection.
pub(crate) fn failed(id: Held<CmId>, why: &CmFailure) {
    let (kind, status) = match why {
        CmFailure::Refused(_) => (n::RDMA_CM_EVENT_REJECTED, NO_SERVICE),
        CmFailure::TimedOut | CmFailure::Unreachable(..) => (n::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        _ => (n::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET),
    };
    tell(id, lock(&id.state).channel, kind, status);
}

/// The connection is over.
pub(crate) fn disconnected(id: Held<CmId>) {
    let state = lock(&id.state);
    if let Ok(qp) = state.qp.look() {
        modify::show(qp, n::IBV_QPS_ERR);
    }
    tell(id, state.channel, n::RDMA_CM_EVENT_DISCONNECTED, 0);
}
