//! Shared receive queues.

use std::ffi::c_void;

use ffi::{Out, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::SrqInit;

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Context, Pd, Srq};
use crate::slab::{Handle, Object};
use crate::usage::{EventAcks, UseCount};

fn create(pd: Handle<Pd>, srq_context: *mut c_void, attr: &mut ibv_srq_attr) -> Answer<Handle<Srq>> {
    let pd = pd.lookup()?;
    let init = SrqInit { max_wr: attr.max_wr, max_sge: attr.max_sge.max(1) };
    let srq = pd.pd.create_srq(init)?;
    let number = srq.id();
    let context = pd.context();
    let seen = ibv_srq {
        context: Context::address(context),
        srq_context,
        pd: pd.handle().cast(),
        handle: number,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let (users, events) = (UseCount::default(), EventAcks::default());
    let handle = Srq::slab().insert(seen, Srq { srq, context, pd, init, users, events })?;
    pd.users.join();
    lock(&context.lookup()?.engine.objects).srqs.insert(number, handle);
    attr.max_sge = init.max_sge;
    Ok(handle)
}

pub(crate) fn ibv_create_srq(pd: Handle<Pd>, init: Out<ibv_srq_init_attr>) -> Answer<Handle<Srq>> {
    let mut found = init.get().ok_or_else(|| missing("srq_init_attr"))?;
    let srq = create(pd, found.srq_context, &mut found.attr)?;
    init.set(found);
    Ok(srq)
}

pub(crate) fn create_ex(_context: Handle<Context>, init: Out<ibv_srq_init_attr_ex>) -> Answer<Handle<Srq>> {
    let mut found = init.get().ok_or_else(|| missing("srq_init_attr_ex"))?;
    let srq = create_extended(&mut found)?;
    init.set(found);
    Ok(srq)
}

/// Creates a shared receive queue from extended attributes, and updates them to its actual capabilities.
pub(crate) fn create_extended(init: &mut ibv_srq_init_attr_ex) -> Answer<Handle<Srq>> {
    let is_basic =
        init.comp_mask & n::IBV_SRQ_INIT_ATTR_TYPE == 0 || init.srq_type as u32 == n::IBV_SRQT_BASIC;
    if !is_basic || init.comp_mask & n::IBV_SRQ_INIT_ATTR_PD == 0 {
        return Err(errno!(
            OPNOTSUPP,
            "srq_init_attr_ex.srq_type is {} and comp_mask {:#x}; pass IBV_SRQT_BASIC, and IBV_SRQ_INIT_ATTR_PD with pd",
            init.srq_type,
            init.comp_mask
        ));
    }
    create(Handle::from_ptr(init.pd), init.srq_context, &mut init.attr)
}

pub(crate) fn number(srq: Handle<Srq>, place: Out<u32>) -> Answer {
    let number = srq.lookup()?.srq.id();
    place.required_or(|| missing("srq_num"))?.set(number);
    Ok(())
}

pub(crate) fn ibv_modify_srq(srq: Handle<Srq>, attr: Out<ibv_srq_attr>, mask: i32) -> Answer {
    let (srq, attr) = (srq.lookup()?, attr.get().ok_or_else(|| missing("srq_attr"))?);
    match mask.cast_unsigned() {
        n::IBV_SRQ_LIMIT => {
            srq.srq.arm_limit(attr.srq_limit)?;
            srq.context.lookup()?.engine.expect_limits();
            Ok(())
        }
        mask if mask & n::IBV_SRQ_MAX_WR != 0 => Err(errno!(
            OPNOTSUPP,
            "srq_attr_mask has IBV_SRQ_MAX_WR, but the size of a shared receive queue is fixed; create a larger one"
        )),
        mask => Err(errno!(INVAL, "srq_attr_mask is {mask:#x}; pass IBV_SRQ_LIMIT")),
    }
}

pub(crate) fn ibv_query_srq(srq: Handle<Srq>, place: Out<ibv_srq_attr>) -> Answer {
    let srq = srq.lookup()?;
    let SrqInit { max_wr, max_sge } = srq.init;
    place.required_or(|| missing("srq_attr"))?.set(ibv_srq_attr {
        max_wr,
        max_sge,
        srq_limit: srq.srq.limit(),
    });
    Ok(())
}

pub(crate) fn ibv_destroy_srq(srq: Handle<Srq>) -> Answer {
    let srq = srq.lookup()?;
    srq.users.check_none("queue pairs")?;
    if let Ok(context) = srq.context.lookup() {
        lock(&context.engine.objects).srqs.remove(&srq.srq.id());
    }
    srq.events.await_all(srq, "ibv_ack_async_event");
    srq.remove()?.pd.users.leave();
    Ok(())
}
