//! [`CmId`]: identifiers of connections and of listeners.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use cface::{Bytes, Out, lock};
use rdma_abi::cma::*;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_ece, ibv_sa_path_rec};

use crate::answer::Answer;
use crate::cm::channel::{self, Asked, Backlog, EventChannel, News};
use crate::cm::connect::Attempt;
use crate::cm::endpoint::Template;
use crate::cm::event::{CmEvent, rdma_ack_cm_event};
use crate::cm::reserve::{self, Reserved};
use crate::cm::{connect, route};
use crate::context::Context;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::event::Acks;
use crate::modify;
use crate::qp::Qp;
use crate::slab::{Handle, Held, Object, Slab};

/// An identifier of a connection, or of a listener.
pub(crate) struct CmId {
    pub(crate) state: Mutex<State>,
    /// Events that the program holds.
    pub(crate) events: Acks,
}

/// What becomes of it, under its lock, which is taken behind an engine's and before those of channels.
pub(crate) struct State {
    pub(crate) channel: Handle<EventChannel>,
    /// The channel is its own: calls wait for what answers them.
    pub(crate) is_sync: bool,
    /// Of port space UDP.
    pub(crate) is_datagram: bool,
    /// Where it listens at an address of IPv6, those of IPv4 are not meant.
    pub(crate) is_of_one_family: bool,
    /// It may have an address that others have who say the same, while nobody listens there.
    pub(crate) reuses_address: bool,
    pub(crate) context: Handle<Context>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// What the program has said of the time until a message is sent again, which is the device's.
    pub(crate) ack_timeout: u8,
    /// The peer's limit of retries for messages that find no receive, if the protocol carries it.
    pub(crate) rnr_retry: Option<u8>,
    /// The queue pair that was made by it.
    pub(crate) qp: Handle<Qp>,
    pub(crate) phase: Phase,
    /// The program has ended the connection.
    pub(crate) is_leaving: bool,
    /// What of ours is connected, or will be.
    pub(crate) end: End,
    /// How it connects, while nobody has answered.
    pub(crate) attempt: Option<Attempt>,
    /// What it holds of its address, on each device.
    pub(crate) ports: Vec<Reserved>,
    /// What C sees of the way to the other side.
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// Requests for the port, while the program does not listen yet.
    pub(crate) early: Option<Vec<News>>,
    /// Of a listener: requests that the program has not answered.
    pub(crate) backlog: Backlog,
    /// What it answers, if it came from a listener.
    pub(crate) request: Option<Asked>,
    /// Of a listener: what queue pairs of its requests are made of.
    pub(crate) template: Option<Template>,
}

/// How far an identifier has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    /// It has an address.
    Bound,
    Listening,
    /// The other side's address is known, and the device that leads there.
    AddrResolved,
    /// It may connect.
    RouteResolved,
    /// By this side.
    Connecting,
    /// By the other side, which has to confirm.
    Accepting,
    Connected,
    Over,
}

/// An end of a connection.
pub(crate) enum End {
    None,
    Qp(Handle<Qp>),
    /// There is no queue pair of the program's.
    Bare(Box<verbs::CmId>),
}

impl Object for CmId {
    type C = rdma_cm_id;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<CmId> = Slab::new();
        &SLAB
    }
}

impl State {
    /// Of the device that it is on.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if none has been found yet.
    pub(crate) fn engine(&self) -> Answer<Arc<Engine>> {
        Ok(self.context.look()?.engine.clone())
    }
}

/// A new identifier; without a channel, it has its own.
pub(crate) fn make(channel: Handle<EventChannel>, user: *mut c_void, space: c_int) -> Answer<Handle<CmId>> {
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::rdma_create_event_channel()? } else { channel.look()?.handle() };
    // SAFETY: addresses, numbers and pointers that are NULL. Test: `connections_are_made_by_addresses` in tests/programs.rs.
    let mut seen: rdma_cm_id = unsafe { std::mem::zeroed() };
    seen.channel = channel.cast();
    seen.context = user;
    seen.ps = space;
    let is_datagram = space.cast_unsigned() == n::RDMA_PS_UDP;
    seen.qp_type = if is_datagram { n::IBV_QPT_UD } else { n::IBV_QPT_RC } as c_int;
    let state = State {
        channel,
        is_sync,
        is_datagram,
        is_of_one_family: false,
        reuses_address: false,
        context: Handle::NULL,
        local: None,
        peer: None,
        ack_timeout: 0,
        rnr_retry: None,
        qp: Handle::NULL,
        phase: Phase::Idle,
        is_leaving: false,
        end: End::None,
        attempt: None,
        ports: Vec::new(),
        path: None,
        early: None,
        backlog: Backlog::new(connect::BACKLOG),
        request: None,
        template: None,
    };
    CmId::slab().insert(seen, CmId { state: Mutex::new(state), events: Acks::default() })
}

