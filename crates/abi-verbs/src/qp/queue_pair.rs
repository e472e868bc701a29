//! Creating and destroying queue pairs, RC and UD. Their states are in `modify`, requests in `post` and `builder`.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::AtomicI32;

use ffi::{Out, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{QpCap, QpInit};

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Context, Cq, Engine, Pd, Qp, Srq};
use crate::qp::device_qp::{CurrentDeviceQp, DeviceQp};
use crate::requests::builder;
use crate::slab::{Handle, Held, Object};
use crate::usage::EventAcks;

/// Minimum inline size, as on cards: programs rely on some inline data without asking for it.
const INLINE_LEAST: u32 = 64;

/// Capabilities for our API; each is at least the minimum.
fn cap_of(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr.max(1),
        max_recv_wr: cap.max_recv_wr.max(1),
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: cap.max_recv_sge.max(1),
        max_inline: cap.max_inline_data.max(INLINE_LEAST),
    }
}

/// The fields of a new queue pair that C sees.
fn base(pd: Held<Pd>, init: &ibv_qp_init_attr, number: u32) -> ibv_qp {
    ibv_qp {
        context: Context::address(pd.context()),
        qp_context: init.qp_context,
        pd: pd.handle().cast(),
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: number,
        qp_num: number,
        state: n::IBV_QPS_RESET as c_int,
        qp_type: init.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    }
}

/// Creates a queue pair; updates the attributes to the actual capabilities.
pub(crate) fn create(pd: Handle<Pd>, init: &mut ibv_qp_init_attr, has_send_ops: bool) -> Answer<Handle<Qp>> {
    let pd = pd.lookup()?;
    let (send_cq, recv_cq) =
        (Handle::<Cq>::from_ptr(init.send_cq).lookup()?, Handle::<Cq>::from_ptr(init.recv_cq).lookup()?);
    let srq = Handle::<Srq>::from_ptr(init.srq).lookup_optional()?;
    let is_datagram = init.qp_type as u32 == n::IBV_QPT_UD;
    // UD needs to count its posted receives, which a shared queue does not allow.
    if !is_datagram && init.qp_type as u32 != n::IBV_QPT_RC || is_datagram && srq.is_some() {
        return Err(match is_datagram {
            true => errno!(
                OPNOTSUPP,
                "qp_init_attr.srq is set, but a UD queue pair takes no shared receive queue; set it to NULL"
            ),
            false => errno!(
                OPNOTSUPP,
                "qp_init_attr.qp_type is {}; there are IBV_QPT_RC (2) and IBV_QPT_UD (4)",
                init.qp_type
            ),
        });
    }
    let cap = cap_of(&init.cap);
    let engine = pd.context().lookup()?.engine.clone();
    let number = engine.pairing.alloc_number()?;
    let attr = QpInit {
        send_cq: send_cq.cq.clone(),
        recv_cq: recv_cq.cq.clone(),
        srq: srq.map(|srq| srq.srq.clone()),
        cap,
        sq_sig_all: init.sq_sig_all != 0,
        mtu: None,
        reported_qp_num: Some(number),
        split_receives: false,
    };
    init.cap = ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if srq.is_some() { 0 } else { cap.max_recv_wr },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: if srq.is_some() { 0 } else { cap.max_recv_sge },
        max_inline_data: cap.max_inline,
    };
    let fill = |device_qp| Qp {
        current: CurrentDeviceQp::new(device_qp),
        context: pd.context(),
        pd,
        send_cq,
        recv_cq,
        srq,
        state: AtomicI32::new(n::IBV_QPS_RESET as c_int),
        settings: Mutex::default(),
        init: *init,
        events: EventAcks::default(),
        has_send_ops,
    };
    let handle = DeviceQp::create(&engine, &pd.pd, &attr, is_datagram)
        .and_then(|device_qp| Qp::slab().insert(builder::new_qp_ex(base(pd, init, number)), fill(device_qp)))
        .and_then(|handle| enter(&engine, handle))
        .inspect_err(|_| engine.pairing.free_number(number))?;
    let users = [&pd.users, &send_cq.users, &recv_cq.users];
    users.into_iter().chain(srq.as_deref().map(|srq| &srq.users)).for_each(|users| users.join());
    Ok(handle)
}

/// Registers a new queue pair with its device's engine.
fn enter(engine: &Engine, handle: Handle<Qp>) -> Answer<Handle<Qp>> {
    let qp = handle.lookup()?;
    let device_qp = qp.device_qp();
    if qp.is_datagram() {
        let datagrams = engine.datagrams()?;
        // Fails if already set, to the same value: a queue belongs to one device, which keeps its datagrams.
        for cq in qp.cqs() {
            let _ = cq.datagrams.set(datagrams.clone());
        }
    }
    // From here on the engine's thread handles its events.
    let mut objects = lock(&engine.objects);
    if let Err(why) = device_qp.register(engine, &mut objects, handle) {
        device_qp.unregister(engine, &mut objects);
        drop(objects);
        drop(qp.remove()?);
        return Err(why);
    }
    objects.qps.insert(device_qp.qp.reported_qp_num(), handle);
    Ok(handle)
}

