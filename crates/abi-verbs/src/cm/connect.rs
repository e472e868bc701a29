//! Listening, connecting, accepting; and what the device says of it, which the engine's thread brings.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::MutexGuard;

use cface::{Bytes, Out, lock};
use rdma_abi::cma::rdma_conn_param;
use rdma_abi::numbers as n;
use verbs::host::{Span, Time};
use verbs::{CmFailure, ConnInfo, ConnParam, ConnectRequest, Depths, RNR_RETRY_FOREVER};

use crate::answer::Answer;
use crate::cm::channel::{self, Asked, News, Request};
use crate::cm::id::{self, CmId, End, Phase, State, tell};
use crate::cm::reserve::{self, Reserved};
use crate::cm::route::{self, routes_here, show, show_path};
use crate::cm::service::{self, Service};
use crate::device::{self, Kind};
use crate::engine::{Engine, Objects};
use crate::errno::Errno;
use crate::modify;
use crate::qp::Qp;
use crate::slab::{Handle, Held};

/// Requests that wait for an answer, if the program does not say.
pub(crate) const BACKLOG: usize = 1024;

/// How long the other side may take to answer: its program decides.
const PATIENCE: Span = Span::from_secs(60);

/// Listens at the address that the identifier has, or at a port of all addresses if it has none.
pub(crate) fn rdma_listen(id: Handle<CmId>, backlog: i32) -> Answer {
    let held = id.look()?;
    let backlog = usize::try_from(backlog).ok().filter(|count| *count != 0).unwrap_or(BACKLOG);
    let (phase, local, has_ports) = {
        let state = lock(&held.state);
        (state.phase, state.local, !state.ports.is_empty())
    };
    let local = match phase {
        Phase::Idle => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        Phase::Bound => local.ok_or(Errno::INVAL)?,
        _ => return Err(Errno::INVAL),
    };
    if !has_ports {
        reserve::take(held, local, &routes_here(local)?)?;
    }
    let mut state = lock(&held.state);
    (state.phase, state.backlog.most) = (Phase::Listening, backlog);
    show(held, &state);
    let mut early = state.early.take().unwrap_or_default();
    let too_many = early.split_off(backlog.min(early.len()));
    early.into_iter().for_each(|news| channel::tell(state.channel, news));
    drop(state);
    // That refuses them.
    drop(too_many);
    Ok(())
}

/// The messages of a connection's set-up that have private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    Request,
    Reply,
    Rejection,
}

/// Bytes of private data that a program may send with a message: of those that InfiniBand has (IBA 12.6), RDMA-CM uses 36 of a request
/// itself (rdma_connect(3), rdma_accept(3)). With RNICs of iWARP as much goes as a program can say.
fn room(letter: Letter, is_datagram: bool) -> u8 {
    match (device::kind(), letter, is_datagram) {
        (Kind::Rnic, ..) => u8::MAX,
        (Kind::Hca, Letter::Request, false) => 56,
        (Kind::Hca, Letter::Request, true) => 180,
        (Kind::Hca, Letter::Reply, false) => 196,
        (Kind::Hca, Letter::Rejection, false) => 148,
        (Kind::Hca, Letter::Reply | Letter::Rejection, true) => 136,
    }
}

/// What a program says of a connection, as ours, and the number of a queue pair of its own. A program that says nothing takes what the
/// other side has `asked` for, and leaves the rest to the queue pair that the identifier has.
///
/// # Errors
/// [`Errno::INVAL`] for more private data than there can be, and for nothing where there is no queue pair.
fn parameters(
    state: &State,
    letter: Letter,
    param: Out<rdma_conn_param>,
    asked: Option<Depths>,
) -> Answer<(ConnParam, u32)> {
    let default = ConnParam { timeout: PATIENCE, ..ConnParam::default() };
    let Some(found) = param.get() else {
        if state.qp.is_null() && !state.is_datagram {
            return Err(Errno::INVAL);
        }
        let asked = asked.unwrap_or(Depths::of(&default));
        let (responder_resources, initiator_depth) = (asked.initiator_depth, asked.responder_resources);
        return Ok((ConnParam { responder_resources, initiator_depth, ..default }, 0));
    };
    let param = ConnParam {
        private_data: private_data(state, letter, found.private_data, found.private_data_len)?,
        rnr_retry: found.rnr_retry_count.min(RNR_RETRY_FOREVER),
        responder_resources: found.responder_resources,
        initiator_depth: found.initiator_depth,
        ..default
    };
    Ok((param, found.qp_num))
}

fn private_data(state: &State, letter: Letter, place: *const c_void, len: u8) -> Answer<Vec<u8>> {
    if len > room(letter, state.is_datagram) {
        return Err(Errno::INVAL);
    }
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
    // Events of what begins here find the identifier known.
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    if state.phase != Phase::RouteResolved {
        return Err(Errno::INVAL);
    }
    let (mut param, number) = parameters(&state, Letter::Request, param, None)?;
    let addr = route::as_known(&engine, state.peer.ok_or(Errno::INVAL)?);
    let qp = if state.is_datagram {
        param.private_data = service::question(&param.private_data);
        None
    } else {
        own_qp(&state, &objects, number)?
    };
    let attempt = Attempt { addr, param, until: engine.device.host().now() + GRACE };
    let (end, number) = attempt.make(&engine, &state, qp)?;
    objects.ids.insert(number, id);
    (state.end, state.phase, state.attempt) = (end, Phase::Connecting, Some(attempt));
    Ok(state.is_sync.then_some(id))
}

