//! Listening, connecting, accepting; and what the device says of it, which the engine's thread brings.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::MutexGuard;

use cface::{Bytes, Out, lock};
use rdma_abi::cma::rdma_conn_param;
use rdma_abi::numbers as n;
use verbs::host::{Span, Time};
use verbs::{CmFailure, ConnInfo, ConnParam, ConnectRequest};

use crate::answer::Answer;
use crate::cm::channel::{self, Asked, News, Request};
use crate::cm::id::{self, CmId, End, Phase, State, tell};
use crate::cm::route::{self, routes_here, show};
use crate::cm::service::{self, Service};
use crate::device::{self, Kind};
use crate::engine::{Engine, Objects, side};
use crate::errno::Errno;
use crate::modify;
use crate::qp::Qp;
use crate::slab::{Handle, Held};

/// Requests that wait for an answer, if the program does not say.
pub(crate) const BACKLOG: usize = 1024;

/// How long the other side may take to answer: its program decides.
const PATIENCE: Span = Span::from_secs(60);

pub(crate) fn rdma_listen(id: Handle<CmId>, backlog: i32) -> Answer {
    let held = id.look()?;
    let backlog = usize::try_from(backlog).ok().filter(|count| *count != 0).unwrap_or(BACKLOG);
    let has_port = !lock(&held.state).listeners.is_empty();
    if !has_port {
        reserve_port(held)?;
    }
    let mut state = lock(&held.state);
    state.backlog.most = backlog;
    let mut early = state.early.take().unwrap_or_default();
    let too_many = early.split_off(backlog.min(early.len()));
    early.into_iter().for_each(|news| channel::tell(state.channel, news));
    drop(state);
    // That refuses them.
    drop(too_many);
    Ok(())
}

/// Takes a port that nobody has, if the address has none: programs tell it to others before they listen. Who connects meanwhile
/// waits: each device listens, and what comes is kept until the program listens, too.
pub(crate) fn reserve_port(held: Held<CmId>) -> Answer {
    let id = held.handle();
    let (local, is_v6_alone) = {
        let state = lock(&held.state);
        let local = state.local.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        (local, local.is_ipv6() && state.is_of_one_family)
    };
    let (mut port, mut listeners) = (local.port(), Vec::new());
    for (index, addr) in routes_here(local)? {
        let engine = route::context(index)?.look()?.engine.clone();
        // A request finds its listener known.
        let mut objects = lock(&engine.objects);
        // Where addresses of both families are one, who listens at the port already gets all that come.
        let has_one_address =
            engine.is_local || side(engine.device.name()).is_some_and(|side| side.is_ipv4());
        if is_v6_alone && has_one_address && objects.listeners.iter().any(|(at, _)| at.port() == port) {
            continue;
        }
        // How many may wait is for the identifier to say.
        let listener =
            engine.cm.listen(SocketAddr::new(addr.ip(), port), u32::MAX).map_err(|why| match why {
                // The address is this device's.
                verbs::Error::Address { .. } if port != 0 => Errno(libc::EADDRINUSE),
                why => why.into(),
            })?;
        port = listener.addr().port();
        objects.listeners.push((listener.addr(), id));
        listeners.push(listener);
    }
    let mut state = lock(&held.state);
    (state.listeners, state.early) = (listeners, Some(Vec::new()));
    state.local = Some(SocketAddr::new(local.ip(), port));
    show(held, &state);
    Ok(())
}

/// What a program says of a connection, as ours, and the number of a queue pair of its own.
fn parameters(engine: &Engine, param: Out<rdma_conn_param>) -> Answer<(ConnParam, u32)> {
    let param = match param.get() {
        None => (ConnParam::default(), 0),
        Some(found) => {
            let most = u8::try_from(engine.device.attr().max_rd_atomic).unwrap_or(u8::MAX);
            let param = ConnParam {
                private_data: private_data(found.private_data, found.private_data_len)?,
                rnr_retry: found.rnr_retry_count.min(7),
                responder_resources: found.responder_resources.min(most),
                initiator_depth: found.initiator_depth.min(most),
                ..ConnParam::default()
            };
            (param, found.qp_num)
        }
    };
    Ok((ConnParam { timeout: PATIENCE, ..param.0 }, param.1))
}

fn private_data(place: *const c_void, len: u8) -> Answer<Vec<u8>> {
    // SAFETY: a program passes NULL or as many bytes as it says. Test: `connections_are_made_by_addresses` in tests/programs.rs.
    unsafe { Bytes::new(place) }.get(len.into()).map_err(|_| Errno::INVAL)
}

