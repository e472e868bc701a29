//! Identifiers of connections and of listeners: their creation, options and ports.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Mutex;

use ffi::{Bytes, Out, lock};
use rdma_abi::cma::*;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_ece;

use crate::answer::Answer;
use crate::cm::channel;
use crate::errno::{errno, missing};
use crate::objects::{Backlog, CmId, CmIdState, CmPhase, EventChannel, LocalEnd, PendingCmEvent};
use crate::qp::settings::set_timeout;
use crate::slab::{Handle, Held, Object};
use crate::usage::EventAcks;

/// Creates an identifier, with a channel of its own if none is passed.
pub(crate) fn create_id(
    channel: Handle<EventChannel>,
    user: *mut c_void,
    space: c_int,
) -> Answer<Handle<CmId>> {
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::of_one_id()? } else { channel.lookup()?.handle() };
    // SAFETY: addresses, numbers and pointers, which may be zero. Test: `connections_are_made_by_addresses` in tests/programs.rs.
    let mut seen: rdma_cm_id = unsafe { std::mem::zeroed() };
    seen.channel = channel.cast();
    seen.context = user;
    seen.ps = space;
    let is_datagram = space.cast_unsigned() == n::RDMA_PS_UDP;
    seen.qp_type = if is_datagram { n::IBV_QPT_UD } else { n::IBV_QPT_RC } as c_int;
    let state = CmIdState {
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
        phase: CmPhase::Idle,
        is_leaving: false,
        end: LocalEnd::None,
        attempt: None,
        ports: Vec::new(),
        path: None,
        early: None,
        backlog: Backlog::new(),
        request: None,
        template: None,
    };
    CmId::slab().insert(seen, CmId { state: Mutex::new(state), events: EventAcks::default() })
}

pub(crate) fn rdma_create_id(
    channel: Handle<EventChannel>,
    id: Out<Handle<CmId>>,
    context: *mut c_void,
    ps: i32,
) -> Answer {
    if !matches!(ps.cast_unsigned(), n::RDMA_PS_TCP | n::RDMA_PS_UDP | n::RDMA_PS_IB) {
        return Err(errno!(OPNOTSUPP, "ps is {ps:#x}; pass RDMA_PS_TCP, RDMA_PS_UDP or RDMA_PS_IB"));
    }
    let place = id.required_or(|| missing("id"))?;
    place.set(create_id(channel, context, ps)?);
    Ok(())
}

/// Queues an event on an identifier's channel.
pub(crate) fn queue_id_event(id: Held<CmId>, state: &CmIdState, kind: u32, status: c_int) {
    channel::queue_event(state.channel, PendingCmEvent::new(id.handle(), kind, status));
}

/// Sets an option: address reuse, or one address family only. Type of service has no effect; the acknowledgement timeout is only
/// reported back.
pub(crate) fn rdma_set_option(
    id: Handle<CmId>,
    level: i32,
    optname: i32,
    value: *mut c_void,
    len: usize,
) -> Answer {
    let id = id.lookup()?;
    let option = optname.cast_unsigned();
    let size = match option {
        _ if level.cast_unsigned() != n::RDMA_OPTION_ID => {
            return Err(errno!(NOSYS, "level is {level}; only RDMA_OPTION_ID (0) is known"));
        }
        n::RDMA_OPTION_ID_TOS | n::RDMA_OPTION_ID_ACK_TIMEOUT => size_of::<u8>(),
        n::RDMA_OPTION_ID_REUSEADDR | n::RDMA_OPTION_ID_AFONLY => size_of::<c_int>(),
        _ => {
            return Err(errno!(
                NOSYS,
                "optname is {optname}, which is no option of RDMA_OPTION_ID that this library has"
            ));
        }
    };
    if len != size {
        return Err(errno!(INVAL, "optlen is {len}, but option {optname} has {size} bytes"));
    }
    // SAFETY: a program passes NULL or the address of a value of this size. Test: `connections_are_made_by_addresses`.
    let bytes = unsafe { Bytes::new(value) }.get(size as c_int).map_err(|_| missing("optval"))?;
    let is_set = bytes.iter().any(|byte| *byte != 0);
    let mut state = lock(&id.state);
    match option {
        n::RDMA_OPTION_ID_REUSEADDR if state.phase == CmPhase::Idle || is_set => {
            state.reuses_address = is_set
        }
        n::RDMA_OPTION_ID_AFONLY if matches!(state.phase, CmPhase::Idle | CmPhase::Bound) => {
            state.is_of_one_family = is_set;
        }
        n::RDMA_OPTION_ID_ACK_TIMEOUT if bytes[0] < 32 => {
            state.ack_timeout = bytes[0];
            state.qp.lookup().into_iter().for_each(|qp| set_timeout(qp, bytes[0]));
        }
        n::RDMA_OPTION_ID_TOS => {}
        // Too late, or a value that exceeds five bits.
        _ => {
            return Err(errno!(
                INVAL,
                "option {optname} takes no such value, or it is too late: the id {}",
                state.phase.text()
            ));
        }
    }
    Ok(())
}

fn port(id: Handle<CmId>, which: impl FnOnce(&CmIdState) -> Option<SocketAddr>) -> u16 {
    id.lookup().ok().and_then(|id| which(&lock(&id.state))).map_or(0, |addr| addr.port().to_be())
}

pub(crate) fn rdma_get_src_port(id: Handle<CmId>) -> u16 {
    port(id, |state| state.local)
}

pub(crate) fn rdma_get_dst_port(id: Handle<CmId>) -> u16 {
    port(id, |state| state.peer)
}

/// Reports no ECE options: only some vendors' devices have them.
pub(crate) fn rdma_get_remote_ece(id: Handle<CmId>, ece: Out<ibv_ece>) -> Answer {
    id.lookup()?;
    ece.required_or(|| missing("ece"))?.set(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 });
    Ok(())
}

pub(crate) fn rdma_set_local_ece(id: Handle<CmId>, ece: Out<ibv_ece>) -> Answer {
    id.lookup()?;
    let ece = ece.get().ok_or_else(|| missing("ece"))?;
    if ece.vendor_id == 0 && ece.comp_mask == 0 {
        Ok(())
    } else {
        Err(errno!(OPNOTSUPP, "ece has options, and the device has none; pass zeros"))
    }
}