pub(crate) fn rdma_create_id(
    channel: Handle<EventChannel>,
    id: Out<Handle<CmId>>,
    context: *mut c_void,
    ps: i32,
) -> Answer {
    if !matches!(ps.cast_unsigned(), n::RDMA_PS_TCP | n::RDMA_PS_UDP | n::RDMA_PS_IB) {
        return Err(Errno::OPNOTSUPP);
    }
    let place = id.required(Errno::INVAL)?;
    place.set(make(channel, context, ps)?);
    Ok(())
}

pub(crate) fn rdma_destroy_id(id: Handle<CmId>) -> Answer {
    let held = id.look()?;
    for context in route::contexts() {
        let mut objects = lock(&context.engine.objects);
        objects.ids.retain(|_, known| *known != id);
        lock(&context.engine.later).retain(|(_, known, _)| *known != id);
    }
    let ports = reserve::give_up(held);
    // Nobody tells it anything any more.
    let (channel, is_sync, ended) = {
        let mut state = lock(&held.state);
        let _ = connect::end(&mut state);
        let end = std::mem::replace(&mut state.end, End::None);
        (state.channel, state.is_sync, (state.request.take(), end))
    };
    drop((ended, ports));
    drop(channel::withdraw(channel, id));
    acknowledge(held);
    held.events.await_all();
    drop(held.remove()?);
    if is_sync { channel::rdma_destroy_event_channel(channel) } else { Ok(()) }
}

/// Acknowledges the event of the last call that waited.
pub(crate) fn acknowledge(id: Held<CmId>) {
    let event = Handle::<CmEvent>::of(id.seen().event);
    id.show(|seen| seen.event = std::ptr::null_mut());
    // The program may have done so itself.
    let _ = rdma_ack_cm_event(event);
}

/// Moves an identifier to another channel, or to one of its own, with what it has not told yet.
pub(crate) fn rdma_migrate_id(id: Handle<CmId>, channel: Handle<EventChannel>) -> Answer {
    let held = id.look()?;
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::rdma_create_event_channel()? } else { channel.look()?.handle() };
    let (before, was_sync) = {
        let mut state = lock(&held.state);
        let before = (state.channel, state.is_sync);
        (state.channel, state.is_sync) = (channel, is_sync);
        channel::withdraw(before.0, id).into_iter().for_each(|news| channel::tell(channel, news));
        before
    };
    held.show(|seen| seen.channel = channel.cast());
    if was_sync {
        acknowledge(held);
        channel::rdma_destroy_event_channel(before)?;
    }
    Ok(())
}

/// Tells an identifier's channel.
pub(crate) fn tell(id: Held<CmId>, state: &State, kind: u32, status: c_int) {
    channel::tell(state.channel, News::new(id.handle(), kind, status));
}

/// What a program asks for: addresses that are shared, one family of them; and what changes nothing here, a type of service and the
/// time until a message is sent again, which is reported again.
pub(crate) fn rdma_set_option(
    id: Handle<CmId>,
    level: i32,
    optname: i32,
    value: *mut c_void,
    len: usize,
) -> Answer {
    let id = id.look()?;
    let option = optname.cast_unsigned();
    let size = match option {
        _ if level.cast_unsigned() != n::RDMA_OPTION_ID => return Err(Errno::NOSYS),
        n::RDMA_OPTION_ID_TOS | n::RDMA_OPTION_ID_ACK_TIMEOUT => size_of::<u8>(),
        n::RDMA_OPTION_ID_REUSEADDR | n::RDMA_OPTION_ID_AFONLY => size_of::<c_int>(),
        _ => return Err(Errno::NOSYS),
    };
    if len != size {
        return Err(Errno::INVAL);
    }
    // SAFETY: a program passes NULL or the address of a value, which has its bytes. Test: `connections_are_made_by_addresses`.
    let bytes = unsafe { Bytes::new(value) }.get(size as c_int).map_err(|_| Errno::INVAL)?;
    let is_set = bytes.iter().any(|byte| *byte != 0);
    let mut state = lock(&id.state);
    match option {
        n::RDMA_OPTION_ID_REUSEADDR if state.phase == Phase::Idle || is_set => state.reuses_address = is_set,
        n::RDMA_OPTION_ID_AFONLY if matches!(state.phase, Phase::Idle | Phase::Bound) => {
            state.is_of_one_family = is_set;
        }
        n::RDMA_OPTION_ID_ACK_TIMEOUT if bytes[0] < 32 => {
            state.ack_timeout = bytes[0];
            state.qp.look().into_iter().for_each(|qp| modify::set_timeout(qp, bytes[0]));
        }
        n::RDMA_OPTION_ID_TOS => {}
        // Too late, or no value of five bits.
        _ => return Err(Errno::INVAL),
    }
    Ok(())
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

/// The other side has no options that only some vendors' devices know.
pub(crate) fn rdma_get_remote_ece(id: Handle<CmId>, ece: Out<ibv_ece>) -> Answer {
    id.look()?;
    ece.required(Errno::INVAL)?.set(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 });
    Ok(())
}

pub(crate) fn rdma_set_local_ece(id: Handle<CmId>, ece: Out<ibv_ece>) -> Answer {
    id.look()?;
    let ece = ece.get().ok_or(Errno::INVAL)?;
    if ece.vendor_id == 0 && ece.comp_mask == 0 { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}
