//! The program's calls to listen, connect, accept, reject and disconnect. `outcome` handles the device's events.

use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr};

use ffi::{Bytes, Out, lock};
use rdma_abi::cma::rdma_conn_param;
use rdma_abi::numbers as n;
use verbs::host::Span;
use verbs::{ConnParam, Depths, RNR_RETRY_FOREVER};

use crate::answer::Answer;
use crate::cm::attempt::{GRACE, set_pause};
use crate::cm::c_fields::write_id;
use crate::cm::route::{self, routes_here};
use crate::cm::service::{self, Service};
use crate::cm::{channel, destroy, reserve};
use crate::discovery::device::{self, DeviceKind};
use crate::errno::{Errno, errno};
use crate::objects::{
    BACKLOG, CmId, CmIdState, CmPhase, ConnectAttempt, Engine, LocalEnd, Objects, Qp, UnansweredRequest,
};
use crate::qp::settings::set_visible_state;
use crate::slab::{Handle, Held};

/// How long the peer may take to answer: its program decides.
const PATIENCE: Span = Span::from_secs(60);

/// Listens at the identifier's address, or at a chosen port of all addresses if it has none.
pub(crate) fn rdma_listen(id: Handle<CmId>, backlog: i32) -> Answer {
    let held = id.lookup()?;
    let backlog = usize::try_from(backlog).ok().filter(|count| *count != 0).unwrap_or(BACKLOG);
    let (phase, local, has_ports) = {
        let state = lock(&held.state);
        (state.phase, state.local, !state.ports.is_empty())
    };
    let local = match phase {
        CmPhase::Idle => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        CmPhase::Bound => {
            local.ok_or_else(|| errno!(INVAL, "the id has no address; call rdma_bind_addr first"))?
        }
        phase => {
            return Err(errno!(
                INVAL,
                "the id {}, and only a bound or a new one can listen; create another",
                phase.text()
            ));
        }
    };
    if !has_ports {
        reserve::reserve(held, local, &routes_here(local)?)?;
    }
    let mut state = lock(&held.state);
    (state.phase, state.backlog.most) = (CmPhase::Listening, backlog);
    write_id(held, &state);
    let mut early = state.early.take().unwrap_or_default();
    let too_many = early.split_off(backlog.min(early.len()));
    early.into_iter().for_each(|pending| channel::queue_event(state.channel, pending));
    drop(state);
    // Dropping a request rejects it.
    drop(too_many);
    Ok(())
}

/// The connection set-up messages that carry private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Request,
    Reply,
    Rejection,
}

/// Bytes of private data that a program may send with a message. RDMA-CM itself uses 36 of the bytes that InfiniBand has in a request
/// (IBA 12.6, rdma_connect(3), rdma_accept(3)). With iWARP RNICs the limit is what the length field can express.
fn private_data_max(message: MessageKind, is_datagram: bool) -> u8 {
    match (device::device_kind(), message, is_datagram) {
        (DeviceKind::Rnic, ..) => u8::MAX,
        (DeviceKind::Hca, MessageKind::Request, false) => 56,
        (DeviceKind::Hca, MessageKind::Request, true) => 180,
        (DeviceKind::Hca, MessageKind::Reply, false) => 196,
        (DeviceKind::Hca, MessageKind::Rejection, false) => 148,
        (DeviceKind::Hca, MessageKind::Reply | MessageKind::Rejection, true) => 136,
    }
}