pub(crate) fn ibv_create_qp(pd: Handle<Pd>, init: Out<ibv_qp_init_attr>) -> Answer<Handle<Qp>> {
    let mut found = init.get().ok_or_else(|| missing("qp_init_attr"))?;
    let qp = create(pd, &mut found, false)?;
    init.set(found);
    Ok(qp)
}

/// Operations that the builder calls support.
const CALLS: u32 = n::IBV_QP_EX_WITH_RDMA_WRITE
    | n::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | n::IBV_QP_EX_WITH_SEND
    | n::IBV_QP_EX_WITH_SEND_WITH_IMM
    | n::IBV_QP_EX_WITH_RDMA_READ
    | n::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | n::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | n::IBV_QP_EX_WITH_SEND_WITH_INV
    | n::IBV_QP_EX_WITH_LOCAL_INV
    | n::IBV_QP_EX_WITH_BIND_MW;

pub(crate) fn create_ex(_context: Handle<Context>, init: Out<ibv_qp_init_attr_ex>) -> Answer<Handle<Qp>> {
    let mut found = init.get().ok_or_else(|| missing("qp_init_attr_ex"))?;
    if found.comp_mask & n::IBV_QP_INIT_ATTR_PD == 0 {
        return Err(errno!(INVAL, "qp_init_attr_ex.comp_mask lacks IBV_QP_INIT_ATTR_PD; set it, and pd"));
    }
    let (mut plain, has_send_ops) = plain(&found)?;
    let qp = create(Handle::from_ptr(found.pd), &mut plain, has_send_ops)?;
    found.cap = plain.cap;
    init.set(found);
    Ok(qp)
}

/// The basic part of extended attributes, and whether the program asks for the `ibv_wr_*` calls (send operations).
///
/// # Errors
/// [`Errno::OPNOTSUPP`](crate::errno::Errno::OPNOTSUPP) for unsupported attributes.
pub(crate) fn plain(found: &ibv_qp_init_attr_ex) -> Answer<(ibv_qp_init_attr, bool)> {
    let known =
        n::IBV_QP_INIT_ATTR_PD | n::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | n::IBV_QP_INIT_ATTR_CREATE_FLAGS;
    let asks = |flag| found.comp_mask & flag != 0;
    let has_send_ops = asks(n::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    let is_known = found.comp_mask & !known == 0
        && (!asks(n::IBV_QP_INIT_ATTR_CREATE_FLAGS) || found.create_flags == 0)
        && (!has_send_ops || found.send_ops_flags & !u64::from(CALLS) == 0);
    if !is_known {
        return Err(errno!(
            OPNOTSUPP,
            "qp_init_attr_ex.comp_mask is {:#x}, create_flags {:#x} and send_ops_flags {:#x}, of which some are not supported; \
             comp_mask may be {known:#x}, create_flags 0 and send_ops_flags {CALLS:#x}",
            found.comp_mask,
            found.create_flags,
            found.send_ops_flags
        ));
    }
    let plain = ibv_qp_init_attr {
        qp_context: found.qp_context,
        send_cq: found.send_cq,
        recv_cq: found.recv_cq,
        srq: found.srq,
        cap: found.cap,
        qp_type: found.qp_type,
        sq_sig_all: found.sq_sig_all,
    };
    Ok((plain, has_send_ops))
}

/// NULL for a queue pair created without the builder calls.
pub(crate) fn ibv_qp_to_qp_ex(qp: Handle<Qp>) -> Answer<*mut ibv_qp_ex> {
    let held = qp.lookup()?;
    if held.has_send_ops {
        Ok(qp.cast())
    } else {
        Err(errno!(
            OPNOTSUPP,
            "qp was created without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; create it by ibv_create_qp_ex with them"
        ))
    }
}

pub(crate) fn ibv_destroy_qp(qp: Handle<Qp>) -> Answer {
    let qp = qp.lookup()?;
    let number = qp.verbs().reported_qp_num();
    let engine = qp.context.lookup().ok().map(|context| context.engine.clone());
    if let Some(engine) = &engine {
        let device_qp = qp.device_qp();
        device_qp.drain(engine);
        engine.pairing.forget(&device_qp.qp);
        // A thread that delivers its events holds this lock.
        let mut objects = lock(&engine.objects);
        objects.qps.remove(&number);
        device_qp.unregister(engine, &mut objects);
    }
    qp.events.await_all(qp, "ibv_ack_async_event");
    let Qp { pd, send_cq, recv_cq, srq, current, .. } = qp.remove()?;
    drop(current);
    engine.into_iter().for_each(|engine| engine.pairing.free_number(number));
    let users = [&pd.users, &send_cq.users, &recv_cq.users];
    users.into_iter().chain(srq.as_deref().map(|srq| &srq.users)).for_each(|users| users.leave());
    Ok(())
}

/// No ordering of the bytes of a message is guaranteed.
pub(crate) fn ibv_query_qp_data_in_order(_qp: Handle<Qp>, _op: i32, _flags: u32) -> i32 {
    0
}
