//! [`CmId`]: identifiers of connections: where they begin and end, on which device, and their queue pairs.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use cface::{Loan, Out, SockAddr};
use libc::sockaddr_storage;
use rdma_abi::cma::*;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_qp_init_attr;
use verbs::{ConnectRequest, Listener};

use crate::answer::Answer;
use crate::cm::channel::{self, EventChannel, News};
use crate::context::{self, Context};
use crate::device;
use crate::engine::lock;
use crate::errno::Errno;
use crate::event::Acks;
use crate::modify;
use crate::pd::{self, Pd};
use crate::qp::{self, Qp};
use crate::slab::{Handle, Held, Object, Slab};

/// An identifier of a connection, or of a listener.
pub(crate) struct CmId {
    pub(crate) state: Mutex<State>,
    pub(crate) events: Acks,
}

/// What becomes of it, under its lock: the last that is taken, behind those of an engine.
pub(crate) struct State {
    pub(crate) channel: Handle<EventChannel>,
    pub(crate) context: Handle<Context>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) qp: Handle<Qp>,
    /// On each device, while it listens.
    pub(crate) listeners: Vec<Listener>,
    /// What it answers, if it came from a listener.
    pub(crate) request: Option<ConnectRequest>,
}

impl Object for CmId {
    type C = rdma_cm_id;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<CmId> = Slab::new();
        &SLAB
    }
}

/// A new identifier.
pub(crate) fn make(channel: Handle<EventChannel>, user: *mut c_void, space: c_int) -> Answer<Handle<CmId>> {
    channel.look()?;
    // SAFETY: addresses, numbers and pointers that are NULL. Test: as above.
    let mut seen: rdma_cm_id = unsafe { std::mem::zeroed() };
    seen.channel = channel.cast();
    seen.context = user;
    seen.ps = space;
    seen.qp_type = n::IBV_QPT_RC as c_int;
    let state = State {
        channel,
        context: Handle::NULL,
        local: None,
        peer: None,
        qp: Handle::NULL,
        listeners: Vec::new(),
        request: None,
    };
    CmId::slab().insert(seen, CmId { state: Mutex::new(state), events: Acks::default() })
}

pub(crate) fn rdma_create_id(
    channel: Handle<EventChannel>,
    id: Out<Handle<CmId>>,
    context: *mut c_void,
    ps: i32,
) -> Answer {
    if ps.cast_unsigned() != n::RDMA_PS_TCP {
        return Err(Errno::OPNOTSUPP);
    }
    let place = id.required(Errno::INVAL)?;
    place.set(make(channel, context, ps)?);
    Ok(())
}

pub(crate) fn rdma_destroy_id(id: Handle<CmId>) -> Answer {
    let held = id.look()?;
    let (channel, context, qp) = {
        let mut state = lock(&held.state);
        state.listeners.clear();
        state.request = None;
        (state.channel, state.context, state.qp)
    };
    if let Ok(context) = context.look() {
        lock(&context.engine.objects).ids.retain(|_, known| *known != id);
    }
    for context in shared_contexts() {
        if let Ok(context) = context.look() {
            lock(&context.engine.objects).listeners.retain(|_, known| *known != id);
        }
    }
    channel::forget(id, channel);
    held.events.await_all();
    if !qp.is_null() {
        return Err(Errno::BUSY);
    }
    held.remove().map(drop)
}

/// The contexts of librdmacm, one for each device: opened when an identifier needs one.
pub(crate) fn shared_contexts() -> Vec<Handle<Context>> {
    lock(&SHARED).iter().map(|(_, context)| *context).collect()
}

static SHARED: Mutex<Vec<(usize, Handle<Context>)>> = Mutex::new(Vec::new());

/// The context of the device with this place in the list.
pub(crate) fn shared_context(index: usize) -> Answer<Handle<Context>> {
    let mut shared = lock(&SHARED);
    if let Some((_, context)) =
        shared.iter().find(|(known, context)| *known == index && context.look().is_ok())
    {
        return Ok(*context);
    }
    let context = context::open(*device::all().get(index).ok_or(Errno::NODEV)?)?;
    shared.push((index, context));
    Ok(context)
}

/// The first device that reaches an address, and the address as it knows it.
///
/// # Errors
/// [`Errno::NODEV`] if none does.
pub(crate) fn device_for(addr: SocketAddr) -> Answer<(usize, SocketAddr)> {
    for (index, device) in device::all().iter().enumerate() {
        let name = &device.look()?.name;
        if !fabric::is_local(name) {
            return Ok((index, addr));
        }
        if is_here(addr.ip()) {
            return Ok((index, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), addr.port())));
        }
    }
    Err(Errno::NODEV)
}

/// Whether an address is one of this host: the system lets one bind it.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// A socket address as C lays it out.
fn storage(addr: SocketAddr) -> sockaddr_storage {
    let loan = Loan::address(addr);
    // SAFETY: a loan is at least as long, and any bytes are such an address. Test: as above.
    unsafe { loan.as_ptr().cast::<sockaddr_storage>().read_unaligned() }
}

/// Shows both addresses, and the device.
pub(crate) fn show(id: Held<CmId>, state: &State) {
    let (local, peer) = (state.local.map(storage), state.peer.map(storage));
    let context = Context::address(state.context);
    let gid = state.context.look().and_then(|context| crate::port::gid(context, 1, 0)).unwrap_or_default();
    id.show(|seen| {
        local.into_iter().for_each(|addr| seen.route.addr.src_storage = addr);
        peer.into_iter().for_each(|addr| seen.route.addr.dst_storage = addr);
        seen.route.addr.addr.sgid = gid;
        if !state.context.is_null() {
            seen.verbs = context;
            seen.port_num = 1;
        }
    });
}