/// Translates the program's connection parameters; also returns the number of a queue pair that the program created itself. A program
/// that passes none gets the depths that the peer has `asked` for, and the queue pair of the identifier.
///
/// # Errors
/// [`Errno::INVAL`] for too much private data, and for missing parameters without a queue pair.
fn parameters(
    state: &CmIdState,
    message: MessageKind,
    param: Out<rdma_conn_param>,
    asked: Option<Depths>,
) -> Answer<(ConnParam, u32)> {
    let default = ConnParam { timeout: PATIENCE, ..ConnParam::default() };
    let Some(found) = param.get() else {
        if state.qp.is_null() && !state.is_datagram {
            return Err(errno!(
                INVAL,
                "conn_param is NULL, and the id has no queue pair; pass parameters with qp_num, or call rdma_create_qp"
            ));
        }
        let asked = asked.unwrap_or(Depths::of(&default));
        let (responder_resources, initiator_depth) = (asked.initiator_depth, asked.responder_resources);
        return Ok((ConnParam { responder_resources, initiator_depth, ..default }, 0));
    };
    let param = ConnParam {
        private_data: private_data(state, message, found.private_data, found.private_data_len)?,
        rnr_retry: found.rnr_retry_count.min(RNR_RETRY_FOREVER),
        responder_resources: found.responder_resources,
        initiator_depth: found.initiator_depth,
        ..default
    };
    Ok((param, found.qp_num))
}

fn private_data(state: &CmIdState, message: MessageKind, place: *const c_void, len: u8) -> Answer<Vec<u8>> {
    let most = private_data_max(message, state.is_datagram);
    if let (true, false, Ok(engine)) = (fabric::is_checked(), state.is_datagram, state.engine()) {
        let message = match message {
            MessageKind::Request => fabric::CheckedMessage::Connect,
            MessageKind::Reply => fabric::CheckedMessage::Accept,
            MessageKind::Rejection => fabric::CheckedMessage::Reject,
        };
        fabric::check_private_data(&engine.device, message, len.into());
    }
    if len > most {
        return Err(errno!(
            INVAL,
            "private_data_len is {len}, but this message carries at most {most} bytes; send the rest when connected"
        ));
    }
    // SAFETY: a program passes NULL or as many bytes as it states. Test: `connections_are_made_by_addresses` in tests/programs.rs.
    unsafe { Bytes::new(place) }.get(len.into()).map_err(|_| {
        errno!(INVAL, "private_data is NULL, but private_data_len is {len}; pass the bytes, or 0")
    })
}

/// The error of an identifier without an unanswered request.
#[cold]
fn no_request() -> Errno {
    errno!(
        INVAL,
        "the id has no connect request to answer: pass rdma_cm_event.id of an RDMA_CM_EVENT_CONNECT_REQUEST, and answer it once"
    )
}

/// The queue pair to connect: the identifier's, the program's own with this number, or none.
fn own_qp(state: &CmIdState, objects: &Objects, number: u32) -> Answer<Option<Held<Qp>>> {
    if !state.qp.is_null() {
        return state.qp.lookup().map(Some);
    }
    let named = objects.qps.get(&number).and_then(|qp| qp.lookup().ok());
    Ok(named.filter(|qp| qp.verbs().state() == verbs::QpState::Init))
}