/// The queue pair that is to be connected: the identifier's, or that of the program's own with this number, or none.
fn own_qp(state: &State, objects: &Objects, number: u32) -> Answer<Option<Held<Qp>>> {
    if !state.qp.is_null() {
        return state.qp.look().map(Some);
    }
    let named = objects.qps.get(&number).and_then(|qp| qp.look().ok());
    Ok(named.filter(|qp| qp.verbs().state() == verbs::QpState::Init))
}

pub(crate) fn rdma_connect(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer<Option<Handle<CmId>>> {
    let held = id.look()?;
    let engine = lock(&held.state).engine()?;
    let (mut param, number) = parameters(&engine, param)?;
    // Events of what begins here find the identifier known.
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    let addr = route::as_known(&engine, state.peer.ok_or(Errno::INVAL)?);
    if state.phase != Phase::Idle {
        return Err(Errno::INVAL);
    }
    let qp = if state.is_datagram {
        param.private_data = service::question(&param.private_data);
        None
    } else {
        own_qp(&state, &objects, number)?
    };
    let attempt = Attempt { addr, param, until: engine.device.host().now() + GRACE };
    let (end, number) = attempt.make(&engine, qp)?;
    objects.ids.insert(number, id);
    (state.end, state.phase, state.attempt) = (end, Phase::Connecting, Some(attempt));
    Ok(state.is_sync.then_some(id))
}

/// How an identifier connects, which it does again while nobody listens there yet: programs agree by other ways that one
/// listens and the other connects, and finding the way to a card takes longer than beginning to listen; ours takes no time.
pub(crate) struct Attempt {
    addr: SocketAddr,
    param: ConnParam,
    until: Time,
}

/// What an identifier does after a while.
pub(crate) enum Later {
    /// It tries to connect again.
    Connect,
    /// It tells of the end of its connection, at this time if the program has not polled before what came.
    End(Time),
}

/// How long a program may take to poll what came before the end of a connection, and how often it is looked whether it has.
pub(crate) const UNPOLLED: Span = Span::from_ms(100);
const LOOK: Span = Span::from_ms(1);

/// For how long it is tried again, and how often.
const GRACE: Span = Span::from_ms(500);
const PAUSE: Span = Span::from_ms(10);

impl Attempt {
    /// Begins to connect a queue pair, or none; its number.
    fn make(&self, engine: &Engine, qp: Option<Held<Qp>>) -> Answer<(End, u32)> {
        let Some(qp) = qp else {
            let bare = engine.cm.connect_without_qp(self.addr, &self.param)?;
            let number = bare.num();
            return Ok((End::Bare(Box::new(bare)), number));
        };
        engine.cm.connect(qp.verbs(), self.addr, &self.param)?;
        Ok((End::Qp(qp.handle()), qp.verbs().num()))
    }
}

/// The device could not connect an identifier.
pub(crate) fn not_connected(engine: &Engine, id: Held<CmId>, why: &CmFailure) {
    let now = engine.device.host().now();
    let is_early = |state: &State| state.attempt.as_ref().is_some_and(|attempt| now < attempt.until);
    // Where somebody forwards connections (a container's proxy, a guest's network), one that nobody listens for is made and ends.
    if matches!(why, CmFailure::Refused(_) | CmFailure::PeerGone) && is_early(&lock(&id.state)) {
        lock(&engine.later).push((now + PAUSE, id.handle(), Later::Connect));
    } else {
        failed(id, why);
    }
}

/// Connects an identifier again.
pub(crate) fn again(engine: &Engine, id: Handle<CmId>) {
    let mut objects = lock(&engine.objects);
    let Ok(held) = id.look() else { return };
    let mut state = lock(&held.state);
    let Some(attempt) = state.attempt.as_ref().filter(|_| state.phase == Phase::Connecting) else { return };
    let qp = match &state.end {
        End::Qp(qp) => qp.look().ok(),
        _ => None,
    };
    if let Ok((end, number)) = attempt.make(engine, qp) {
        objects.ids.retain(|_, known| *known != id);
        objects.ids.insert(number, id);
        state.end = end;
    } else {
        drop(state);
        failed(held, &CmFailure::PeerGone);
    }
}

pub(crate) fn rdma_accept(id: Handle<CmId>, param: Out<rdma_conn_param>) -> Answer<Option<Handle<CmId>>> {
    let held = id.look()?;
    let engine = lock(&held.state).engine()?;
    let (param, number) = parameters(&engine, param)?;
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    if state.is_datagram {
        service::answer(&engine, &objects, &mut state, number, &param.private_data)?;
        state.phase = Phase::Over;
        return Ok(None);
    }
    let qp = own_qp(&state, &objects, number)?;
    let Asked { request, .. } = state.request.take().ok_or(Errno::INVAL)?;
    let (end, number) = match qp {
        Some(qp) => {
            engine.cm.accept(request, qp.verbs(), &param)?;
            (End::Qp(qp.handle()), qp.verbs().num())
        }
        None => {
            let bare = engine.cm.accept_without_qp(request, &param)?;
            let number = bare.num();
            (End::Bare(Box::new(bare)), number)
        }
    };
    objects.ids.insert(number, id);
    (state.end, state.phase) = (end, Phase::Accepting);
    // What it posts from now on waits until the other side confirms.
    state.qp.look().into_iter().for_each(|qp| modify::show(qp, n::IBV_QPS_RTS));
    Ok(state.is_sync.then_some(id))
}

pub(crate) fn rdma_reject(id: Handle<CmId>, place: *mut c_void, len: u8) -> Answer {
    let held = id.look()?;
    let bytes = private_data(place, len)?;
    let asked = lock(&held.state).request.take().ok_or(Errno::INVAL)?;
    Ok(asked.request.reject(&bytes)?)
}

pub(crate) fn rdma_reject_ece(id: Handle<CmId>, place: *mut c_void, len: u8) -> Answer {
    rdma_reject(id, place, len)
}

/// Ends a connection; without a channel, waits for the event of its end, if it has not been waited for.
pub(crate) fn rdma_disconnect(id: Handle<CmId>) -> Answer<Option<Handle<CmId>>> {
    let held = id.look()?;
    let mut state = lock(&held.state);
    end(&mut state)?;
    let has_more = state.channel.look().is_ok_and(|channel| channel.news.change(|news| !news.is_empty()));
    Ok((state.is_sync && (state.phase == Phase::Connected || has_more)).then_some(id))
}

/// Has the device end a connection; that of one that is over already is over.
///
/// # Errors
/// [`Errno::INVAL`] if there is none.
pub(crate) fn end(state: &mut State) -> Answer {
    match state.phase {
        Phase::Over => return Ok(()),
        Phase::Connected => {}
        Phase::Idle | Phase::Connecting | Phase::Accepting => return Err(Errno::INVAL),
    }
    let engine = state.engine()?;
    match &state.end {
        End::Qp(qp) => {
            let qp = qp.look()?;
            engine.cm.disconnect(qp.verbs())?;
            modify::show(qp, n::IBV_QPS_ERR);
        }
        End::Bare(bare) => engine.cm.disconnect_id(bare)?,
        End::None => return Err(Errno::INVAL),
    }
    state.is_leaving = true;
    Ok(())
}

/// Both sides know of a connection as soon as it is accepted.
pub(crate) fn rdma_establish(id: Handle<CmId>) -> Answer {
    id.look().map(drop)
}

pub(crate) fn rdma_notify(id: Handle<CmId>, _event: i32) -> Answer {
    id.look().map(drop)
}

/// Somebody wants to connect to a listener.
pub(crate) fn requested(engine: &Engine, request: ConnectRequest) {
    let local = request.info.local;
    let is_at = |at: &SocketAddr| at.ip() == local.ip() || at.ip().is_unspecified();
    // Held for as long as the listener is used: it does not go away meanwhile.
    let objects = lock(&engine.objects);
    let listener = objects.listeners.iter().find(|(at, _)| at.port() == local.port() && is_at(at));
    // What nobody gets is dropped, which refuses it.
    let Some((_, id)) = listener else { return };
    let (Ok(listener), Some(context)) = (id.look(), route::context_of(engine)) else { return };
    let mut state = lock(&listener.state);
    let (private_data, service) = match (service::asked(&request.private_data), state.is_datagram) {
        (Some(asked), true) => (asked.to_vec(), Some(Service::default())),
        (None, false) => (request.private_data.clone(), None),
        _ => return,
    };
    let Some(place) = state.backlog.place() else { return };
    let depths = request.info.depths;
    let asked = Asked { request, _place: place };
    let news = News {
        private_data,
        depths,
        service,
        request: Some(Request { asked, context }),
        ..News::new(*id, n::RDMA_CM_EVENT_CONNECT_REQUEST, 0)
    };
    match &mut state.early {
        Some(early) => early.push(news),
        None => channel::tell(state.channel, news),
    }
}

/// The identifier that a program gets with a request, on the listener's channel.
pub(crate) fn requester(listener: Handle<CmId>, request: Request) -> Answer<Handle<CmId>> {
    let held = listener.look()?;
    let (channel, at) = {
        let state = lock(&held.state);
        (if state.is_sync { Handle::NULL } else { state.channel }, state.local)
    };
    let seen = held.seen();
    let id = id::make(channel, seen.context, seen.ps)?;
    let new = id.look()?;
    let mut state = lock(&new.state);
    let ConnInfo { local, peer, .. } = request.asked.request.info;
    state.context = request.context;
    state.local = at.filter(|at| !at.ip().is_unspecified()).or(Some(local));
    (state.peer, state.request) = (Some(peer), Some(request.asked));
    show(new, &state);
    Ok(id)
}

/// The connection is there.
pub(crate) fn established(id: Held<CmId>, private_data: Vec<u8>, info: &ConnInfo) {
    let mut state = lock(&id.state);
    if state.is_datagram {
        // What listens there takes connections.
        state.end = End::None;
        drop(state);
        return failed(id, &CmFailure::PeerGone);
    }
    // A program that has a queue pair of its own moves it when it hears of this, and then says rdma_establish; iWARP has no such
    // third step.
    let is_response = state.phase == Phase::Connecting && state.qp.is_null() && device::kind() == Kind::Hca;
    state.phase = Phase::Connected;
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        qp.established();
        if state.qp == qp.handle() {
            modify::show(qp, n::IBV_QPS_RTS);
        }
    }
    if state.local.is_none_or(|local| local.port() == 0) {
        let ip = state.local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip());
        let ip = if ip.is_unspecified() { info.local.ip() } else { ip };
        state.local = Some(SocketAddr::new(ip, info.local.port()));
        show(id, &state);
    }
    let kind = if is_response { n::RDMA_CM_EVENT_CONNECT_RESPONSE } else { n::RDMA_CM_EVENT_ESTABLISHED };
    let news = News { private_data, depths: info.depths, ..News::new(id.handle(), kind, 0) };
    channel::tell(state.channel, news);
}

