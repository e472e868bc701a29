//! Completion queues; `poll` polls them.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock};

use ffi::{In, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Channel, Context, Cq, Pd};
use crate::qp::disconnect_hold::DelayedCompletions;
use crate::requests::poll;
use crate::slab::{Handle, Held, Object};
use crate::usage::{EventAcks, UseCount};

fn create(
    context: Handle<Context>,
    cqe: u32,
    cq_context: *mut c_void,
    channel: Handle<Channel>,
    vector: u32,
    parent: Option<Held<Pd>>,
) -> Answer<Handle<Cq>> {
    let engine = &context.lookup()?.engine;
    let channel = channel.lookup_optional()?;
    if vector != 0 {
        return Err(errno!(
            INVAL,
            "comp_vector is {}, but the device has only vector 0",
            vector.cast_signed()
        ));
    }
    let cq = match channel {
        Some(channel) => engine.device.create_cq_with(cqe, &channel.channel)?,
        None => engine.device.create_cq(cqe)?,
    };
    let (number, cqe) = (cq.id(), cq.cqe().try_into().unwrap_or(c_int::MAX));
    let seen = poll::new_cq_ex(Context::address(context), channel.map(Held::handle), cq_context, cqe);
    let body = Cq {
        cq,
        context,
        channel,
        parent,
        users: UseCount::default(),
        notified: EventAcks::default(),
        events: EventAcks::default(),
        delayed: DelayedCompletions::default(),
        datagrams: OnceLock::new(),
        current: Mutex::default(),
    };
    let handle = Cq::slab().insert(seen, body)?;
    lock(&engine.objects).cqs.insert(number, handle);
    parent.into_iter().for_each(|parent| parent.users.join());
    if let Some(channel) = channel {
        lock(&channel.cqs).insert(number, handle);
        channel.users.join();
        channel.update_c(|seen| seen.refcnt += 1);
    }
    Ok(handle)
}

/// The number of entries that a program passes.
fn size(cqe: i32) -> Answer<u32> {
    let size = u32::try_from(cqe).ok().filter(|size| *size != 0);
    size.ok_or_else(|| errno!(INVAL, "cqe is {cqe}; pass the number of entries, at least 1"))
}

pub(crate) fn ibv_create_cq(
    context: Handle<Context>,
    cqe: i32,
    cq_context: *mut c_void,
    channel: Handle<Channel>,
    comp_vector: i32,
) -> Answer<Handle<Cq>> {
    let cqe = size(cqe)?;
    create(context, cqe, cq_context, channel, comp_vector.cast_unsigned(), None)
}

/// The completion fields that can be read one by one.
const FIELDS: u64 = n::IBV_WC_STANDARD_FLAGS as u64;

pub(crate) fn create_ex(context: Handle<Context>, init: In<ibv_cq_init_attr_ex>) -> Answer<Handle<Cq>> {
    const KNOWN: u32 = n::IBV_CQ_INIT_ATTR_MASK_FLAGS | n::IBV_CQ_INIT_ATTR_MASK_PD;
    let init = init.required_or(|| missing("cq_attr"))?;
    if init.wc_flags & !FIELDS != 0 || init.comp_mask & !KNOWN != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "cq_attr.wc_flags is {:#x} and comp_mask {:#x}; supported are wc_flags {FIELDS:#x} (IBV_WC_STANDARD_FLAGS) and comp_mask {KNOWN:#x}",
            init.wc_flags,
            init.comp_mask
        ));
    }
    let parent = match init.comp_mask & n::IBV_CQ_INIT_ATTR_MASK_PD {
        0 => None,
        _ => Some(Handle::<Pd>::from_ptr(init.parent_domain).lookup()?),
    };
    if parent.is_some_and(|pd| pd.parent.is_none()) {
        return Err(errno!(
            INVAL,
            "cq_attr.parent_domain is a protection domain; pass one by ibv_alloc_parent_domain"
        ));
    }
    create(context, init.cqe, init.cq_context, Handle::from_ptr(init.channel), init.comp_vector, parent)
}

pub(crate) fn ibv_resize_cq(cq: Handle<Cq>, cqe: i32) -> Answer {
    let cq = cq.lookup()?;
    let size = size(cqe)?;
    if let Some(datagrams) = cq.datagrams.get() {
        // A card has already sent posted datagrams, and their completions count against the size. Resizing to the same size makes the
        // device process them.
        datagrams.transfer_until(|| drop(cq.cq.resize(cq.cq.cqe())));
    }
    if cq.delayed.len() > size as usize {
        return Err(errno!(
            INVAL,
            "cqe is {cqe}, but {} completions wait; poll them first",
            cq.delayed.len()
        ));
    }
    cq.cq.resize(size)?;
    cq.update_c(|seen| seen.cqe = cqe);
    Ok(())
}

pub(crate) fn ibv_destroy_cq(cq: Handle<Cq>) -> Answer {
    let cq = cq.lookup()?;
    cq.users.check_none("queue pairs")?;
    let number = cq.cq.id();
    if let Ok(context) = cq.context.lookup() {
        lock(&context.engine.objects).cqs.remove(&number);
    }
    if let Some(channel) = cq.channel {
        lock(&channel.cqs).remove(&number);
    }
    cq.notified.await_all(cq, "ibv_ack_cq_events");
    cq.events.await_all(cq, "ibv_ack_async_event");
    let body = cq.remove()?;
    body.parent.into_iter().for_each(|parent| parent.users.leave());
    if let Some(channel) = body.channel {
        channel.users.leave();
        channel.update_c(|seen| seen.refcnt -= 1);
    }
    Ok(())
}

pub(crate) fn req_notify(cq: Handle<Cq>, solicited_only: bool) -> Answer {
    let cq = cq.lookup()?;
    if cq.channel.is_some() {
        cq.cq.req_notify(solicited_only)?;
    }
    Ok(())
}

pub(crate) fn ibv_ack_cq_events(cq: Handle<Cq>, nevents: u32) -> Answer {
    let cq = cq.lookup()?;
    cq.update_c(|seen| seen.comp_events_completed = seen.comp_events_completed.wrapping_add(nevents));
    cq.notified.acknowledge(nevents);
    Ok(())
}