pub(crate) fn rdma_connect(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer<Option<Handle<CmId>>> {
    let held = id.lookup()?;
    let engine = lock(&held.state).engine()?;
    // Locked first, so that events of this connection find the identifier registered.
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    if state.phase != CmPhase::RouteResolved {
        return Err(errno!(
            INVAL,
            "the id {}; call rdma_resolve_addr and rdma_resolve_route first, each once, and wait for their events",
            state.phase.text()
        ));
    }
    let (mut param, number) = parameters(&state, MessageKind::Request, param, None)?;
    let addr = route::as_known(
        &engine,
        state
            .peer
            .ok_or_else(|| errno!(INVAL, "the id has no peer address; call rdma_resolve_addr first"))?,
    );
    let qp = if state.is_datagram {
        param.private_data = service::encode_query(&param.private_data);
        None
    } else {
        own_qp(&state, &objects, number)?
    };
    let attempt = ConnectAttempt { addr, param, until: engine.device.host().now() + GRACE };
    let (end, number) = attempt.start(&engine, &state, qp)?;
    objects.ids.insert(number, id);
    (state.end, state.phase, state.attempt) = (end, CmPhase::Connecting, Some(attempt));
    Ok(state.is_sync.then_some(id))
}

pub(crate) fn rdma_accept(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer<Option<Handle<CmId>>> {
    let held = id.lookup()?;
    let engine = lock(&held.state).engine()?;
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    let asked = state.request.as_ref().ok_or_else(no_request)?.request.info.depths;
    let (param, number) = parameters(&state, MessageKind::Reply, param, asked)?;
    if state.is_datagram {
        answer_service(&engine, &objects, &mut state, number, &param.private_data)?;
        state.phase = CmPhase::Closed;
        return Ok(None);
    }
    let qp = own_qp(&state, &objects, number)?;
    let UnansweredRequest { request, .. } = state.request.take().ok_or_else(no_request)?;
    let (end, number) = match qp {
        Some(qp) => {
            set_pause(&state, qp);
            engine.cm.accept(request, qp.verbs(), &param)?;
            (LocalEnd::Qp(qp.handle()), qp.verbs().num())
        }
        None => {
            let bare = engine.cm.accept_without_qp(request, &param)?;
            let number = bare.num();
            (LocalEnd::Bare(Box::new(bare)), number)
        }
    };
    objects.ids.insert(number, id);
    (state.end, state.phase) = (end, CmPhase::Accepting);
    // Requests posted from now on wait until the peer confirms.
    state.qp.lookup().into_iter().for_each(|qp| set_visible_state(qp, n::IBV_QPS_RTS));
    Ok(state.is_sync.then_some(id))
}

/// Answers a request for a datagram service with the identifier's queue pair, or with the program's own of this number.
///
/// # Errors
/// [`Errno::INVAL`] if there is no such UD queue pair.
fn answer_service(
    engine: &Engine,
    objects: &Objects,
    state: &mut CmIdState,
    number: u32,
    private_data: &[u8],
) -> Answer {
    let named = if state.qp.is_null() { objects.qps.get(&number).copied() } else { Some(state.qp) };
    let qp = named.and_then(|qp| qp.lookup().ok()).filter(|qp| qp.is_datagram());
    let qp = qp.ok_or_else(|| {
        errno!(INVAL, "conn_param.qp_num is {number:#x}, which is no UD queue pair of this process; create one, or call rdma_create_qp")
    })?;
    let gid = engine.gid().ok_or_else(|| errno!(OPNOTSUPP, "the port has no GID, which datagrams need"))?;
    let service = Service { gid, qp_num: qp.verbs().reported_qp_num(), qkey: n::RDMA_UDP_QKEY };
    let asked = state.request.take().ok_or_else(no_request)?;
    Ok(asked.request.reject(&service.encode(private_data))?)
}

pub(crate) fn rdma_reject(id: Handle<CmId>, place: *mut c_void, len: u8) -> Answer {
    let held = id.lookup()?;
    let mut state = lock(&held.state);
    let bytes = private_data(&state, MessageKind::Rejection, place, len)?;
    let asked = state.request.take().ok_or_else(no_request)?;
    drop(state);
    Ok(asked.request.reject(&bytes)?)
}

pub(crate) fn rdma_reject_ece(id: Handle<CmId>, place: *mut c_void, len: u8) -> Answer {
    rdma_reject(id, place, len)
}

/// Disconnects. Without a program's channel, also waits for the disconnect event unless it was already consumed.
pub(crate) fn rdma_disconnect(id: Handle<CmId>) -> Answer<Option<Handle<CmId>>> {
    let held = id.lookup()?;
    let mut state = lock(&held.state);
    destroy::disconnect(&mut state)?;
    let has_more =
        state.channel.lookup().is_ok_and(|channel| channel.events.change(|pending| !pending.is_empty()));
    Ok((state.is_sync && (state.phase == CmPhase::Connected || has_more)).then_some(id))
}

/// Does nothing: both sides know of a connection as soon as it is accepted.
pub(crate) fn rdma_establish(id: Handle<CmId>) -> Answer {
    id.lookup().map(drop)
}

pub(crate) fn rdma_notify(id: Handle<CmId>, _event: i32) -> Answer {
    id.lookup().map(drop)
}
