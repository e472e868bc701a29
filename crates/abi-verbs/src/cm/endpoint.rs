//! Queue pairs, shared receive queues and completion queues that belong to an identifier.

use std::ffi::c_void;

use ffi::{Out, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Channel, CmId, Context, Cq, Pd, Qp, QpTemplate};
use crate::qp::settings::{set_timeout, set_visible_state};
use crate::qp::{modify, queue_pair};
use crate::resources::{channel, cq, srq};
use crate::slab::{Handle, Held};

impl QpTemplate {
    pub(crate) fn new(pd: Handle<Pd>, init: &ibv_qp_init_attr) -> Self {
        let (send_cq, recv_cq) = (Handle::from_ptr(init.send_cq), Handle::from_ptr(init.recv_cq));
        Self {
            pd,
            send_cq,
            recv_cq,
            srq: Handle::from_ptr(init.srq),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        }
    }

    /// Creates the queue pair of an identifier that a listener returned.
    pub(crate) fn create_qp(&self, id: Held<CmId>) -> Answer {
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: self.send_cq.cast(),
            recv_cq: self.recv_cq.cast(),
            srq: self.srq.cast(),
            cap: self.cap,
            qp_type: id.c_part().qp_type,
            sq_sig_all: self.sq_sig_all,
        };
        create(id, self.pd, &mut init, false)
    }
}

pub(crate) fn rdma_create_qp(id: Handle<CmId>, pd: Handle<Pd>, init: Out<ibv_qp_init_attr>) -> Answer {
    let id = id.lookup()?;
    let mut found = init.get().ok_or_else(|| missing("qp_init_attr"))?;
    create(id, pd, &mut found, false)?;
    init.set(found);
    Ok(())
}

pub(crate) fn rdma_create_qp_ex(id: Handle<CmId>, init: Out<ibv_qp_init_attr_ex>) -> Answer {
    let id = id.lookup()?;
    let mut found = init.get().ok_or_else(|| missing("qp_init_attr"))?;
    let (mut plain, has_send_ops) = queue_pair::plain(&found)?;
    let names_pd = found.comp_mask & n::IBV_QP_INIT_ATTR_PD != 0;
    let pd = if names_pd { Handle::from_ptr(found.pd) } else { Handle::NULL };
    create(id, pd, &mut plain, has_send_ops)?;
    found.cap = plain.cap;
    (found.send_cq, found.recv_cq, found.srq) = (plain.send_cq, plain.recv_cq, plain.srq);
    init.set(found);
    Ok(())
}

/// Creates the queue pair, ready for receives, and completion queues where the program has passed none.
pub(crate) fn create(
    id: Held<CmId>,
    pd: Handle<Pd>,
    init: &mut ibv_qp_init_attr,
    has_send_ops: bool,
) -> Answer {
    let context = context_of(id)?;
    let (has_one, is_datagram) = {
        let state = lock(&id.state);
        (state.qp.lookup().is_ok(), state.is_datagram)
    };
    if has_one {
        return Err(errno!(
            INVAL,
            "the id has a queue pair already; call rdma_destroy_qp first, or use another id"
        ));
    }
    if init.qp_type.cast_unsigned() != if is_datagram { n::IBV_QPT_UD } else { n::IBV_QPT_RC } {
        let (space, wanted) = if is_datagram { ("UDP", "IBV_QPT_UD") } else { ("TCP", "IBV_QPT_RC") };
        return Err(errno!(
            OPNOTSUPP,
            "qp_init_attr.qp_type is {}; an id of RDMA_PS_{space} takes {wanted}",
            init.qp_type
        ));
    }
    let pd = domain(id, pd);
    let made = add_queues(id, context, init).and_then(|()| queue_pair::create(pd, init, has_send_ops));
    let made = made.and_then(|qp| begin(qp, is_datagram));
    let qp = made.map_err(|why| why.after(|| destroy_queues(id)))?;
    {
        let mut state = lock(&id.state);
        state.qp = qp;
        set_timeout(qp.lookup()?, state.ack_timeout);
    }
    id.update_c(|seen| (seen.qp, seen.pd) = (qp.cast(), pd.cast()));
    Ok(())
}

/// Moves a new queue pair to the state that programs expect: INIT, or RTS for UD.
fn begin(qp: Handle<Qp>, is_datagram: bool) -> Answer<Handle<Qp>> {
    if !is_datagram {
        set_visible_state(qp.lookup()?, n::IBV_QPS_INIT);
        return Ok(qp);
    }
    let begun = [n::IBV_QPS_INIT, n::IBV_QPS_RTR, n::IBV_QPS_RTS].into_iter().try_for_each(|state| {
        let (attr, mask) = modify::by_librdmacm(state, is_datagram)?;
        modify::change(qp.lookup()?, &attr, mask)
    });
    begun.map_err(|why| {
        why.after(|| {
            let _ = queue_pair::ibv_destroy_qp(qp);
        })
    })?;
    Ok(qp)
}

fn context_of(id: Held<CmId>) -> Answer<Handle<Context>> {
    let context = lock(&id.state).context;
    match context.is_null() {
        true => Err(errno!(
            INVAL,
            "the id has no device yet; bind it to an address of this host, or call rdma_resolve_addr first"
        )),
        false => Ok(context),
    }
}

/// The protection domain that the program passes, or the identifier's.
fn domain(id: Held<CmId>, pd: Handle<Pd>) -> Handle<Pd> {
    if pd.is_null() { Handle::from_ptr(id.c_part().pd) } else { pd }
}