/// Sets the pause of a queue pair that librdmacm has made to the longest, as the kernel's RDMA-CM does. A program sets the pause of a queue
/// pair that it has made itself.
fn set_pause(state: &State, qp: Held<Qp>) {
    if state.qp == qp.handle() {
        // It fails only on a device without pauses.
        let _ = qp.verbs().set_rnr_pause(modify::pause(0));
    }
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
    /// It reports that its queue pair may be used again.
    TimeWait,
}

/// How long after the end of a connection packets of it may come: cards wait so long before they use the queue pair again, half a second to
/// some seconds (IBA 12.9.8.4). Nothing comes late here; programs wait for the event.
const TIME_WAIT: Span = Span::from_ms(500);

/// How long a program may take to poll what came before the end of a connection, and how often it is looked whether it has.
pub(crate) const UNPOLLED: Span = Span::from_ms(100);
const LOOK: Span = Span::from_ms(1);

/// For how long it is tried again, and how often.
const GRACE: Span = Span::from_ms(500);
const PAUSE: Span = Span::from_ms(10);

impl Attempt {
    /// Begins to connect a queue pair, or none, from the address that the identifier holds; the queue pair's number.
    fn make(&self, engine: &Engine, state: &State, qp: Option<Held<Qp>>) -> Answer<(End, u32)> {
        let (cm, addr, param) = (&engine.cm, self.addr, &self.param);
        let port = state.ports.first().and_then(Reserved::port);
        let Some(qp) = qp else {
            let bare = match port {
                Some(port) => cm.connect_without_qp_from(port, addr, param)?,
                None => cm.connect_without_qp(addr, param)?,
            };
            let number = bare.num();
            return Ok((End::Bare(Box::new(bare)), number));
        };
        set_pause(state, qp);
        match port {
            Some(port) => cm.connect_from(port, qp.verbs(), addr, param)?,
            None => cm.connect(qp.verbs(), addr, param)?,
        }
        Ok((End::Qp(qp.handle()), qp.verbs().num()))
    }
}

/// The device could not connect an identifier.
pub(crate) fn not_connected(engine: &Engine, id: Held<CmId>, why: &CmFailure) {
    let now = engine.device.host().now();
    let is_early = |state: &State| state.attempt.as_ref().is_some_and(|attempt| now < attempt.until);
    // Where somebody forwards connections (a container's proxy, a guest's network), one that nobody listens for is made and ends.
    if matches!(why, CmFailure::Refused(_) | CmFailure::PeerGone) && is_early(&lock(&id.state)) {
        engine.do_later(now + PAUSE, id.handle(), Later::Connect);
    } else {
        failed(id, why);
    }
}

/// Connects an identifier again.
pub(crate) fn again(engine: &Engine, objects: &mut Objects, id: Handle<CmId>) {
    let Ok(held) = id.look() else { return };
    let mut state = lock(&held.state);
    let Some(attempt) = state.attempt.as_ref().filter(|_| state.phase == Phase::Connecting) else { return };
    let qp = match &state.end {
        End::Qp(qp) => qp.look().ok(),
        _ => None,
    };
    if let Ok((end, number)) = attempt.make(engine, &state, qp) {
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
    let mut objects = lock(&engine.objects);
    let mut state = lock(&held.state);
    let asked = state.request.as_ref().ok_or(Errno::INVAL)?.request.info.depths;
    let (param, number) = parameters(&state, Letter::Reply, param, asked)?;
    if state.is_datagram {
        service::answer(&engine, &objects, &mut state, number, &param.private_data)?;
        state.phase = Phase::Over;
        return Ok(None);
    }
    let qp = own_qp(&state, &objects, number)?;
    let Asked { request, .. } = state.request.take().ok_or(Errno::INVAL)?;
    let (end, number) = match qp {
        Some(qp) => {
            set_pause(&state, qp);
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
    let mut state = lock(&held.state);
    let bytes = private_data(&state, Letter::Rejection, place, len)?;
    let asked = state.request.take().ok_or(Errno::INVAL)?;
    drop(state);
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
        _ => return Err(Errno::INVAL),
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
    let ConnInfo { local, peer, rnr_retry, .. } = request.asked.request.info;
    state.context = request.context;
    state.local = at.filter(|at| !at.ip().is_unspecified()).or(Some(local));
    (state.peer, state.rnr_retry, state.request) = (Some(peer), rnr_retry, Some(request.asked));
    show(new, &state);
    show_path(new, &mut state);
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
    (state.phase, state.rnr_retry) = (Phase::Connected, state.rnr_retry.or(info.rnr_retry));
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
    let news = News { private_data, info: Some(*info), ..News::new(id.handle(), kind, 0) };
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

/// The connection has ended. If the peer ended it, the event waits until the program has polled all successful completions, sends as
/// well as receives, or until `until`: a card reports the end a while after its last completion, and programs destroy the queue pair on
/// this event, and lose what they have not polled.
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

/// The connection is over.
fn disconnected(engine: &Engine, id: Held<CmId>) {
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
    // RNICs of iWARP know no such state.
    if device::kind() == Kind::Hca {
        engine.do_later(engine.device.host().now() + TIME_WAIT, id.handle(), Later::TimeWait);
    }
}

/// What a connection has left behind is gone: its queue pair may be used again.
pub(crate) fn time_wait_is_over(id: Held<CmId>) {
    tell(id, &lock(&id.state), n::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

/// The program ends the queue pair of a connection: the device tells nothing of it any more.
pub(crate) fn abandoned(engine: &Engine, id: Handle<CmId>) {
    let Ok(id) = id.look() else { return };
    let phase = lock(&id.state).phase;
    match phase {
        Phase::Connected => disconnected(engine, id),
        Phase::Connecting | Phase::Accepting => failed(id, &CmFailure::PeerGone),
        _ => {}
    }
}