/// Another program's refusal, as InfiniBand has it: the consumer's own.
const REJECTED_BY_CONSUMER: c_int = 28;
/// Nobody listens there, likewise: an invalid service.
const NO_SERVICE: c_int = 8;

/// The answers of a service of datagrams that is not there, and of one whose program refuses (IBA 13.8.2).
const UNSUPPORTED: c_int = 1;
const REFUSED: c_int = 2;

/// The other side has said no, or where the service is.
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

/// There will be no connection.
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

/// What was posted already, and is from now on, is flushed.
fn give_up(id: &Held<CmId>) -> MutexGuard<'_, State> {
    let mut state = lock(&id.state);
    state.phase = Phase::Over;
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        qp.failed();
        modify::show(qp, n::IBV_QPS_ERR);
    }
    state
}

/// The connection has ended. Where the peer has done that, and messages of its are not polled yet, the program hears of it after them: a
/// card tells of it a while after its last message, and programs that hear of the end destroy the queue pair, with all that was
/// not polled.
pub(crate) fn ended(engine: &Engine, id: Held<CmId>, until: Time) {
    let state = lock(&id.state);
    let qp = match &state.end {
        End::Qp(qp) if state.phase == Phase::Connected && !state.is_leaving => qp.look().ok(),
        _ => None,
    };
    drop(state);
    let now = engine.device.host().now();
    if now < until && qp.is_some_and(|qp| qp.verbs().has_received()) {
        lock(&engine.later).push((now + LOOK, id.handle(), Later::End(until)));
    } else {
        disconnected(id);
    }
}

/// The connection is over.
pub(crate) fn disconnected(id: Held<CmId>) {
    let mut state = lock(&id.state);
    if state.phase == Phase::Over {
        return;
    }
    state.phase = Phase::Over;
    if let End::Qp(qp) = &state.end
        && let Ok(qp) = qp.look()
    {
        modify::show(qp, n::IBV_QPS_ERR);
    }
    tell(id, &state, n::RDMA_CM_EVENT_DISCONNECTED, 0);
}

/// The program ends the queue pair of a connection: the device tells nothing of it any more.
pub(crate) fn abandoned(id: Handle<CmId>) {
    let Ok(id) = id.look() else { return };
    let phase = lock(&id.state).phase;
    match phase {
        Phase::Connected => disconnected(id),
        Phase::Connecting | Phase::Accepting => failed(id, &CmFailure::PeerGone),
        Phase::Idle | Phase::Over => {}
    }
}
