//! Binding an identifier to its own address, and resolving the peer's address to a device.

use ffi::{BadAddress, SockAddr, lock};
use rdma_abi::numbers as n;

use crate::answer::Answer;
use crate::cm::c_fields::{write_id, write_path};
use crate::cm::id::queue_id_event;
use crate::cm::reserve;
use crate::cm::route::{context, routes_here, way_to};
use crate::errno::{Errno, errno, missing};
use crate::objects::{CmId, CmPhase};
use crate::slab::Handle;

/// The error of an argument that is no socket address.
#[cold]
fn no_address(argument: &str, wrong: BadAddress) -> Errno {
    match wrong {
        BadAddress::Missing => missing(argument),
        BadAddress::Family(family) => {
            errno!(INVAL, "{argument}.sa_family is {family}; pass an address of AF_INET or AF_INET6")
        }
    }
}

pub(crate) fn rdma_bind_addr(id: Handle<CmId>, addr: SockAddr) -> Answer {
    let (id, addr) = (id.lookup()?, addr.get().map_err(|wrong| no_address("addr", wrong))?);
    let phase = lock(&id.state).phase;
    if phase != CmPhase::Idle {
        return Err(errno!(
            INVAL,
            "the id {}, and only a new one can be bound; create another",
            phase.text()
        ));
    }
    let routes = routes_here(addr)?;
    reserve::reserve(id, addr, &routes)?;
    let mut state = lock(&id.state);
    if !addr.ip().is_unspecified() {
        state.context = context(routes[0].0)?;
    }
    state.phase = CmPhase::Bound;
    write_id(id, &state);
    Ok(())
}

/// Finds the device that reaches the peer, and reserves a source address on it. A bound identifier keeps its address, whatever source
/// is passed.
pub(crate) fn rdma_resolve_addr(
    id: Handle<CmId>,
    src_addr: SockAddr,
    dst_addr: SockAddr,
    _timeout_ms: i32,
) -> Answer<Option<Handle<CmId>>> {
    let held = id.lookup()?;
    let peer = dst_addr.get().map_err(|wrong| no_address("dst_addr", wrong))?;
    let source = match src_addr.get() {
        Ok(source) => Some(source),
        Err(BadAddress::Missing) => None,
        Err(wrong) => return Err(no_address("src_addr", wrong)),
    };
    let own = {
        let state = lock(&held.state);
        match state.phase {
            CmPhase::Idle => source,
            CmPhase::Bound => state.local,
            phase => {
                return Err(errno!(
                    INVAL,
                    "the id {}, and an address is resolved once for each; create another",
                    phase.text()
                ));
            }
        }
    };
    if own.is_some_and(|own| own.is_ipv4() != peer.is_ipv4()) {
        return Err(errno!(
            INVAL,
            "src_addr and dst_addr are of different families; pass both as IPv4, or both as IPv6"
        ));
    }
    if let Some(own) = own {
        routes_here(own)?;
    }
    let from = own.map(|own| own.ip()).filter(|ip| !ip.is_unspecified());
    let (device, ip) = way_to(peer.ip(), from)?;
    let local = reserve::choose(held, device, (ip, own.map_or(0, |own| own.port())).into())?;
    let mut state = lock(&held.state);
    state.context = context(device)?;
    (state.local, state.peer, state.phase) = (Some(local), Some(peer), CmPhase::AddrResolved);
    write_id(held, &state);
    queue_id_event(held, &state, n::RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    Ok(state.is_sync.then_some(id))
}

pub(crate) fn rdma_resolve_route(id: Handle<CmId>, _timeout_ms: i32) -> Answer<Option<Handle<CmId>>> {
    let held = id.lookup()?;
    let mut state = lock(&held.state);
    if state.phase != CmPhase::AddrResolved {
        return Err(errno!(
            INVAL,
            "the id {}; call rdma_resolve_addr first, and wait for RDMA_CM_EVENT_ADDR_RESOLVED",
            state.phase.text()
        ));
    }
    state.phase = CmPhase::RouteResolved;
    write_path(held, &mut state);
    queue_id_event(held, &state, n::RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    Ok(state.is_sync.then_some(id))
}