pub(crate) fn rdma_bind_addr(id: Handle<CmId>, addr: SockAddr) -> Answer {
    let id = id.look()?;
    let addr = addr.get().map_err(|_| Errno::INVAL)?;
    let mut state = lock(&id.state);
    if !addr.ip().is_unspecified() {
        state.context = shared_context(device_for(addr)?.0)?;
    }
    state.local = Some(addr);
    show(id, &state);
    Ok(())
}

/// Tells an identifier's channel.
pub(crate) fn tell(id: Held<CmId>, channel: Handle<EventChannel>, kind: u32, status: c_int) {
    let (id, listener, private_data) = (id.handle(), Handle::NULL, Vec::new());
    channel::tell(channel, News { id, listener, kind, status, private_data, depths: None });
}

pub(crate) fn rdma_resolve_addr(
    id: Handle<CmId>,
    _src_addr: SockAddr,
    dst_addr: SockAddr,
    _timeout_ms: i32,
) -> Answer {
    let id = id.look()?;
    let peer = dst_addr.get().map_err(|_| Errno::INVAL)?;
    let mut state = lock(&id.state);
    let (kind, status) = match device_for(peer).and_then(|(index, _)| shared_context(index)) {
        Ok(context) => {
            state.context = context;
            (n::RDMA_CM_EVENT_ADDR_RESOLVED, 0)
        }
        Err(why) => (n::RDMA_CM_EVENT_ADDR_ERROR, -why.0),
    };
    state.peer = Some(peer);
    let any = if peer.ip().is_loopback() { peer.ip() } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    state.local.get_or_insert(SocketAddr::new(any, 0));
    show(id, &state);
    tell(id, state.channel, kind, status);
    Ok(())
}

pub(crate) fn rdma_resolve_route(id: Handle<CmId>, _timeout_ms: i32) -> Answer {
    let id = id.look()?;
    let state = lock(&id.state);
    if state.context.is_null() || state.peer.is_none() {
        return Err(Errno::INVAL);
    }
    tell(id, state.channel, n::RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    Ok(())
}

pub(crate) fn rdma_create_qp(id: Handle<CmId>, pd: Handle<Pd>, init: Out<ibv_qp_init_attr>) -> Answer {
    let id = id.look()?;
    let mut found = init.get().ok_or(Errno::INVAL)?;
    let context = {
        let state = lock(&id.state);
        Some(state.context).filter(|context| state.qp.is_null() && !context.is_null()).ok_or(Errno::INVAL)?
    };
    let pd = if pd.is_null() { default_pd(context)? } else { pd };
    let qp = qp::create(pd, &mut found, false)?;
    // librdmacm makes it ready for receives.
    modify::show(qp.look()?, n::IBV_QPS_INIT);
    init.set(found);
    lock(&id.state).qp = qp;
    id.show(|seen| (seen.qp, seen.pd) = (qp.cast(), pd.cast()));
    Ok(())
}

/// The domain of those who name none: one for each context.
fn default_pd(context: Handle<Context>) -> Answer<Handle<Pd>> {
    static PDS: Mutex<Vec<Handle<Pd>>> = Mutex::new(Vec::new());
    let mut pds = lock(&PDS);
    let is_of = |pd: &&Handle<Pd>| pd.look().is_ok_and(|pd| pd.context() == context);
    if let Some(pd) = pds.iter().find(is_of) {
        return Ok(*pd);
    }
    let pd = pd::ibv_alloc_pd(context)?;
    pds.push(pd);
    Ok(pd)
}

pub(crate) fn rdma_destroy_qp(id: Handle<CmId>) -> Answer {
    let id = id.look()?;
    let qp = std::mem::replace(&mut lock(&id.state).qp, Handle::NULL);
    id.show(|seen| seen.qp = std::ptr::null_mut());
    qp::ibv_destroy_qp(qp)
}

pub(crate) fn rdma_migrate_id(id: Handle<CmId>, channel: Handle<EventChannel>) -> Answer {
    let held = id.look()?;
    channel.look()?;
    let mut state = lock(&held.state);
    channel::migrate(id, state.channel, channel)?;
    state.channel = channel;
    held.show(|seen| seen.channel = channel.cast());
    Ok(())
}

/// Wishes that change nothing here: type of service, addresses that are used again, one family, time-outs.
pub(crate) fn rdma_set_option(
    id: Handle<CmId>,
    level: i32,
    optname: i32,
    value: *mut c_void,
    _len: usize,
) -> Answer {
    id.look()?;
    let known = [
        n::RDMA_OPTION_ID_TOS,
        n::RDMA_OPTION_ID_REUSEADDR,
        n::RDMA_OPTION_ID_AFONLY,
        n::RDMA_OPTION_ID_ACK_TIMEOUT,
    ];
    let is_known = level.cast_unsigned() == n::RDMA_OPTION_ID && known.contains(&optname.cast_unsigned());
    if is_known && !value.is_null() { Ok(()) } else { Err(Errno::NOSYS) }
}

fn port(id: Handle<CmId>, which: impl FnOnce(&State) -> Option<SocketAddr>) -> u16 {
    id.look().ok().and_then(|id| which(&lock(&id.state))).map_or(0, |addr| addr.port().to_be())
}

pub(crate) fn rdma_get_src_port(id: Handle<CmId>) -> u16 {
    port(id, |state| state.local)
}

pub(crate) fn rdma_get_dst_port(id: Handle<CmId>) -> u16 {
    port(id, |state| state.peer)
}