/// Fills in the identifier's queues where the program has passed none.
fn add_queues(id: Held<CmId>, context: Handle<Context>, init: &mut ibv_qp_init_attr) -> Answer {
    let seen = id.c_part();
    if init.srq.is_null() {
        init.srq = seen.srq;
    }
    if init.recv_cq.is_null() {
        if seen.recv_cq.is_null() {
            let (channel, cq) = make_queue(id, context, init.cap.max_recv_wr)?;
            id.update_c(|seen| (seen.recv_cq_channel, seen.recv_cq) = (channel.cast(), cq.cast()));
        }
        init.recv_cq = id.c_part().recv_cq;
    }
    if init.send_cq.is_null() {
        if seen.send_cq.is_null() {
            let (channel, cq) = make_queue(id, context, init.cap.max_send_wr)?;
            id.update_c(|seen| (seen.send_cq_channel, seen.send_cq) = (channel.cast(), cq.cast()));
        }
        init.send_cq = id.c_part().send_cq;
    }
    Ok(())
}

fn make_queue(id: Held<CmId>, context: Handle<Context>, size: u32) -> Answer<(Handle<Channel>, Handle<Cq>)> {
    let size = i32::try_from(size.max(1))
        .map_err(|_| errno!(INVAL, "qp_init_attr.cap asks for {size} requests; ask for fewer"))?;
    let channel = channel::ibv_create_comp_channel(context)?;
    let user: *mut c_void = id.handle().cast();
    let cq = cq::ibv_create_cq(context, size, user, channel, 0).map_err(|why| {
        // The channel has no other user.
        why.after(|| {
            let _ = channel::ibv_destroy_comp_channel(channel);
        })
    })?;
    Ok((channel, cq))
}

/// Destroys the identifier's own queues; queues still in use remain.
fn destroy_queues(id: Held<CmId>) {
    let seen = id.c_part();
    let all = [(seen.recv_cq, seen.recv_cq_channel), (seen.send_cq, seen.send_cq_channel)];
    for (cq, channel) in all.into_iter().filter(|(cq, _)| !cq.is_null()) {
        let _ = cq::ibv_destroy_cq(Handle::from_ptr(cq));
        let _ = channel::ibv_destroy_comp_channel(Handle::from_ptr(channel));
    }
    id.update_c(|seen| {
        (seen.recv_cq, seen.recv_cq_channel) = (std::ptr::null_mut(), std::ptr::null_mut());
        (seen.send_cq, seen.send_cq_channel) = (std::ptr::null_mut(), std::ptr::null_mut());
    });
}

pub(crate) fn rdma_destroy_qp(id: Handle<CmId>) -> Answer {
    let id = id.lookup()?;
    let qp = std::mem::replace(&mut lock(&id.state).qp, Handle::NULL);
    id.update_c(|seen| seen.qp = std::ptr::null_mut());
    let destroyed = queue_pair::ibv_destroy_qp(qp);
    destroy_queues(id);
    destroyed
}

pub(crate) fn rdma_create_srq(id: Handle<CmId>, pd: Handle<Pd>, attr: Out<ibv_srq_init_attr>) -> Answer {
    let id = id.lookup()?;
    attr.required_or(|| missing("attr"))?;
    context_of(id)?;
    let pd = domain(id, pd);
    let srq = srq::ibv_create_srq(pd, attr)?;
    id.update_c(|seen| (seen.srq, seen.pd) = (srq.cast(), pd.cast()));
    Ok(())
}

pub(crate) fn rdma_create_srq_ex(id: Handle<CmId>, attr: Out<ibv_srq_init_attr_ex>) -> Answer {
    let id = id.lookup()?;
    let mut found = attr.get().ok_or_else(|| missing("attr"))?;
    let names_pd = found.comp_mask & n::IBV_SRQ_INIT_ATTR_PD != 0;
    let pd = if names_pd { Handle::from_ptr(found.pd) } else { Handle::NULL };
    context_of(id)?;
    let pd = domain(id, pd);
    (found.comp_mask, found.pd) = (found.comp_mask | n::IBV_SRQ_INIT_ATTR_PD, pd.cast());
    let srq = srq::create_extended(&mut found)?;
    attr.set(found);
    id.update_c(|seen| (seen.srq, seen.pd) = (srq.cast(), pd.cast()));
    Ok(())
}

pub(crate) fn rdma_destroy_srq(id: Handle<CmId>) -> Answer {
    let id = id.lookup()?;
    let srq = Handle::from_ptr(id.c_part().srq);
    id.update_c(|seen| seen.srq = std::ptr::null_mut());
    srq::ibv_destroy_srq(srq)
}

/// The attributes that a program which created its own queue pair passes to `ibv_modify_qp(3)` for the next state.
pub(crate) fn rdma_init_qp_attr(id: Handle<CmId>, attr: Out<ibv_qp_attr>, mask: Out<i32>) -> Answer {
    let id = id.lookup()?;
    context_of(id)?;
    let (is_datagram, ack_timeout, rnr_retry) = {
        let state = lock(&id.state);
        (state.is_datagram, state.ack_timeout, state.rnr_retry)
    };
    let asked = attr.get().ok_or_else(|| missing("qp_attr"))?;
    let (mut found, flags) = modify::by_librdmacm(asked.qp_state.cast_unsigned(), is_datagram)?;
    (found.timeout, found.rnr_retry) = (ack_timeout, rnr_retry.unwrap_or(found.rnr_retry));
    mask.required_or(|| missing("qp_attr_mask"))?.set(flags.cast_signed());
    attr.set(found);
    Ok(())
}
