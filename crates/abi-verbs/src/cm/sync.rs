//! Synchronous identifiers, which have no program's channel: waiting for the event that answers a call, and `rdma_create_ep`.

use std::os::fd::RawFd;

use ffi::{Out, lock};
use rdma_abi::cma::{rdma_addrinfo, rdma_cm_event};
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_qp_init_attr;

use crate::answer::Answer;
use crate::cm::addrinfo::addresses;
use crate::cm::destroy::{acknowledge, disconnect, rdma_destroy_id};
use crate::cm::{endpoint, event, id, resolve};
use crate::errno::{Errno, errno, missing};
use crate::objects::{CmId, CmPhase, Pd, QpTemplate};
use crate::slab::{Handle, Held};

/// Polls for the event that answers the last call; returns what to wait for if it has not arrived.
pub(crate) fn poll_event(id: Handle<CmId>) -> Answer<Option<RawFd>> {
    let held = id.lookup()?;
    acknowledge(held);
    match next(held)? {
        Err(until) => Ok(until),
        Ok(event) if event.status == 0 => Ok(None),
        // Positive numbers are reject reasons from the peer.
        Ok(event) if event.status > 0 => Err(Errno(libc::ECONNREFUSED).because(format_args!(
            "the peer has rejected the connection, or nobody listens at its address; start the listener first"
        ))),
        Ok(event) => Err(Errno(-event.status).because(format_args!(
            "the event that answers this call reports a failure: no connection to the peer"
        ))),
    }
}

/// Takes the next event for the identifier, which holds it from now on; or returns what to wait for.
fn next(id: Held<CmId>) -> Answer<Result<rdma_cm_event, Option<RawFd>>> {
    let channel = lock(&id.state).channel.lookup()?;
    let Some(event) = event::next_event(channel) else { return channel.events.fd_to_wait_for().map(Err) };
    id.update_c(|seen| seen.event = event.cast());
    Ok(Ok(event.lookup()?.c_part()))
}

/// Takes the next connect request of a synchronous listener, and creates its queue pair if the listener has a template from
/// `rdma_create_ep`.
pub(crate) fn rdma_get_request(listen: Handle<CmId>, id: Out<Handle<CmId>>) -> Answer<Option<RawFd>> {
    let listener = listen.lookup()?;
    let place = id.required_or(|| missing("id"))?;
    let template = {
        let state = lock(&listener.state);
        if !state.is_sync || state.phase != CmPhase::Listening {
            return Err(errno!(
                INVAL,
                "the listen id {} or has an event channel; pass one that was created without a channel and listens",
                state.phase.text()
            ));
        }
        state.template
    };
    acknowledge(listener);
    let event = match next(listener)? {
        Err(until) => return Ok(until),
        Ok(event) => event,
    };
    if event.event.cast_unsigned() != n::RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(errno!(
            INVAL,
            "event {} arrived at the listener instead of a connect request",
            event.event
        ));
    }
    let new = Handle::<CmId>::from_ptr(event.id).lookup()?;
    // The new identifier holds the event of its request.
    let told = listener.c_part().event;
    listener.update_c(|seen| seen.event = std::ptr::null_mut());
    new.update_c(|seen| seen.event = told);
    if let Some(Err(why)) = template.map(|template| template.create_qp(new)) {
        return Err(why.after(|| {
            let _ = rdma_destroy_id(new.handle());
        }));
    }
    place.set(new.handle());
    Ok(None)
}

pub(crate) fn rdma_create_ep(
    id: Out<Handle<CmId>>,
    res: Out<rdma_addrinfo>,
    pd: Handle<Pd>,
    init: Out<ibv_qp_init_attr>,
) -> Answer {
    let place = id.required_or(|| missing("id"))?;
    let info = res.get().ok_or_else(|| missing("res"))?;
    let is_datagram = info.ai_port_space.cast_unsigned() == n::RDMA_PS_UDP;
    if info.ai_qp_type.cast_unsigned() != if is_datagram { n::IBV_QPT_UD } else { n::IBV_QPT_RC } {
        return Err(errno!(
            OPNOTSUPP,
            "res.ai_qp_type is {}; RDMA_PS_TCP takes IBV_QPT_RC, and RDMA_PS_UDP IBV_QPT_UD",
            info.ai_qp_type
        ));
    }
    let new = id::create_id(Handle::NULL, std::ptr::null_mut(), info.ai_port_space)?;
    if let Err(why) = prepare(new.lookup()?, &info, pd, init) {
        return Err(why.after(|| {
            let _ = rdma_destroy_ep(new);
        }));
    }
    place.set(new);
    Ok(())
}

/// Binds a listener; otherwise resolves the peer's address and route, and creates the queue pair.
fn prepare(id: Held<CmId>, info: &rdma_addrinfo, pd: Handle<Pd>, init: Out<ibv_qp_init_attr>) -> Answer {
    let [src, dst] = addresses(info);
    let mut found = init.get();
    if let Some(found) = &mut found {
        found.qp_type = info.ai_qp_type;
        init.set(*found);
    }
    if info.ai_flags.cast_unsigned() & n::RAI_PASSIVE != 0 {
        resolve::rdma_bind_addr(id.handle(), src)?;
        lock(&id.state).template = found.map(|found| QpTemplate::new(pd, &found));
        id.update_c(|seen| seen.pd = pd.cast());
        return Ok(());
    }
    // Both calls have queued their event when they return.
    resolve::rdma_resolve_addr(id.handle(), src, dst, 0)?;
    poll_event(id.handle())?;
    resolve::rdma_resolve_route(id.handle(), 0)?;
    poll_event(id.handle())?;
    if found.is_some() { endpoint::rdma_create_qp(id.handle(), pd, init) } else { Ok(()) }
}

pub(crate) fn rdma_destroy_ep(id: Handle<CmId>) -> Answer {
    let held = id.lookup()?;
    let seen = held.c_part();
    // Ends the connection too; its disconnect event is not needed.
    let _ = disconnect(&mut lock(&held.state));
    let qp = if seen.qp.is_null() { Ok(()) } else { endpoint::rdma_destroy_qp(id) };
    let srq = if seen.srq.is_null() { Ok(()) } else { endpoint::rdma_destroy_srq(id) };
    rdma_destroy_id(id)?;
    qp.and(srq)
}
